"""Mean depth of the training clips, for the baselines of a model's predictions."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

__all__ = ["PIXELS", "DepthMeans", "counted_pixels"]

PIXELS = ("all", "objects")
"""The groups of pixels that depth is scored on: all that have depth, and those of them that are an object's."""

Depth = Float[Tensor, "batch time height width"]
Counted = Mapping[str, Bool[Tensor, "batch time height width"]]


def counted_pixels(valid: Bool[Tensor, "batch time height width"], masks: Tensor | None) -> Counted:
    """The pixels of each group of `PIXELS`; of objects only where the data has masks."""
    return {"all": valid} if masks is None else {"all": valid, "objects": valid & (masks > 0)}


class DepthMeans(nn.Module):
    """Sums of depth over all clips that a training has read: per pixel of the image, of each group of pixels.

    They are buffers, so a checkpoint brings them along, and an evaluation of it has the same baselines.

    Attributes:
        span: the smallest and the largest depth among them; the largest first before any.
    """

    sums: Float[Tensor, "groups height width"]
    counts: Float[Tensor, "groups height width"]
    span: Float[Tensor, " 2"]

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        for name in ("sums", "counts"):
            self.register_buffer(name, torch.zeros(len(PIXELS), height, width, dtype=torch.float64))
        self.register_buffer("span", torch.tensor([float("inf"), float("-inf")]))

    def reset(self) -> None:
        """Forgets every clip."""
        self.sums.zero_()
        self.counts.zero_()
        self.span.copy_(torch.tensor([float("inf"), float("-inf")]))

    @torch.no_grad()
    def update(self, depth: Depth, counted: Counted) -> None:
        """Adds clips: depth, and which pixels count in each group."""
        for place, group in enumerate(PIXELS):
            if group in counted:
                pixels = counted[group]
                self.sums[place] += torch.where(pixels, depth, 0).double().sum((0, 1))
                self.counts[place] += pixels.sum((0, 1))
        within = depth[counted["all"]]
        if len(within):
            low, high = within.aminmax()
            self.span.copy_(torch.stack([self.span[0].minimum(low), self.span[1].maximum(high)]))

    def baselines(self, group: str) -> dict[str, Float[Tensor, "height width"]]:
        """The constant that is the mean depth, and the mean image, of the pixels of a group; nothing before any."""
        sums, counts = (values[PIXELS.index(group)] for values in (self.sums, self.counts))
        if not counts.any():
            return {}
        constant = sums.sum() / counts.sum()
        image = torch.where(counts > 0, sums / counts.clamp(min=1), constant)
        return {"constant": constant.expand_as(image), "mean image": image}
