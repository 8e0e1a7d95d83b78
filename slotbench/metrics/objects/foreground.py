"""How well predicted frames cover what is bright in the true ones: soft precision, recall and F1.

Source: Lin, "Modular Neural Networks for Video Prediction" (2022), figures 4.16, B.3 and B.5, as its author's code has
it.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from slotbench.interfaces import unit_frames
from slotbench.metrics.distinct import DistinctMetric

__all__ = ["ForegroundF1", "soft_counts", "soft_f1"]

_EPSILON = 1e-7

Frames = Float[Tensor, "*batch channels height width"] | UInt8[Tensor, "*batch channels height width"]


def soft_counts(predicted: Frames, true: Frames) -> Float[Tensor, "*batch 3"]:
    """Soft true positives, false positives and false negatives: sums of y p, (1 - y) p and y (1 - p) over a frame.

    Example:
        >>> soft_counts(torch.tensor([[[0.5, 1.0]]]), torch.tensor([[[1.0, 0.0]]]))
        tensor([0.5000, 1.0000, 0.5000], dtype=torch.float64)
    """
    p, y = unit_frames(predicted).double(), unit_frames(true).double()
    both = (y * p).sum((-3, -2, -1))
    return torch.stack([both, p.sum((-3, -2, -1)) - both, y.sum((-3, -2, -1)) - both], dim=-1)


def soft_f1(counts: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch"]:
    """F1 of true positives, false positives and false negatives, every denominator with 1e-7 more."""
    found, invented, missed = counts.unbind(-1)
    precision = found / (found + invented + _EPSILON)
    recall = found / (found + missed + _EPSILON)
    return 2 * precision * recall / (precision + recall + _EPSILON)


class ForegroundF1(DistinctMetric):
    """Soft F1 of each predicted frame, from counts over all clips, and its mean over the horizon.

    The author's is the mean over batches of the F1 of a batch; with one batch it is the same.

    Example:
        >>> metric = ForegroundF1(1)
        >>> metric.update(torch.ones(2, 1, 1, 2, 2), torch.tensor([1.0, 0.0]).view(1, 1, 1, 2, 1).expand(2, 1, 1, 2, 2))
        >>> metric.compute()
        tensor(0.6667, dtype=torch.float64)
    """

    higher_is_better = True
    is_differentiable = False
    full_state_update = False
    counts: Tensor

    def __init__(self, horizon: int) -> None:
        super().__init__()
        self.add_state("counts", torch.zeros(horizon, 3, dtype=torch.float64), dist_reduce_fx="sum")

    def update(
        self,
        predicted: Float[Tensor, "batch time channels height width"],
        true: Float[Tensor, "batch time channels height width"],
        first: int = 0,
    ) -> None:
        """Adds some clips' frames, the first of which is number `first` of the horizon."""
        found = soft_counts(predicted, true).sum(0)
        self.counts[first : first + len(found)] += found

    def compute(self) -> Float[Tensor, ""]:
        """The mean over the horizon; 0 before any clip."""
        return soft_f1(self.counts).mean()
