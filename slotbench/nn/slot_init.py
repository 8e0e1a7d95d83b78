"""Initial slots: learned vectors, draws from a learned distribution, or what an MLP makes of given boxes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from slotbench.errors import UserError
from slotbench.interfaces import SlotSpec, VideoBatch
from slotbench.nn.parameters import without_decay

__all__ = [
    "Condition",
    "ConditionedSlots",
    "GaussianSlots",
    "InitialisedSlots",
    "LearnedSlots",
    "SlotInit",
    "clip_noise",
    "clip_numbers",
    "drawn_by_clip",
    "first_boxes",
    "initial_slots",
]

SlotInit = Literal["learned", "gaussian"]
"""One learned vector per slot, or a draw for each clip from one learned distribution."""

Condition = Literal["none", "boxes", "centres"]
"""What slots know of the objects in a clip's first frame: nothing, their boxes, or the boxes' centres."""

_CLIPS: ContextVar[Sequence[int] | None] = ContextVar("clips", default=None)


@contextmanager
def drawn_by_clip(clips: Sequence[int]) -> Iterator[None]:
    """Within it, the slots drawn for a clip depend on the clip's number alone.

    They do not depend on what else is in the batch, or on the number of processes and the device, as draws from torch's
    global generator do.
    """
    token = _CLIPS.set(clips)
    try:
        yield
    finally:
        _CLIPS.reset(token)


def clip_numbers(batch: int) -> Sequence[int] | None:
    """The numbers that `drawn_by_clip` has named, or None outside of it."""
    clips = _CLIPS.get()
    if clips is not None and len(clips) != batch:
        raise ValueError(f"drawn_by_clip has the numbers of {len(clips)} clips, and the batch has {batch}")
    return clips


def clip_noise(batch: int, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Standard normal noise "batch *shape", from torch's global generator, or for each clip under `drawn_by_clip`."""
    clips = clip_numbers(batch)
    if clips is None:
        return torch.randn(batch, *shape, device=like.device, dtype=like.dtype)
    drawn = [torch.randn(shape, generator=torch.Generator().manual_seed(clip)) for clip in clips]
    return torch.stack(drawn).to(like)


class LearnedSlots(nn.Module):
    """One learned vector per slot, the same for every clip.

    Source: PSB (Singh et al., 2024), Appendix D.1.1; the truncated normal start is that of the public code. It is also
    the learned initialisation of SlotContrast (Manasyan et al., 2025; `FixedLearnedInit`), which reads no frame.

    Args:
        num_slots: slots.
        dim: width of a slot.
    """

    def __init__(self, num_slots: int, dim: int):
        super().__init__()
        _check(num_slots)
        self.slots = without_decay(nn.Parameter(nn.init.trunc_normal_(torch.empty(num_slots, dim), std=1.0)))

    @property
    def num_slots(self) -> int:
        """How many vectors there are; it cannot change."""
        return self.slots.shape[0]

    @num_slots.setter
    def num_slots(self, value: int) -> None:
        if value != self.slots.shape[0]:
            raise ValueError(
                f"num_slots={value}, but the slots are learned, one vector each, and there are {self.slots.shape[0]}: "
                "train a core with slot_init='gaussian', which draws any number"
            )

    def forward(self, batch: int) -> Float[Tensor, "batch slots dim"]:
        """The learned vectors, for each of `batch` clips."""
        return self.slots.expand(batch, -1, -1)


class _AnyNumber(nn.Module):
    """Slots that share their parameters, so that there may be any number of them.

    Args:
        num_slots: slots of the next call; it may be set anew.
    """

    def __init__(self, num_slots: int):
        super().__init__()
        self.num_slots = num_slots

    @property
    def num_slots(self) -> int:
        """How many slots the next call gives."""
        return self._num_slots

    @num_slots.setter
    def num_slots(self, value: int) -> None:
        _check(value)
        self._num_slots = value


class GaussianSlots(_AnyNumber):
    """Slots drawn from one normal distribution with learned mean and deviation per channel.

    Every call draws anew. To continue a clip, keep what was drawn for it and give it to all steps. Since all
    slots are drawn from one distribution, `num_slots` may be set to another number at any time.

    Source: Slot Attention (Locatello et al., 2020), Section 2.1; PSB (Singh et al., 2024), Appendix D.1.1; the
    deviation is the exponential of a parameter, as in the public code of STEVE, so that it stays positive.

    Args:
        num_slots: slots.
        dim: width of a slot.
    """

    def __init__(self, num_slots: int, dim: int):
        super().__init__(num_slots)
        self.mean = nn.Parameter(torch.zeros(dim))
        self.log_deviation = nn.Parameter(torch.zeros(dim))

    def forward(self, batch: int) -> Float[Tensor, "batch slots dim"]:
        """New slots for each of `batch` clips, from torch's global generator, or under `drawn_by_clip`."""
        return self.mean + self.log_deviation.exp() * self._noise(batch)

    def _noise(self, batch: int) -> Tensor:
        return clip_noise(batch, (self.num_slots, self.mean.shape[0]), self.mean)


