"""Frames, classes, slots and objects as images, uint8 arrays "height width 3".

A slot has the colour of its number in `SLOT_COLOURS`, over time, over clips and over the life of a run. A true object
has the colour of the slot that it is matched with, so that where the two look the same the model is right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Integer, UInt8
from PIL import Image
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from slotbench.interfaces import unit_frames
from slotbench.metrics.contingency import contingency
from slotbench.metrics.segmentation import pairwise_iou

__all__ = [
    "IN_VIDEO",
    "SLOT_COLOURS",
    "Colour",
    "Painted",
    "evenly_spaced",
    "match_slots",
    "paint_alone",
    "paint_classes",
    "paint_frame",
    "paint_objects",
    "paint_overlay",
    "paint_slots",
    "paint_slots_over",
    "resize",
    "size_within",
    "slot_colour",
    "slots_of_clusters",
]

Colour = tuple[int, int, int]
Painted = UInt8[np.ndarray, "_ _ 3"]
"""An image: red, green and blue of 8 bits."""

SLOT_COLOURS = np.array(
    [
        (230, 85, 60),
        (60, 130, 220),
        (70, 175, 90),
        (240, 190, 60),
        (150, 100, 200),
        (80, 200, 200),
        (235, 130, 190),
        (160, 120, 80),
        (150, 200, 80),
        (120, 120, 160),
        (255, 150, 110),
        (110, 160, 130),
        (45, 75, 0),
        (135, 0, 60),
        (120, 45, 0),
        (15, 0, 225),
        (195, 195, 255),
        (0, 105, 90),
        (75, 60, 105),
        (0, 255, 180),
        (135, 135, 0),
        (240, 0, 105),
        (105, 195, 255),
        (0, 75, 120),
    ],
    dtype=np.uint8,
)
"""A colour for each slot, reused in turn past the 24th. Each of the second twelve was chosen far from all before it."""

IN_VIDEO = (128, 224)
"""Limits of the longer side of an image in a video, in pixels, for `size_within`."""

_BACKGROUND, _UNMATCHED = (45, 45, 45), (225, 225, 225)
_OPACITY, _OUTLINE, _EMPTY = 0.6, 0.3, 0.85


def paint_frame(
    frame: Float[Tensor, "channels height width"] | UInt8[Tensor, "channels height width"],
) -> Painted:
    """A frame in [0, 1], or of bytes, with one or three channels; of any other number, the mean of the channels."""
    frame = unit_frames(frame)
    shown = frame if len(frame) == 3 else frame.mean(0, keepdim=True).expand(3, -1, -1)
    return (shown.float().clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()


def paint_overlay(
    true: Float[Tensor, "channels height width"], predicted: Float[Tensor, "channels height width"]
) -> Painted:
    """Two frames in [0, 1] over one another: the true one green, the predicted one red, yellow where both are."""
    red, green = (frame.mean(0) for frame in (predicted, true))
    return paint_frame(torch.stack([red, green, torch.zeros_like(red)]))


def paint_alone(image: Float[Tensor, "channels height width"], mask: Float[Tensor, "height width"]) -> Painted:
    """A slot's own image where its mask is, light grey where it is not."""
    mask = mask.float()
    return paint_frame(image.float().clamp(0, 1) * mask + _EMPTY * (1 - mask))


def paint_classes(classes: Integer[Tensor, "height width"], palette: Sequence[Sequence[int]]) -> Painted:
    """A class image in its palette."""
    return np.asarray(palette, dtype=np.uint8)[classes.cpu().numpy()]


def paint_slots(
    winners: Integer[Tensor, "height width"], bright: Integer[Tensor, "height width"] | None = None
) -> Painted:
    """The winning slot of every pixel in the slot's colour; where `bright` is 0 (background), dimmed."""
    colours = SLOT_COLOURS[winners.cpu().numpy() % len(SLOT_COLOURS)].astype(np.float32)
    if bright is not None:
        colours *= np.where(bright.cpu().numpy() > 0, 1.0, 0.3)[..., None]
    return colours.astype(np.uint8)


def paint_slots_over(
    frame: Float[Tensor, "channels height width"], labels: Integer[Tensor, "height width"], size: tuple[int, int]
) -> Painted:
    """The slot of each pixel in its colour over the frame without its own, outlined."""
    # in grey: a red ball under a green slot would come out brown
    below = resize(paint_frame(frame.mean(0, keepdim=True)), size)
    shown = _nearest(labels.cpu().numpy(), size)
    mixed = _OPACITY * SLOT_COLOURS[shown % len(SLOT_COLOURS)] + (1 - _OPACITY) * below
    return _outlined(mixed.round().astype(np.uint8), shown)


