"""What an encoder, a temporal core, a decoder and an aggregation are, and what passes between them.

Sizes flow forward once: the data knows its `DataSpec`; an encoder is built from the input's `VideoSpec` and exposes
`token_spec`; a core is built from that and exposes `slot_spec`; a decoder is built from that and from the target's
`VideoSpec`.

The interfaces are abstract classes, not protocols, because the configuration parser finds a component by its class name
among the subclasses of the interface.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, get_args

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from slotbench.errors import UserError

__all__ = [
    "Aggregation",
    "AttentionKind",
    "CoreOutput",
    "DataSpec",
    "Decoded",
    "Decoder",
    "Encoder",
    "PartError",
    "RecurrentCore",
    "SlotSpec",
    "State",
    "TemporalCore",
    "TokenSpec",
    "VideoBatch",
    "VideoSpec",
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


@dataclass(frozen=True)
class VideoSpec:
    """One time step of a video, of the input or of what is to be produced.

    Args:
        channels: values per pixel: colour channels of an input, classes or colour channels of a target.
        height: rows of pixels.
        width: columns of pixels.
        num_actions: size of the action vector that comes with a step; 0 where there is none.
        num_views: cameras per step.
        patches_per_side: 1 where a step is a whole frame. P > 1 where each frame has been cut into P x P cells that are
            shown one after the other in row-major order, so that step s is cell s % P^2 of frame s // P^2; `height` and
            `width` are then those of one cell.
        palette: red, green and blue in 0..255 of each class, where the channels are classes.
    """

    channels: int
    height: int
    width: int
    num_actions: int = 0
    num_views: int = 1
    patches_per_side: int = 1
    palette: tuple[tuple[int, int, int], ...] | None = None

    @property
    def steps_per_frame(self) -> int:
        """Time steps that one frame takes: `patches_per_side` squared."""
        return self.patches_per_side**2


@dataclass(frozen=True)
class DataSpec:
    """What a data set feeds in and what it asks for; they differ where patches go in and a 7-class image comes out.

    Args:
        input: the frames.
        target: what is to be produced.
        features: the features of the frames that come with them, if any: width of a feature, rows and columns of cells.
    """

    input: VideoSpec
    target: VideoSpec
    features: VideoSpec | None = None


@dataclass(frozen=True)
class TokenSpec:
    """What an encoder hands over per step: `num_tokens` vectors of width `dim`, on a `grid` (rows, columns) if any."""

    dim: int
    num_tokens: int
    grid: tuple[int, int] | None = None


@dataclass(frozen=True)
class SlotSpec:
    """What a core hands over per time step; `grid` is set when the "slots" are the cells of a feature map (ConvS5)."""

    num_slots: int
    dim: int
    grid: tuple[int, int] | None = None


@dataclass
class VideoBatch:
    """A batch of clips. Every sample of a batch has the same layout, so one slice in time fits all.

    Attributes:
        frames: in [0, 1] once it is on the device (`uint8` in 0..255 before).
        time: absolute step index of every step, so that a clip cut in two still knows where it is.
        masks: instance ids of the input, 0 = background.
        target: what is to be produced, `targets` times in the clip: class ids "batch targets height width" for a
            classification of pixels, otherwise absent (a video to reconstruct or continue is its own target).
        target_masks: instance ids of the target, 0 = background.
        target_time: the absolute step after which each target is due.
        actions: action vectors.
        rays: camera rays, for decoders that need them.
        features: what a frozen network has made of each frame, where the set comes with it.
        objects: the simulator's log or the set's annotations, e.g. "positions" (batch frames objects 2); not
            cut by a slice.
        index: which clip of its split each one is, where a data set's loader has said so; several processes have
            different clips of one batch.
    """

    frames: Float[Tensor, "batch time channels height width"] | Integer[Tensor, "batch time channels height width"]
    time: Integer[Tensor, "batch time"]
    masks: Integer[Tensor, "batch time height width"] | None = None
    target: Integer[Tensor, "batch targets target_height target_width"] | None = None
    target_masks: Integer[Tensor, "batch targets target_height target_width"] | None = None
    target_time: Integer[Tensor, "batch targets"] | None = None
    actions: Float[Tensor, "batch time num_actions"] | None = None
    rays: Float[Tensor, "batch time 6 height width"] | None = None
    features: Float[Tensor, "batch time feature_channels rows cols"] | None = None
    objects: dict[str, Tensor] = field(default_factory=dict)
    index: Integer[Tensor, " batch"] | None = None

    @property
    def num_steps(self) -> int:
        """Time steps in the clip."""
        return self.frames.shape[1]

    def __len__(self) -> int:
        return self.frames.shape[0]

    def require(self, name: str) -> Tensor:
        """The field `name`, for those who cannot do without it.

        Raises:
            ValueError: the data set does not have it.
        """
        value = getattr(self, name)
        if value is None:
            raise ValueError(f"this data set gives no {name}, which is needed here: choose a data set that does")
        return value

    def slice_time(self, start: int, stop: int) -> VideoBatch:
        """Steps `start` to `stop` (exclusive) of every clip, with the targets that are due within them."""
        cut: dict[str, Any] = {
            name: None if value is None else value[:, start:stop]
            for name in ("frames", "time", "masks", "actions", "rays", "features")
            for value in [getattr(self, name)]
        }
        if self.target_time is not None:
            due = torch.isin(self.target_time[0], cut["time"][0])
            for name in ("target", "target_masks", "target_time"):
                value = getattr(self, name)
                cut[name] = None if value is None else value[:, due]
        return replace(self, **cut)

    def map(self, function: Callable[[Tensor], Tensor]) -> VideoBatch:
        """A new batch with `function` applied to every tensor."""
        changed = {f.name: function(value) for f in fields(self) if isinstance(value := getattr(self, f.name), Tensor)}
        return replace(self, **changed, objects={name: function(value) for name, value in self.objects.items()})

    def to(self, device: torch.device | str, non_blocking: bool = False) -> VideoBatch:
        """The batch on another device."""
        return self.map(lambda value: value.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> VideoBatch:
        """The batch in page-locked memory."""
        return self.map(Tensor.pin_memory)


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
        reconstruction: pixels or logits.
        masks: share of each slot in each pixel, summing to 1 over slots, if the decoder has such a notion.
        components: each slot's own picture.
        losses: terms that the decoder itself adds to the loss, scalars by name.
    """

    reconstruction: Float[Tensor, "batch time channels height width"]
    masks: Float[Tensor, "batch time slots height width"] | None = None
    components: Float[Tensor, "batch time slots channels height width"] | None = None
    losses: dict[str, Tensor] = field(default_factory=dict)