class ConditionedSlots(_AnyNumber):
    """One slot for the background and one for each object of a clip's first frame, by an MLP of the object's box.

    The background has a box of zeros, as have slots for which there is no object, and objects that are hidden. The MLP
    is the same for all slots, so `num_slots` may be set to another number at any time.

    Source: SAVi (Kipf et al., 2022), Section 2; the background's box and the order are those of SAVi++'s public code.

    Args:
        num_slots: slots; objects that are more than that, less one, are left out, the last first.
        dim: width of a slot.
        kind: "boxes" or "centres".
        hidden_dim: hidden width of the MLP.
    """

    def __init__(self, num_slots: int, dim: int, kind: Condition, hidden_dim: int):
        super().__init__(num_slots)
        if kind not in ("boxes", "centres"):
            raise ValueError(f"no condition named {kind!r}; choose one of {', '.join(get_args(Condition))}")
        self.kind = kind
        inputs = 4 if kind == "boxes" else 2
        self.mlp = nn.Sequential(nn.Linear(inputs, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, dim))

    def forward(self, batch: int) -> Float[Tensor, "batch slots dim"]:
        """There are no slots without boxes."""
        raise UserError(
            f"slots that begin with the {self.kind} of a clip's first frame need them, and this task gives the core "
            "tokens alone: choose SlotAutoencoding, CodeAutoencoding or DepthAutoencoding, or set condition to none"
        )

    def from_first_frame(self, batch: VideoBatch) -> Float[Tensor, "batch slots dim"]:
        """The slots of clips."""
        boxes = first_boxes(batch, self.num_slots - 1)
        boxes = nn.functional.pad(boxes, (0, 0, 1, 0)).to(next(self.parameters()))
        if self.kind == "centres":
            boxes = (boxes[..., :2] + boxes[..., 2:]) / 2
        return self.mlp(boxes)


def first_boxes(batch: VideoBatch, count: int) -> Float[Tensor, "batch count 4"]:
    """Boxes (top, left, bottom, right, in 0..1) of the objects in the first frame of each clip; zeros for none.

    They are those of the data, `objects["bboxes"]`, or drawn around the objects in `masks`, in the order of their ids.
    """
    given = batch.objects.get("bboxes")
    if given is not None and given.dim() == 4:
        found = given[:, 0, :count].float()
    elif batch.masks is not None and batch.masks.dim() == 4:
        found = batch.masks.new_zeros(len(batch), count, 4, dtype=torch.float32)
        for clip, mask in enumerate(batch.masks[:, 0]):
            ids = mask.unique()
            for place, number in enumerate(ids[ids > 0][:count]):
                found[clip, place] = _box(mask == number)
    else:
        raise UserError(
            "slots are to begin with the boxes of a clip's first frame, and this data has neither boxes nor masks of "
            "one camera: choose data that does, such as MOVi or MOViLike, or set the core's condition to none"
        )
    return nn.functional.pad(found, (0, 0, 0, count - found.shape[1]))


def _box(mask: Tensor) -> Tensor:
    """The box around the pixels of a mask "height width" that has some."""
    edges = []
    for axis in (1, 0):
        there = mask.any(axis).nonzero()[:, 0]
        edges.append((there[0] / mask.shape[1 - axis], (there[-1] + 1) / mask.shape[1 - axis]))
    (top, bottom), (left, right) = edges
    return torch.stack([top, left, bottom, right])


def initial_slots(kind: SlotInit, num_slots: int, dim: int) -> LearnedSlots | GaussianSlots:
    """The initialisation of this name."""
    if kind == "learned":
        return LearnedSlots(num_slots, dim)
    if kind == "gaussian":
        return GaussianSlots(num_slots, dim)
    raise ValueError(f"no slot_init named {kind!r}; choose one of {', '.join(get_args(SlotInit))}")


class InitialisedSlots:
    """Base of cores whose slots start from a `slot_init`: the number of slots, and what tells slots apart.

    Attributes:
        slot_init: where the slots start.
        slot_spec: the output of the core.
    """

    slot_init: LearnedSlots | GaussianSlots | ConditionedSlots
    slot_spec: SlotSpec

    @property
    def num_slots(self) -> int:
        """Slots per step. It may be set to another number, after training too, where slots are drawn.

        A clip that has begun keeps the slots that it has.
        """
        return self.slot_spec.num_slots

    @num_slots.setter
    def num_slots(self, value: int) -> None:
        self.slot_init.num_slots = value
        self.slot_spec = replace(self.slot_spec, num_slots=value)

    @property
    def draws_slots(self) -> bool:
        """Slots are drawn for each clip."""
        return isinstance(self.slot_init, GaussianSlots)

    def slot_parameters(self) -> dict[str, int] | None:
        """The learned initial slots, if any: a permutation of them permutes the output."""
        return {"slot_init.slots": 0} if isinstance(self.slot_init, LearnedSlots) else None


def _check(num_slots: int) -> None:
    if num_slots < 1:
        raise ValueError(f"num_slots={num_slots}: give at least 1 slot")
