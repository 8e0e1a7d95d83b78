"""What an encoder, a temporal core, a decoder, an aggregation and a tokenizer are, and what they hand over.

They are abstract classes, not protocols, because the configuration parser finds a component by its class name among the
subclasses of its interface.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from slotbench.errors import UserError
from slotbench.interfaces.batch import VideoBatch
from slotbench.interfaces.specs import SlotSpec, TokenSpec, VideoSpec

__all__ = [
    "Aggregation",
    "AttentionKind",
    "AutoregressiveDecoder",
    "CoreOutput",
    "Decoded",
    "Decoder",
    "Encoder",
    "PartError",
    "RecurrentCore",
    "StagedAggregation",
    "State",
    "TemporalCore",
    "Tokenized",
    "Tokenizer",
    "WindowedCore",
    "detach_state",
    "map_state",
]

State = Any
"""A pytree (nested tuples, lists and dicts) of tensors whose first axis is the batch. The caller owns it."""

AttentionKind = Literal["assignment", "reading"]
"""What attention says: which slot has won each token, or which tokens each slot has read.

"assignment": slots compete for a token, so that the weights of every token sum to 1 over the slots (with several heads,
over the slots of all heads where these compete, summed over heads). Only this is a segmentation of the tokens.
"reading": a slot spreads over the tokens, so that its weights sum to 1 over the tokens, or to less where the core can
also read nothing (RIM's null input). Every slot may read the same token.
"""


class PartError(UserError, ValueError):
    """An encoder, core or decoder breaks its interface; a command ends with the sentence, without a traceback."""


@dataclass
class CoreOutput:
    """Slots of every step, where in its tokens the core attended (if it says so), and the state after the last.

    Attributes:
        slots: of every step.
        attention: weights of slots and tokens, if the core has any to show.
        state: after the last step.
        attention_kind: what the weights sum to, and so what they mean; required with `attention`.

    Raises:
        PartError: `attention` without its kind.
    """

    slots: Float[Tensor, "batch time slots dim"]
    attention: Float[Tensor, "batch time slots tokens"] | None
    state: State
    attention_kind: AttentionKind | None = None

    def __post_init__(self) -> None:
        if self.attention is not None and self.attention_kind not in get_args(AttentionKind):
            raise PartError(
                f"a core hands over attention with attention_kind={self.attention_kind!r}: give 'assignment' where "
                "slots compete for each token, or 'reading' where each slot spreads over the tokens; a RecurrentCore "
                "sets it as a class attribute"
            )


@dataclass
class Decoded:
    """What a decoder made of the slots.

    Attributes:
        reconstruction: pixels, or logits of the classes.
        masks: share of each slot in each pixel, summing to 1 over slots, if the decoder has such a notion.
        components: each slot's own image.
        losses: terms that the decoder itself adds to the loss, scalars by name.
    """

    reconstruction: Float[Tensor, "batch time *views channels height width"]
    masks: Float[Tensor, "batch time *views slots height width"] | None = None
    components: Float[Tensor, "batch time *views slots channels height width"] | None = None
    losses: dict[str, Tensor] = field(default_factory=dict)

    def add_losses(self, value: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """`value` plus the terms of the decoder."""
        for term in self.losses.values():
            value = value + term
        return value


class Encoder(nn.Module, ABC):
    """Turns each time step, on its own, into tokens.

    A subclass takes a `VideoSpec` as its first argument, gives every other argument a default, and sets `token_spec`.
    The tokens of a step are those of all views that are shown; `VideoBatch.held_out` is not read.
    """

    token_spec: TokenSpec
    takes_views: ClassVar[bool] = False
    """Whether there may be several views per step. A task refuses an encoder that takes one, where data gives more."""

    @abstractmethod
    def forward(self, batch: VideoBatch) -> Float[Tensor, "batch time tokens dim"]:
        """Tokens of every step."""


class TemporalCore(nn.Module, ABC):
    """Turns the tokens of a clip into slots, in parallel over time, with explicit state.

    A subclass takes a `TokenSpec` as its first argument, gives every other argument a default, and sets `slot_spec`.
    Streaming, roll-out and truncated back-propagation are all the same call on shorter clips: nothing is cached on the
    module, the caller hands `state` from one call to the next. The laws that every registered core must keep are
    in `slotbench.testing.laws`.
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

    def prepared(self) -> Callable[[Tensor, State | None], CoreOutput]:
        """A function that does what a call does, for the many short calls of one roll-out.

        A core whose parameters are turned into something else at every call (discretised, laid out for a convolution)
        may return one that does so once, for as long as the parameters stay as they are; see
        `slotbench.nn.parameters.WhileUnchanged`. It belongs to the caller, and the core knows nothing of it. By
        default it is the core itself.
        """
        return self

    def slot_parameters(self) -> dict[str, int] | None:
        """The parameters that hold one row per slot, by name, with the axis of the slots.

        A core that declares them promises that permuting these rows permutes its output slots and changes nothing else.
        None (the default) promises nothing.
        """
        return None


class WindowedCore(TemporalCore):
    """A core that can compute each step from the last few frames alone, for clips longer than those of the training."""

    @abstractmethod
    def sliding_window(self, tokens: Float[Tensor, "batch time tokens dim"], window: int) -> CoreOutput:
        """Slots of each step from the last `window` frames; there is no state."""


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
        """What `cell` reads, for all steps at once: a pytree of tensors "batch time ..."; the tokens by default.

        Each step must be computed on its own, or the core is no longer causal.
        """
        return tokens

    @abstractmethod
    def cell(
        self, inputs: Any, state: State
    ) -> tuple[Float[Tensor, "batch slots dim"], Float[Tensor, "batch slots tokens"] | None, State]:
        """One step: (slots, attention or None, state after the step).

        `inputs` is one step of what `per_step` returned, without the axis of time: "batch tokens dim" unless the
        subclass has its own `per_step`.
        """

    def forward(self, tokens: Float[Tensor, "batch time tokens dim"], state: State | None = None) -> CoreOutput:
        """Runs `cell` over the steps of the clip."""
        if state is None:
            state = self.initial_state(tokens[:, 0])
        slots, attentions = [], []
        for inputs in _unbind_time(self.per_step(tokens)):
            slot, attention, state = self.cell(inputs, state)
            slots.append(slot)
            if attention is not None:
                attentions.append(attention)
        if not attentions:
            return CoreOutput(torch.stack(slots, dim=1), None, state)
        return CoreOutput(torch.stack(slots, dim=1), torch.stack(attentions, dim=1), state, self.attention_kind)


class Decoder(nn.Module, ABC):
    """Turns slots into pixels or logits, each time step on its own.

    A subclass takes a `SlotSpec` and the target's `VideoSpec` as its first two arguments and gives every other one a
    default.
    """

    takes_views: ClassVar[bool] = False
    """Whether it paints the views whose rays are in the batch, if there are several."""

    @abstractmethod
    def forward(self, slots: Float[Tensor, "batch time slots dim"], batch: VideoBatch | None = None) -> Decoded:
        """Decodes every step of `slots`; `batch` is there for decoders that need the target or camera rays.

        To paint held-out views, a task gives `VideoBatch.held_out` as the batch.
        """


class AutoregressiveDecoder(Decoder):
    """A decoder of classes, such as a tokenizer's codes, that reads the cells of a step that it has already predicted.

    In training it is given the true ones (teacher forcing), `VideoBatch.target` with one target per step. In evaluation
    `sample` predicts cell by cell, from its own predictions. `Decoded.reconstruction` holds the logits in both.
    """

    @abstractmethod
    def forward(self, slots: Float[Tensor, "batch time slots dim"], batch: VideoBatch | None = None) -> Decoded:
        """Logits of every cell, in row-major order, from the slots and the true cells before it."""

    @abstractmethod
    def sample(
        self, slots: Float[Tensor, "batch time slots dim"], batch: VideoBatch | None = None, temperature: float = 0.0
    ) -> tuple[Integer[Tensor, "batch time *views rows cols"], Decoded]:
        """The cells, predicted one by one, with the logits they were chosen by; the target of `batch` is not read.

        Args:
            slots: of every step.
            batch: for camera rays.
            temperature: the logits are divided by it before a class is drawn; with 0 the most likely class is taken.
        """


@dataclass
class Tokenized:
    """What a tokenizer made of frames.

    Attributes:
        codes: the code of each cell.
        reconstruction: the frames, decoded from the codes in a way that has a gradient; None where nothing is learned.
        losses: terms that the tokenizer itself adds to the loss, scalars by name.
    """

    codes: Integer[Tensor, "batch time *views rows cols"]
    reconstruction: Float[Tensor, "batch time *views channels height width"] | None = None
    losses: dict[str, Tensor] = field(default_factory=dict)


class Tokenizer(nn.Module, ABC):
    """Turns each frame, on its own, into a grid of discrete codes, and codes into frames.

    A subclass takes a `VideoSpec` as its first argument, gives every other argument a default, and sets `code_spec`,
    from which the decoder that predicts the codes is built: its channels are the codes, its height and width the cells.
    """

    code_spec: VideoSpec

    @abstractmethod
    def forward(self, frames: Float[Tensor, "batch time *views channels height width"]) -> Tokenized:
        """Codes of frames in [0, 1], and what a training of the tokenizer needs."""

    @abstractmethod
    def decode(
        self, codes: Integer[Tensor, "batch time *views rows cols"]
    ) -> Float[Tensor, "batch time *views channels height width"]:
        """Frames in [0, 1] of codes."""


class Aggregation(nn.Module, ABC):
    """How inverted attention turns (assignment of tokens to slots, values) into one update per slot.

    A subclass takes `dim` as its first argument and gives every other one a default. One that must see the updates of
    all slots and steps before it knows their scale is a `StagedAggregation`.

    Args:
        dim: width of a value and of an update; with several heads, that of one head.
    """

    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim

    @abstractmethod
    def forward(
        self, assignment: Float[Tensor, "*batch slots tokens"], values: Float[Tensor, "*#batch tokens dim"]
    ) -> Float[Tensor, "*batch slots dim"]:
        """`assignment` sums to 1 over the slots (of all heads, where heads compete) for each token.

        A token that a step may not see has a share of zero in all of them. Leading axes of `values` of length one are
        shared by all that `assignment` has there.
        """


class StagedAggregation(Aggregation):
    """An aggregation whose scale depends on the updates of all slots, steps and clips at once.

    Inverted attention goes through the steps in chunks, whose weights it may compute a second time in the backward
    pass. It therefore gathers chunk by chunk, and calls `rescale` once with all that was gathered.
    """

    def forward(
        self, assignment: Float[Tensor, "*batch slots tokens"], values: Float[Tensor, "*#batch tokens dim"]
    ) -> Float[Tensor, "*batch slots dim"]:
        """A first iteration, and the only one."""
        return self.rescale(self.gather(assignment, values))[0].to(values.dtype)

    @abstractmethod
    def gather(
        self, assignment: Float[Tensor, "*batch slots tokens"], values: Float[Tensor, "*#batch tokens dim"]
    ) -> Float[Tensor, "*batch slots dim"]:
        """What each slot has won, before the scale is known. Changes nothing on the module."""

    @abstractmethod
    def rescale(
        self, gathered: Float[Tensor, "batch *others dim"], statistics: Any = None
    ) -> tuple[Float[Tensor, "batch *others dim"], Any]:
        """(updates, statistics to continue with): with `statistics` None they are taken from `gathered`."""


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


def _unbind_time(tree: Any) -> Iterator[Any]:
    """The steps of a pytree of tensors "batch time ...", each with the structure of the whole."""
    # unbind once: indexing x[:, t] in a differentiated loop costs O(T^2) in the backward pass
    unbound: list[tuple[Tensor, ...]] = []
    map_state(lambda leaf: unbound.append(leaf.unbind(1)) or leaf, tree)  # type: ignore[func-returns-value]
    for leaves in zip(*unbound, strict=True):
        remaining = iter(leaves)
        yield map_state(lambda _, remaining=remaining: next(remaining), tree)  # type: ignore[misc]