class Encoder(nn.Module, ABC):
    """Turns each time step, on its own, into tokens.

    A subclass takes a `VideoSpec` as its first argument, gives every other argument a default, and sets `token_spec`.
    """

    token_spec: TokenSpec

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
    autocast_tolerance: ClassVar[float] = 0.05
    """Largest relative error (in norm) of the slots under bfloat16 autocast that the core promises."""
    split_tolerance: ClassVar[float] = 1e-9
    """How far, in float64, the slots of a clip that is cut in pieces may be from those of the whole."""

    @abstractmethod
    def forward(self, tokens: Float[Tensor, "batch time tokens dim"], state: State | None = None) -> CoreOutput:
        """Slots of every step. `state` is that of an earlier call, or None at the start of a clip."""

    def slot_parameters(self) -> dict[str, int] | None:
        """The parameters that hold one row per slot, by name, with the axis of the slots.

        A core that declares them promises that permuting these rows permutes its output slots and changes nothing else.
        None (the default) promises nothing.
        """
        return None


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

    @abstractmethod
    def forward(self, slots: Float[Tensor, "batch time slots dim"], batch: VideoBatch | None = None) -> Decoded:
        """Decodes every step of `slots`; `batch` is there for decoders that need the true frames or camera rays."""


class Aggregation(nn.Module, ABC):
    """How inverted attention turns (assignment of tokens to slots, values) into one update per slot.

    A subclass takes `dim` as its first argument and gives every other one a default. One that must see the updates of
    all slots and steps before it knows their scale has the two methods of `slotbench.nn.aggregation.StagedAggregation`
    besides.

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