def paint_objects(
    true_masks: Integer[Tensor, "height width"], partners: dict[int, int], size: tuple[int, int]
) -> Painted:
    """True objects, each in the colour of its slot, light grey without one, on a dark background, outlined."""
    shown = _nearest(true_masks.cpu().numpy(), size)
    ids, places = np.unique(shown, return_inverse=True)
    matched = {number: slot_colour(slot) for number, slot in partners.items()} | {0: _BACKGROUND, -1: _BACKGROUND}
    palette = [matched.get(number, _UNMATCHED) for number in ids.tolist()]
    return _outlined(np.array(palette, dtype=np.uint8)[places.reshape(shown.shape)], shown)


def match_slots(
    labels: Integer[Tensor, "time height width"], true_masks: Integer[Tensor, "time height width"], num_slots: int
) -> dict[int, int]:
    """The slot of each true object, over a whole clip: no two share one, and the sum of their IoUs is the largest.

    It is the assignment that `matched_iou` scores with the background left out. An object that shares no pixel with the
    slot that would remain for it is left out, as are those for which there are not slots enough.
    """
    ids, compact = true_masks.unique(return_inverse=True)
    table = contingency(labels.flatten(), compact.flatten(), num_predicted=num_slots + 1, num_true=len(ids))
    # no object goes to the pixels of no slot, which are the last column
    iou = pairwise_iou(table)[ids > 0, :num_slots].cpu().numpy()
    objects = ids[ids > 0].tolist()
    rows, slots = linear_sum_assignment(iou, maximize=True)
    return {objects[row]: int(slot) for row, slot in zip(rows, slots, strict=True) if iou[row, slot] > 0}


def slots_of_clusters(
    clusters: Integer[Tensor, "time height width"], labels: Integer[Tensor, "time height width"], num_slots: int
) -> Integer[Tensor, " slots"]:
    """The slot in whose colour each of `num_slots` clusters is shown: that which it is most like, one each."""
    table = contingency(labels.flatten(), clusters.flatten(), num_predicted=num_slots + 1, num_true=num_slots)
    return torch.from_numpy(linear_sum_assignment(pairwise_iou(table)[:, :num_slots].cpu(), maximize=True)[1])


def slot_colour(slot: int) -> Colour:
    """The colour of a slot."""
    red, green, blue = SLOT_COLOURS[slot % len(SLOT_COLOURS)].tolist()
    return red, green, blue


def evenly_spaced(first: int, last: int, most: int = 8) -> list[int]:
    """At most so many whole numbers from `first` to `last`, both among them; none where `last` is smaller."""
    return np.unique(np.linspace(first, last, most).round().astype(int)).tolist() if last >= first else []


def size_within(frames: Tensor, least: int, most: int) -> tuple[int, int]:
    """Height and width to show frames in, their longer side within these limits if whole pixels allow it."""
    height, width = frames.shape[-2:]
    longer = max(height, width)
    if longer <= most:
        factor = math.ceil(least / longer)
        return factor * height, factor * width
    return max(1, round(height * most / longer)), max(1, round(width * most / longer))


def resize(image: Painted, size: tuple[int, int], smooth: bool = True) -> Painted:
    """An image enlarged without smoothing, or shrunk, if `smooth`, to the mean of the pixels that fall together."""
    shrinks = smooth and size[0] < image.shape[0]
    method = Image.Resampling.BOX if shrinks else Image.Resampling.NEAREST
    return np.array(Image.fromarray(image).resize((size[1], size[0]), method))


def _outlined(image: Painted, labels: np.ndarray) -> Painted:
    """A line of one pixel along the edges between labels, of darkened colours: black would hide labels that flicker."""
    edge = np.zeros(labels.shape, dtype=bool)
    edge[:, :-1] |= labels[:, :-1] != labels[:, 1:]
    edge[:-1] |= labels[:-1] != labels[1:]
    image[edge] = (_OUTLINE * image[edge]).astype(np.uint8)
    return image


def _nearest(labels: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The label in the middle of each pixel of the image."""
    rows, cols = ((2 * np.arange(new) + 1) * old // (2 * new) for new, old in zip(size, labels.shape, strict=True))
    return labels[rows[:, None], cols]
