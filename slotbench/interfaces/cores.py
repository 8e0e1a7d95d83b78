"""Interface of temporal cores: their outputs and their state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from slotbench.interfaces.batch import VideoBatch
from slotbench.interfaces.specs import PartError, SlotSpec

__all__ = [
    "AttentionKind",
    "CoreOutput",
    "CoreStep",
    "GenerativeCore",
    "RecurrentCore",
    "State",
    "TemporalCore",
    "WindowedCore",
    "detach_state",
    "map_state",
    "unbind_time",
]

State = Any
"""A pytree (nested tuples, lists and dicts) of tensors whose first axis is the batch. The caller owns it."""

AttentionKind = Literal["assignment", "reading"]
"""Meaning of attention weights: which slot wins each token, or which tokens each slot reads.

"assignment": the weights of a token sum to 1 over the slots (of all heads, where these compete), a segmentation.
"reading": those of a slot sum to 1 over the tokens, or to less where the core can also read nothing.
"""


@dataclass
class CoreOutput:
    """Output of a core: slots of every step, attention over its tokens if it has any, and the state after the last.

    Attributes:
        slots: of every step.
        attention: weights of slots and tokens, if the core has any to show.
        state: after the last step.
        attention_kind: what the weights sum to, and so what they mean; required with `attention`.
        details: facts about every step by name, for figures and scores: "batch time ...", in the order of the slots
            where they are about slots. No gradient passes through them. The names that cores share are `active`
            "batch time slots", which slots were updated (bool); `reads` "batch time slots inputs", what each slot
            attended to among its inputs, the null input last; `communication` "batch time slots slots", the weight of
            each other slot in what it received; `inputs` "batch time inputs tokens", which input won each token;
            `schemata` "batch time slots schemata", by which of several updates each slot was changed, one-hot.
        losses: terms that the core itself adds to the loss, scalars by name, each a mean over the steps of the call.
            `VariationalPrediction` adds them; other tasks train without them.
    """

    slots: Float[Tensor, "batch time slots dim"]
    attention: Float[Tensor, "batch time slots tokens"] | None
    state: State
    attention_kind: AttentionKind | None = None
    details: dict[str, Tensor] = field(default_factory=dict)
    losses: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.attention is not None and self.attention_kind not in get_args(AttentionKind):
            raise PartError(
                f"a core returns attention with attention_kind={self.attention_kind!r}: give 'assignment' where slots "
                "compete for each token, or 'reading' where each slot spreads over the tokens"
            )


class CoreStep(NamedTuple):
    """Output of one step of a `RecurrentCore`: the fields of `CoreOutput` without the axis of time."""

    slots: Float[Tensor, "batch slots dim"]
    attention: Float[Tensor, "batch slots tokens"] | None
    state: State
    details: Mapping[str, Tensor] = {}


class TemporalCore(nn.Module, ABC):
    """Turns the tokens of a clip into slots, in parallel over time, with explicit state.

    A subclass takes the encoder's `TokenSpec` as its first argument, gives every other argument a default, and sets
    `slot_spec`. Streaming, roll-out and truncated back-propagation are all the same call on shorter clips: nothing is
    cached on the module, the caller passes `state` from one call to the next. The laws that every registered core must
    keep are in `slotbench.testing.laws`.
    """

    slot_spec: SlotSpec
    causal: bool = True
    """Whether no slot depends on a later step. A core that may be otherwise sets it, and is given whole videos."""
    autocast_tolerance: ClassVar[float] = 0.05
    """Largest relative error (in norm) of the slots under bfloat16 autocast that the core promises."""
    split_tolerance: ClassVar[float] = 1e-9
    """How far, in float64, the slots of a clip that is cut in pieces may be from those of the whole."""

    @abstractmethod
    def forward(self, tokens: Float[Tensor, "batch time tokens dim"], state: State | None = None) -> CoreOutput:
        """Slots of every step. `state` is that of an earlier call, or None at the start of a clip."""

    def first_state(self, batch: VideoBatch) -> State | None:
        """The state that clips begin with, which auto-encoding gives to the first call; None where tokens suffice."""
        return None

    def slot_parameters(self) -> dict[str, int] | None:
        """The parameters with one row per slot, by name, with that axis: permuting these rows permutes the slots."""
        return None


class WindowedCore(TemporalCore):
    """A core that can compute each step from the last few frames alone, for clips longer than those of the training."""

    @abstractmethod
    def sliding_window(self, tokens: Float[Tensor, "batch time tokens dim"], window: int) -> CoreOutput:
        """Slots of each step from the last `window` frames; there is no state."""


class GenerativeCore(TemporalCore):
    """A core that can go on from a state without reading anything, by a distribution that it has learned (a prior)."""

    @abstractmethod
    def imagine(self, state: State, steps: int) -> CoreOutput:
        """Slots of the next `steps` steps, drawn from the prior; no slot depends on a later step."""


class RecurrentCore(TemporalCore):
    """A core written one step at a time: a subclass has `initial_state` and `cell`, the base loops over time.

    What a step needs that does not depend on the state (an encoder of the tokens, the input half of a gate) belongs
    into `per_step`, which sees all steps of a call at once; `cell` then gets its share of what `per_step` returned.
    """

    attention_kind: ClassVar[AttentionKind | None] = None
    """What the attention that `cell` returns means; a subclass whose `cell` returns attention sets it."""

    @abstractmethod
    def initial_state(self, tokens: Float[Tensor, "batch tokens dim"]) -> State:
        """State before the first step, for the batch size, device and dtype of the first step's `tokens`."""

    def per_step(self, tokens: Float[Tensor, "batch time tokens dim"]) -> Any:
        """What `cell` reads, for all steps at once: a pytree of tensors "batch time ..."; the tokens by default."""
        return tokens

    @abstractmethod
    def cell(
        self, inputs: Any, state: State
    ) -> CoreStep | tuple[Float[Tensor, "batch slots dim"], Float[Tensor, "batch slots tokens"] | None, State]:
        """One step: (slots, attention or None, state after the step), or a `CoreStep`, which has details as well.

        `inputs` is one step of what `per_step` returned, without the axis of time: "batch tokens dim" unless the
        subclass has its own `per_step`.
        """

    def forward(self, tokens: Float[Tensor, "batch time tokens dim"], state: State | None = None) -> CoreOutput:
        """Runs `cell` over the steps of the clip."""
        if state is None:
            state = self.initial_state(tokens[:, 0])
        return self.run(self.per_step(tokens), state)

    def run(self, inputs: Any, state: State) -> CoreOutput:
        """Runs `cell` over the steps of `inputs`, which are what `per_step` returns."""
        slots: list[Tensor] = []
        attentions: list[Tensor] = []
        details: dict[str, list[Tensor]] = {}
        for step_inputs in unbind_time(inputs):
            returned = self.cell(step_inputs, state)
            if not isinstance(returned, tuple | list) or not 3 <= len(returned) <= 4:
                many = f"{len(returned)} values" if isinstance(returned, tuple | list) else type(returned).__name__
                raise PartError(
                    f"the cell of {type(self).__name__} returned {many}; expected (slots, attention or None, state) or "
                    "a CoreStep"
                )
            step = CoreStep(*returned)
            state = step.state
            slots.append(step.slots)
            if step.attention is not None:
                attentions.append(step.attention)
            for name, value in step.details.items():
                details.setdefault(name, []).append(value.detach())
        return CoreOutput(
            torch.stack(slots, dim=1),
            torch.stack(attentions, dim=1) if attentions else None,
            state,
            self.attention_kind if attentions else None,
            {name: torch.stack(values, dim=1) for name, values in details.items()},
        )


