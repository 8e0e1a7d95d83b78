"""Errors of predicted depth over many pixels, from sums of their terms."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from slotbench.metrics.distinct import DistinctMetric

__all__ = ["DEPTH_ERRORS", "DepthErrors"]

DEPTH_ERRORS = ("depth_abs_rel", "depth_rmse", "depth_log_rmse")
"""The errors, in the order of `DepthErrors.compute`."""


class DepthErrors(DistinctMetric):
    """Errors of depth over every counted pixel that all processes have seen; sums alone are kept.

        depth_abs_rel   mean of |p - d| / d
        depth_rmse      root of the mean of (p - d)^2, in the unit of d
        depth_log_rmse  root of the mean of (ln p - ln d)^2

    Each mean is over all counted pixels together, not first over those of an image, so that a frame with few of them
    (sparse depth, small objects) has no more weight than its pixels.

    Source: Eigen et al., "Depth Map Prediction from a Single Image using a Multi-Scale Deep Network", NeurIPS 2014,
    Section 4.2.

    Example:
        >>> errors = DepthErrors()
        >>> errors.update(torch.tensor([2.0, 9.0]), torch.tensor([4.0, 3.0]), torch.tensor([True, False]))
        >>> print(*(round(value.item(), 3) for value in errors.compute().values()))
        0.5 2.0 0.693
    """

    higher_is_better = False
    is_differentiable = False
    full_state_update = False
    sums: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("sums", torch.zeros(len(DEPTH_ERRORS), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.tensor(0), dist_reduce_fx="sum")

    def update(
        self, predicted: Float[Tensor, "*shape"], true: Float[Tensor, "*shape"], counted: Bool[Tensor, "*shape"]
    ) -> None:
        """Adds pixels."""
        p, d = (values.detach()[counted].double() for values in (predicted, true))
        terms = ((p - d).abs() / d, (p - d).square(), (p.log() - d.log()).square())
        self.sums += torch.stack([term.sum() for term in terms])
        self.count += len(d)

    def compute(self) -> dict[str, Float[Tensor, ""]]:
        """Every error by name; nan before any pixel."""
        relative, square, log_square = self.sums / self.count
        return dict(zip(DEPTH_ERRORS, (relative, square.sqrt(), log_square.sqrt()), strict=True))
