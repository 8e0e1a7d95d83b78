"""LPIPS, a distance between frames that is fitted to human judgements of similarity.

Source: Zhang, Isola, Efros, Shechtman, Wang, "The Unreasonable Effectiveness of Deep Features as a Perceptual Metric",
CVPR 2018, Equation 1; version 0.1, which shifts and scales the colours first.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from slotbench.interfaces import unit_frames

__all__ = ["LPIPS", "feature_distance"]

# mean and deviation of ImageNet's colours in [-1, 1]
_SHIFT, _SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)

Frames = Float[Tensor, "*batch channels height width"] | UInt8[Tensor, "*batch channels height width"]

_EPS = 1e-10

_FRAMES_AT_ONCE = 64


def feature_distance(
    first: Sequence[Float[Tensor, "frames _channels _rows _cols"]],
    second: Sequence[Float[Tensor, "frames _channels _rows _cols"]],
    heads: Sequence[Float[Tensor, " _channels"]],
) -> Float[Tensor, " frames"]:
    """Weighted squared distance of features that have unit length at every position, mean over positions, summed.

    Example:
        >>> one, two = torch.tensor([3.0, 0.0]).view(1, 2, 1, 1), torch.tensor([0.0, 7.0]).view(1, 2, 1, 1)
        >>> feature_distance([one], [two], [torch.tensor([0.25, 0.5])])
        tensor([0.7500])
    """
    total = torch.zeros(len(first[0]), dtype=first[0].dtype, device=first[0].device)
    for a, b, head in zip(first, second, heads, strict=True):
        difference = (_unit(a) - _unit(b)).square()
        total = total + torch.einsum("fchw,c->fhw", difference, head).mean(dim=(1, 2))
    return total


class LPIPS(nn.Module):
    """Perceptual distance of each predicted frame from the true one: 0 for equal frames.

    Values of different networks do not compare. The caller provides network and heads.
    """

    shift: Float[Tensor, "3 1 1"]
    scale: Float[Tensor, "3 1 1"]

    def __init__(self, network: nn.Module, heads: Sequence[Float[Tensor, " _channels"]]) -> None:
        super().__init__()
        self.network = network
        self.heads = nn.ParameterList([nn.Parameter(head, requires_grad=False) for head in heads])
        self.register_buffer("shift", torch.tensor(_SHIFT).view(3, 1, 1), persistent=False)
        self.register_buffer("scale", torch.tensor(_SCALE).view(3, 1, 1), persistent=False)

    def forward(
        self,
        predicted: Frames,
        true: Frames,
    ) -> Float[Tensor, "*batch"]:
        """The distance of each frame; frames are in [0, 1] or bytes, of one channel or three.

        Computed without autocast, 64 frames at a time.
        """
        shape = predicted.shape
        pairs = zip(
            *(frames.reshape(-1, *shape[-3:]).split(_FRAMES_AT_ONCE) for frames in (predicted, true)), strict=True
        )
        with torch.autocast(predicted.device.type, enabled=False):
            parts = [feature_distance(self._features(a), self._features(b), list(self.heads)) for a, b in pairs]
        return torch.cat(parts).view(shape[:-3])

    def _features(self, frames: Tensor) -> list[Tensor]:
        if frames.shape[1] not in (1, 3):
            raise ValueError(f"LPIPS compares grey frames or RGB frames, and these have {frames.shape[1]} channels")
        # one grey channel becomes three by broadcasting
        return self.network((2 * unit_frames(frames).to(self.scale) - 1 - self.shift) / self.scale)


def _unit(features: Tensor) -> Tensor:
    squared = features.square().sum(dim=1, keepdim=True)
    # the root has no gradient at 0, where every feature is 0
    length = torch.where(squared > 0, squared, 1).sqrt() * (squared > 0)
    return features / (length + _EPS)
