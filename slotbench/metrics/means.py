"""Means over the batches of all processes."""

from __future__ import annotations

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from slotbench.metrics.distinct import DistinctMetric

__all__ = ["Mean"]


class Mean(DistinctMetric):
    """Mean in float64, which is the same for any number of processes and any size of their batches.

    Lightning's `self.log(..., sync_dist=True)` averages the means of the processes, which differs where these have
    different numbers of clips.

    Example:
        >>> mean = Mean()
        >>> mean.update(torch.tensor(1.0), count=3)  # what is already a mean over three clips
        >>> mean.update(torch.tensor([4.0, 6.0]))
        >>> mean.compute()
        tensor(2.6000, dtype=torch.float64)
    """

    higher_is_better = None
    is_differentiable = False
    full_state_update = False
    total: Tensor
    number: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.tensor(0.0, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("number", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, values: Float[Tensor, "*shape"] | Integer[Tensor, "*shape"], count: int = 1) -> None:
        """Adds values, each with the weight `count`."""
        self.total += values.detach().double().sum() * count
        self.number += values.numel() * count

    def compute(self) -> Float[Tensor, ""]:
        """The mean; nan before any value."""
        return self.total / self.number
