"""Initial slots: learned vectors, or draws from a learned distribution."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from slotbench.interfaces import SlotSpec
from slotbench.nn.parameters import without_decay

__all__ = [
    "GaussianSlots",
    "InitialisedSlots",
    "LearnedSlots",
    "SlotInit",
    "clip_numbers",
    "drawn_by_clip",
    "initial_slots",
]

SlotInit = Literal["learned", "gaussian"]
"""One learned vector per slot, or a draw for each clip from one learned distribution."""

_CLIPS: ContextVar[Sequence[int] | None] = ContextVar("clips", default=None)


@contextmanager
def drawn_by_clip(clips: Sequence[int]) -> Iterator[None]:
    """Within it, the slots drawn for a clip depend on the clip's number alone.

    They do not depend on what else is in the batch, or on the number of processes and the device, as draws from torch's
    global generator do.

    Args:
        clips: the numbers of the clips of the batch.
    """
    token = _CLIPS.set(clips)
    try:
        yield
    finally:
        _CLIPS.reset(token)


def clip_numbers(batch: int) -> Sequence[int] | None:
    """The numbers that `drawn_by_clip` has named, or None outside of it.

    Raises:
        ValueError: they are not `batch` many.
    """
    clips = _CLIPS.get()
    if clips is not None and len(clips) != batch:
        raise ValueError(f"drawn_by_clip has the numbers of {len(clips)} clips, and the batch has {batch}")
    return clips


class LearnedSlots(nn.Module):
    """One learned vector per slot, the same for every clip.

    Source: PSB (Singh et al., 2024), Appendix D.1.1; the truncated normal start is that of the public code.

    Args:
        num_slots: slots.
        dim: width of a slot.

    Raises:
        ValueError: `num_slots` below 1.
    """

    def __init__(self, num_slots: int, dim: int):
        super().__init__()
        _check(num_slots)
        self.slots = without_decay(nn.Parameter(nn.init.trunc_normal_(torch.empty(num_slots, dim), std=1.0)))

    @property
    def num_slots(self) -> int:
        """How many vectors there are; it cannot change.

        Raises:
            ValueError: set to another number.
        """
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


class GaussianSlots(nn.Module):
    """Slots drawn from one normal distribution with learned mean and deviation per channel.

    Every call draws anew. To continue a clip, keep what was drawn for it and give it to all steps. Since all
    slots are drawn alike, `num_slots` may be set to another number at any time.

    Source: Slot Attention (Locatello et al., 2020), Section 2.1; PSB (Singh et al., 2024), Appendix D.1.1; the
    deviation is the exponential of a parameter, as in the public code of STEVE, so that it stays positive.

    Args:
        num_slots: slots.
        dim: width of a slot.

    Raises:
        ValueError: `num_slots` below 1.
    """

    def __init__(self, num_slots: int, dim: int):
        super().__init__()
        self.num_slots = num_slots
        self.mean = nn.Parameter(torch.zeros(dim))
        self.log_deviation = nn.Parameter(torch.zeros(dim))

    @property
    def num_slots(self) -> int:
        """How many slots the next call draws.

        Raises:
            ValueError: set to less than 1.
        """
        return self._num_slots

    @num_slots.setter
    def num_slots(self, value: int) -> None:
        _check(value)
        self._num_slots = value

    def forward(self, batch: int) -> Float[Tensor, "batch slots dim"]:
        """New slots for each of `batch` clips, from torch's global generator, or as `drawn_by_clip` says.

        Raises:
            ValueError: `drawn_by_clip` has named another number of clips.
        """
        return self.mean + self.log_deviation.exp() * self._noise(batch)

    def _noise(self, batch: int) -> Tensor:
        shape, clips = (self.num_slots, self.mean.shape[0]), clip_numbers(batch)
        if clips is None:
            return torch.randn(batch, *shape, device=self.mean.device, dtype=self.mean.dtype)
        return torch.stack([torch.randn(shape, generator=torch.Generator().manual_seed(clip)) for clip in clips]).to(
            self.mean
        )


def initial_slots(kind: SlotInit, num_slots: int, dim: int) -> LearnedSlots | GaussianSlots:
    """The initialisation of this name.

    Raises:
        ValueError: an unknown `kind`, or `num_slots` below 1.
    """
    if kind == "learned":
        return LearnedSlots(num_slots, dim)
    if kind == "gaussian":
        return GaussianSlots(num_slots, dim)
    raise ValueError(f"no slot_init named {kind!r}; choose one of {', '.join(get_args(SlotInit))}")


class InitialisedSlots:
    """What cores share whose slots start from a `slot_init`: the number of slots, and what tells slots apart.

    Attributes:
        slot_init: where the slots start.
        slot_spec: what the core hands over.
    """

    slot_init: LearnedSlots | GaussianSlots
    slot_spec: SlotSpec

    @property
    def num_slots(self) -> int:
        """Slots per step. It may be set to another number, after training too, where slots are drawn.

        A clip that has begun keeps the slots that it has.

        Raises:
            ValueError: set to less than 1, or to another number where slots are learned.
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
        """The learned initial slots: everything after them treats all slots alike. None where slots are drawn."""
        return None if self.draws_slots else {"slot_init.slots": 0}


def _check(num_slots: int) -> None:
    if num_slots < 1:
        raise ValueError(f"num_slots={num_slots}: give at least 1 slot")
