"""What of depth is learned: its logarithm, its inverse, or depth itself, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["DEPTH_TRANSFORMS", "DepthTransform", "DepthTransformName"]

DepthTransformName = Literal["log", "inverse", "plain"]
"""ln(1 + d), 1 / d, or d."""


@dataclass(frozen=True)
class DepthTransform:
    """A monotonous map of depth, and the way back.

    Attributes:
        target: of depth above 0, what is learned.
        inverse: of what is learned, depth.
    """

    target: Callable[[Tensor], Tensor]
    inverse: Callable[[Tensor], Tensor]

    def depth(self, predicted: Float[Tensor, "*shape"], span: tuple[float, float]) -> Float[Tensor, "*shape"]:
        """Depth from a prediction, which may be any number; it is brought within the span.

        Example:
            >>> DEPTH_TRANSFORMS["inverse"].depth(torch.tensor([0.5, -1.0]), (0.1, 80.0))
            tensor([ 2., 80.])
        """
        # before the way back, where it is defined for them all; after it, where rounding may have left the span
        bounds = self.target(torch.tensor(span, dtype=torch.float64)).sort().values.tolist()
        return self.inverse(predicted.clamp(*bounds)).clamp(*span)

    def standardised(self, mean: float, std: float) -> DepthTransform:
        """The same, less `mean` and divided by `std`, which is above 0.

        Example:
            >>> log = DEPTH_TRANSFORMS["log"].standardised(2.0, 0.5)
            >>> log.target(torch.tensor([9.0]))
            tensor([0.6052])
        """
        return DepthTransform(
            lambda depth: (self.target(depth) - mean) / std, lambda target: self.inverse(target * std + mean)
        )


DEPTH_TRANSFORMS: dict[DepthTransformName, DepthTransform] = {
    "log": DepthTransform(torch.log1p, torch.expm1),
    "inverse": DepthTransform(torch.reciprocal, torch.reciprocal),
    "plain": DepthTransform(lambda depth: depth, lambda target: target),
}
"""Source: SAVi++ (Elsayed et al., 2022) learns ln(1 + d)."""
