"""What slots are before they have seen anything."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from slotbench.nn.parameters import without_decay

__all__ = ["GaussianSlots", "LearnedSlots"]


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

    def forward(self, batch: int) -> Float[Tensor, "batch slots dim"]:
        """The learned vectors, for each of `batch` clips."""
        return self.slots.expand(batch, -1, -1)


class GaussianSlots(nn.Module):
    """Slots drawn from one normal distribution with learned mean and deviation per channel.

    Every call draws anew. Who goes on with a clip must keep what was drawn for it, and give it to all steps.

    Source: PSB (Singh et al., 2024), Appendix D.1.1; the deviation is the exponential of a parameter, as in the public
    code of STEVE, so that it stays positive.

    Args:
        num_slots: slots.
        dim: width of a slot.

    Raises:
        ValueError: `num_slots` below 1.
    """

    def __init__(self, num_slots: int, dim: int):
        super().__init__()
        _check(num_slots)
        self.num_slots = num_slots
        self.mean = nn.Parameter(torch.zeros(dim))
        self.log_deviation = nn.Parameter(torch.zeros(dim))

    def forward(self, batch: int) -> Float[Tensor, "batch slots dim"]:
        """New slots for each of `batch` clips, from torch's global generator."""
        shape = (batch, self.num_slots, self.mean.shape[0])
        noise = torch.randn(shape, device=self.mean.device, dtype=self.mean.dtype)
        return self.mean + self.log_deviation.exp() * noise


def _check(num_slots: int) -> None:
    if num_slots < 1:
        raise ValueError(f"num_slots={num_slots}: give at least 1 slot")
