"""Frames and masks in another size."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor
from torch.nn import functional as F

__all__ = ["resize_bilinear", "resize_nearest"]


def resize_bilinear(
    frames: UInt8[Tensor, "batch channels height width"], height: int, width: int, antialias: bool = True
) -> UInt8[Tensor, "batch channels new_height new_width"]:
    """Frames of `height` x `width` pixels by bilinear interpolation, rounded.

    Args:
        frames: bytes.
        height: rows of the result.
        width: columns of the result.
        antialias: whether a pixel of a smaller picture is a mean over all that it covers, or of four pixels only.
    """
    if frames.shape[-2:] == (height, width):
        return frames
    if not frames.shape[-2] or not frames.shape[-1]:
        raise ValueError(f"a frame of {frames.shape[-2]} x {frames.shape[-1]} pixels has nothing to be resized")
    resized = F.interpolate(frames.float(), (height, width), mode="bilinear", antialias=antialias, align_corners=False)
    return resized.round_().clamp_(0, 255).to(torch.uint8)


def resize_nearest(masks: np.ndarray, height: int, width: int) -> np.ndarray:
    """Masks "... height width" of another size: a pixel takes the id that lies under its centre."""
    rows, columns = masks.shape[-2:]
    if (rows, columns) == (height, width):
        return masks
    if not rows or not columns:
        raise ValueError(f"a mask of {rows} x {columns} pixels has nothing to be resized")
    down = (2 * np.arange(height) + 1) * rows // (2 * height)
    across = (2 * np.arange(width) + 1) * columns // (2 * width)
    return masks[..., down[:, None], across]