def map_state(function: Callable[[Tensor], Tensor], state: State) -> State:
    """A state of the same structure with `function` applied to every tensor; None stays None."""
    if isinstance(state, Tensor):
        return function(state)
    if isinstance(state, dict):
        return {key: map_state(function, value) for key, value in state.items()}
    if isinstance(state, tuple) and hasattr(state, "_fields"):
        return type(state)(*(map_state(function, value) for value in state))
    if isinstance(state, list | tuple):
        return type(state)(map_state(function, value) for value in state)
    return state


def detach_state(state: State) -> State:
    """The same state cut off from the graph that made it, for truncated back-propagation."""
    return map_state(Tensor.detach, state)


def unbind_time(tree: Any) -> Iterator[Any]:
    """The steps of a pytree of tensors "batch time ...", each with the structure of the whole."""
    # unbind once: indexing x[:, t] in a differentiated loop costs O(T^2) in the backward pass
    unbound: list[tuple[Tensor, ...]] = []
    map_state(lambda leaf: unbound.append(leaf.unbind(1)) or leaf, tree)  # type: ignore[func-returns-value]
    for leaves in zip(*unbound, strict=True):
        remaining = iter(leaves)
        yield map_state(lambda _, remaining=remaining: next(remaining), tree)  # type: ignore[misc]
