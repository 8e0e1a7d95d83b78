"""Pixels of frames: bytes in 0..255 become floats in [0, 1] here, and what is neither is refused."""

from __future__ import annotations

import torch
from torch import Tensor

from slotbench.errors import UserError

__all__ = ["check_pixels", "check_unit_range", "unit_frames"]

_BEYOND = 0.01


def unit_frames(frames: Tensor) -> Tensor:
    """Frames of bytes as floats in [0, 1]; frames that are floats stay as they are.

    Raises:
        UserError: they are of another type than bytes (uint8) and floats.

    Example:
        >>> unit_frames(torch.tensor([0, 51, 255], dtype=torch.uint8))
        tensor([0.0000, 0.2000, 1.0000])
    """
    if frames.is_floating_point():
        return frames
    if frames.dtype != torch.uint8:
        raise UserError(f"frames are of {frames.dtype}; expected bytes (uint8) in 0..255, or floats in [0, 1]")
    return frames.float() / 255


def check_unit_range(frames: Tensor) -> None:
    """Refuses floats that are not in [0, 1], up to 0.01 beyond, as those in 0..255 are; it reads every pixel.

    Raises:
        UserError: a pixel is outside, or no number.
    """
    if not frames.numel():
        return
    low, high = (float(value) for value in frames.detach().aminmax())
    if not -_BEYOND <= low <= high <= 1 + _BEYOND:
        raise UserError(
            f"frames go from {low:g} to {high:g}; expected floats in [0, 1], or bytes (uint8) in 0..255: divide "
            "by 255, undo a normalisation, or clamp what resizing overshoots"
        )


def check_pixels(frames: Tensor) -> None:
    """`check_unit_range` where frames are pixels: with other numbers of channels than 1 and 3 they are features.

    Raises:
        UserError: a pixel is outside, or no number.
    """
    if frames.is_floating_point() and frames.shape[-3] in (1, 3):
        check_unit_range(frames)
