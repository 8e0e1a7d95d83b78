"""From what a decoder painted to frames and to a loss: the three ways in which frames are learned."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

__all__ = ["FrameLoss", "LossSum", "at_least_float32", "frame_loss", "squash", "truncate_to_bytes"]

FrameLoss = Literal["bce", "mse", "l1_l2"]
"""What the decoder's output is and how it is compared: logits by cross-entropy, pixels by squared error, or pixels in
[-1, 1] after a tanh by absolute and squared error."""

LossSum = Literal["pixels", "rows", "frames"]
"""Mean over all pixels, sum over the channels and pixels of a row and mean over rows, or mean over the pixels of each
frame and sum over the frames of a clip."""

Frames = Float[Tensor, "batch time channels height width"]


def squash(painted: Frames, loss: FrameLoss) -> Frames:
    """Frames in [0, 1] from the decoder's output."""
    painted = at_least_float32(painted)
    if loss == "bce":
        return painted.sigmoid()
    return painted.clamp(0, 1) if loss == "mse" else (painted.tanh() + 1) / 2


def frame_loss(
    painted: Frames, true: Frames, loss: FrameLoss, l1_share: float = 0.5, loss_sum: LossSum = "pixels"
) -> Float[Tensor, ""]:
    """How far the decoder's output is from the true frames, in [0, 1].

    "l1_l2" is `l1_share` of the mean absolute error and the rest of the mean squared error, of tanh of the output and
    frames in [-1, 1]. A small object whose place is not yet known is painted black by the absolute error, where the
    tanh is flat; a share of 0 has no such threshold.

    Source: ConvS5 paper, Section 4.1, and its code ("rows"); Lin, 2022, Eq 3.30 ("frames").
    """
    painted = at_least_float32(painted)
    true = true.to(painted)
    if loss == "bce":
        value = F.binary_cross_entropy_with_logits(painted, true)
    elif loss == "mse":
        value = F.mse_loss(painted, true)
    else:
        painted, true = painted.tanh(), 2 * true - 1
        value = l1_share * F.l1_loss(painted, true) + (1 - l1_share) * F.mse_loss(painted, true)
    time, channels, width = painted.shape[1], painted.shape[2], painted.shape[4]
    return value * {"pixels": 1, "rows": channels * width, "frames": time}[loss_sum]


def truncate_to_bytes(frames: Float[Tensor, "*batch height width"]) -> Float[Tensor, "*batch height width"]:
    """Frames in [0, 1] at the next lower multiple of 1/255, as if stored by truncation; bytes stay as they are."""
    return torch.floor(frames * 255) / 255


def at_least_float32(x: Tensor) -> Tensor:
    """`x` in float32, or in float64 if it is that already."""
    return x if x.dtype == torch.float64 else x.float()
