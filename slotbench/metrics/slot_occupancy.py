"""Slot occupancy: live slots, the share of the largest slot, and collapsed clips."""

from __future__ import annotations

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from slotbench.metrics.contingency import integer_ids
from slotbench.metrics.distinct import DistinctMetric

__all__ = ["SlotOccupancy", "slot_shares"]


def slot_shares(labels: Integer[Tensor, "batch time *shape"], num_slots: int) -> Float[Tensor, "batch slots"]:
    """Share of a clip's pixels that each slot wins."""
    flat = integer_ids(labels, "labels").flatten(1).long()
    if flat.numel() and int(flat.max()) > num_slots:
        raise ValueError(
            f"there is a label {int(flat.max())}; expected slots 0 to {num_slots - 1}, or {num_slots} for none"
        )
    counts = torch.zeros(len(flat), num_slots + 1, dtype=torch.float64, device=flat.device)
    counts.scatter_add_(1, flat, torch.ones_like(flat, dtype=torch.float64))
    return counts[:, :num_slots] / max(1, flat.shape[1])


class SlotOccupancy(DistinctMetric):
    """Three means over clips: share of pixels of the largest slot, number of live slots, and share of collapsed clips.

    A slot is alive if it wins at least `live_share` of the clip's pixels. A clip is collapsed if one slot has more than
    `collapse_share` of it: everything is then in one slot, which the squared error shows late or never.

    Example:
        >>> metric = SlotOccupancy()
        >>> metric.update(torch.tensor([[[[0, 0, 0, 2]]]]), num_slots=4)
        >>> {name: value.item() for name, value in metric.compute().items()}
        {'largest_slot': 0.75, 'live_slots': 2.0, 'collapsed': 0.0}
    """

    is_differentiable = False
    full_state_update = False
    largest: Tensor
    live: Tensor
    collapsed: Tensor
    clips: Tensor

    def __init__(self, live_share: float = 0.001, collapse_share: float = 0.95) -> None:
        super().__init__()
        self.live_share = live_share
        self.collapse_share = collapse_share
        for name in ("largest", "live", "collapsed", "clips"):
            self.add_state(name, torch.tensor(0.0, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, labels: Integer[Tensor, "batch time *shape"], num_slots: int) -> None:
        """Adds clips, as the winning slot of every pixel."""
        shares = slot_shares(labels, num_slots)
        largest = shares.amax(1)
        self.largest += largest.sum()
        self.live += (shares >= self.live_share).sum()
        self.collapsed += (largest > self.collapse_share).sum()
        self.clips += len(shares)

    def compute(self) -> dict[str, Float[Tensor, ""]]:
        """The means, by name; nan before any clip."""
        return {
            "largest_slot": self.largest / self.clips,
            "live_slots": self.live / self.clips,
            "collapsed": self.collapsed / self.clips,
        }
