"""Random crops of training clips, brought back to the size of the whole frame: SAVi++'s augmentation."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from slotbench.data.formats.images import resize_bilinear, resize_nearest
from slotbench.interfaces import VideoBatch

__all__ = ["Crop", "check_crop", "cropped", "draw_crop"]

_ASPECTS = (3 / 4, 4 / 3)
_TRIES = 100
_NO_MORE_TRUE = ("image_positions", "visibility", "camera_field_of_view")


class Crop(NamedTuple):
    """A rectangle of pixels."""

    top: int
    left: int
    height: int
    width: int


def check_crop(crop: float) -> float:
    """The least share of an image that crops keep, if it can be one."""
    if not 0 < crop <= 1:
        raise ValueError(f"crop is {crop}; expected the least share of an image that is kept, above 0 and at most 1")
    return crop


def draw_crop(rng: np.random.Generator, least: float, height: int, width: int) -> Crop:
    """A rectangle of at least a share `least` of the image, of an aspect ratio from 3/4 to 4/3; or the whole image.

    Source: SAVi++ (Elsayed et al., 2022), whose public configuration has `least` = 0.75.
    """
    for _ in range(_TRIES):
        area, aspect = rng.uniform(least, 1) * height * width, rng.uniform(*_ASPECTS)
        rows, cols = round((area / aspect) ** 0.5), round((area * aspect) ** 0.5)
        if rows <= height and cols <= width and rows * cols >= least * height * width:
            return Crop(int(rng.integers(height - rows + 1)), int(rng.integers(width - cols + 1)), rows, cols)
    return Crop(0, 0, height, width)


def cropped(batch: VideoBatch, crop: Crop) -> VideoBatch:
    """The part of every frame in the rectangle, in the size of the frame, with its masks, depth and boxes.

    A pixel of masks and depth takes what lies under its centre. Boxes are those of the part that is left, zeros where
    nothing is. `objects` loses entries that a crop makes untrue: positions in the image, visible pixels, the field of
    view. Codes are of whole frames, and gone too.
    """
    height, width = batch.frames.shape[-2:]
    rows, cols = slice(crop.top, crop.top + crop.height), slice(crop.left, crop.left + crop.width)
    frames = batch.frames[..., rows, cols]
    resized = resize_bilinear(frames.flatten(0, 1), height, width).unflatten(0, batch.frames.shape[:2])

    def nearest(values: Tensor) -> Tensor:
        return torch.from_numpy(resize_nearest(values[..., rows, cols].numpy(), height, width).copy())

    objects = {name: value for name, value in batch.objects.items() if name not in _NO_MORE_TRUE}
    objects |= {name: nearest(objects[name]) for name in ("depth", "depth_valid") if name in objects}
    if "bboxes" in objects:
        objects["bboxes"] = _boxes(objects["bboxes"], crop, height, width)
    masks = None if batch.masks is None else nearest(batch.masks)
    return replace(batch, frames=resized, masks=masks, codes=None, objects=objects)


def _boxes(boxes: Tensor, crop: Crop, height: int, width: int) -> Tensor:
    """Boxes (top, left, bottom, right, in 0..1) of what a crop leaves of them."""
    start = boxes.new_tensor([crop.top / height, crop.left / width] * 2)
    size = boxes.new_tensor([crop.height / height, crop.width / width] * 2)
    moved = ((boxes - start) / size).clamp(0, 1)
    left = (moved[..., 2:] > moved[..., :2]).all(-1, keepdim=True)
    return torch.where(left, moved, 0.0)
