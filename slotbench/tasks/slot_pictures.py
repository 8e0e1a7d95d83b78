"""Which slot took what: a sheet and a video of one clip.

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

from slotbench.metrics.contingency import contingency, masks_to_labels
from slotbench.metrics.segmentation import pairwise_iou
from slotbench.tasks.pictures import SLOT_COLOURS, contact_sheet, film_strip, paint_frame

__all__ = ["match_slots", "paint_objects", "paint_slots_over", "shown_times", "slot_panel", "slot_strips", "slot_video"]

Frames = Float[Tensor, "time channels height width"]
Masks = Float[Tensor, "time slots height width"]
Labels = Integer[Tensor, "time height width"]
Painted = UInt8[np.ndarray, "shown_height shown_width 3"]

_BACKGROUND, _UNMATCHED = (45, 45, 45), (225, 225, 225)
_OPACITY, _OUTLINE, _MAX_COLUMNS, _EMPTY = 0.6, 0.3, 8, 0.85
# shorter and longer limits of an image's longer side in pixels
_ON_SHEET, _ON_LONG_SHEET, _IN_VIDEO, _LONG_SHEET_SLOTS = (96, 128), (64, 80), (128, 160), 12


def slot_panel(
    frames: Frames,
    reconstruction: Float[Tensor, "time out_channels height width"] | None,
    masks: Masks,
    components: Float[Tensor, "time slots out_channels height width"] | None = None,
    true_masks: Labels | None = None,
    attention_masks: Masks | None = None,
    times: Sequence[int] | None = None,
    shares: Float[Tensor, " slots"] | None = None,
    partners: dict[int, int] | None = None,
    target: Float[Tensor, "time out_channels height width"] | None = None,
) -> UInt8[np.ndarray, "sheet_height sheet_width 3"]:
    """One clip on a sheet, time from left to right, at most eight frames, the first and the last among them.

    The rows are the frame, what was to be painted if that is something else, its reconstruction, the winning slot of
    each pixel over the frame (of the decoder's masks, and of the attention's), the true objects, and then each slot
    alone: its image where its mask is, light grey where it is not, with the share of the clip's pixels that it wins.
    Small frames are enlarged by whole pixels, large ones shrunk; with more than twelve slots all is smaller.

    Args:
        frames: the clip, in [0, 1].
        reconstruction: what the model made of it; absent where that is no image.
        masks: share of each slot in each pixel.
        components: each slot's own image; absent, the frame is shown through the mask.
        true_masks: ids of objects, 0 = background.
        attention_masks: share of each slot in each pixel by where it attended.
        times: the frames' numbers in a longer video, if these are not all of it.
        shares: of the pixels of that video that each slot wins.
        partners: id of an object -> its slot, over that video.
        target: what was to be painted, a row below the frames; absent where that is the frames.
    """
    slots = masks.shape[1]
    size = _shown_size(frames, _ON_SHEET if slots <= _LONG_SHEET_SLOTS else _ON_LONG_SHEET)
    chosen = shown_times(len(frames))
    labels = masks_to_labels(masks)

    images = {"frame": frames, "target": target, "reconstruction": reconstruction}
    there = {name: image for name, image in images.items() if image is not None}
    rows = [[_resize(paint_frame(image[t]), size) for t in chosen] for image in there.values()]
    names = list(there)
    rows.append([paint_slots_over(frames[t], labels[t], size) for t in chosen])
    names.append("slots")
    if attention_masks is not None:
        attended = masks_to_labels(attention_masks)
        rows.append([paint_slots_over(frames[t], attended[t], size) for t in chosen])
        names.append("attention")
    if true_masks is not None:
        matched = match_slots(labels, true_masks, slots) if partners is None else partners
        rows.append([paint_objects(true_masks[t], matched, size) for t in chosen])
        names.append("truth")
    colours: list[tuple[int, int, int] | None] = [None] * len(rows)

    if shares is None:
        shares = torch.bincount(labels.flatten(), minlength=slots).cpu() / labels.numel()  # what is last is no slot's
    for slot in range(slots):
        own = frames if components is None else components[:, slot]
        rows.append([_resize(paint_frame(_on_ground(own[t], masks[t, slot])), size) for t in chosen])
        names.append(f"slot {slot}\n{_percent(float(shares[slot]))}")
        colours.append(_colour(slot))
    return contact_sheet(rows, [f"t = {t if times is None else times[t]}" for t in chosen], names, colours, size)


def shown_times(length: int) -> list[int]:
    """The frames of a clip that a panel shows: at most eight, evenly spaced, the first and the last among them."""
    return np.unique(np.linspace(0, length - 1, _MAX_COLUMNS).round().astype(int)).tolist()


def slot_video(
    frames: Frames,
    reconstruction: Float[Tensor, "time out_channels height width"] | None,
    masks: Masks,
    true_masks: Labels | None = None,
    target: Float[Tensor, "time out_channels height width"] | None = None,
) -> UInt8[np.ndarray, "time strip_height strip_width 3"]:
    """One clip as a video: the frame, its reconstruction, the slots over the frame and the true objects, side by side.

    Args:
        frames: the clip, in [0, 1].
        reconstruction: what the model made of it; absent where that is no image.
        masks: share of each slot in each pixel.
        true_masks: ids of objects, 0 = background.
        target: what was to be painted, where that is not the frames.
    """
    labels = masks_to_labels(masks)
    partners = None if true_masks is None else match_slots(labels, true_masks, masks.shape[1])
    return slot_strips(frames, reconstruction, labels, true_masks, partners, target)


def slot_strips(
    frames: Frames,
    reconstruction: Float[Tensor, "time out_channels height width"] | None,
    labels: Labels,
    true_masks: Labels | None = None,
    partners: dict[int, int] | None = None,
    target: Float[Tensor, "time out_channels height width"] | None = None,
) -> UInt8[np.ndarray, "time strip_height strip_width 3"]:
    """Some frames of the video that `slot_video` makes.

    Args:
        frames: in [0, 1].
        reconstruction: what the model made of them; absent where that is no image.
        labels: the winning slot of each pixel.
        true_masks: ids of objects, 0 = background.
        partners: id of an object -> its slot, over the whole video.
        target: what was to be painted, where that is not the frames.
    """
    size = _shown_size(frames, _IN_VIDEO)
    panels = {"frame": [_resize(paint_frame(frame), size) for frame in frames]}
    if target is not None:
        panels["target"] = [_resize(paint_frame(frame), size) for frame in target]
    if reconstruction is not None:
        panels["reconstruction"] = [_resize(paint_frame(frame), size) for frame in reconstruction]
    panels["slots"] = [paint_slots_over(*pair, size) for pair in zip(frames, labels, strict=True)]
    if true_masks is not None:
        panels["truth"] = [paint_objects(frame, partners or {}, size) for frame in true_masks]
    return film_strip({name: np.stack(video) for name, video in panels.items()})


def match_slots(labels: Labels, true_masks: Labels, num_slots: int) -> dict[int, int]:
    """The slot of each true object, over a whole clip: no two share one, and the sum of their IoUs is the largest.

    It is the assignment that `matched_iou` scores with the background left out. An object that shares no pixel with the
    slot that would remain for it is left out, as are those for which there are not slots enough.

    Args:
        labels: the winning slot of each pixel.
        true_masks: ids of objects, 0 = background.
        num_slots: slots that there are; those that win nowhere included.
    """
    ids, compact = true_masks.unique(return_inverse=True)
    table = contingency(labels.flatten(), compact.flatten(), num_predicted=num_slots + 1, num_true=len(ids))
    # no object goes to the pixels of no slot, which are the last column
    iou = pairwise_iou(table)[ids != 0, :num_slots].cpu().numpy()
    objects = ids[ids != 0].tolist()
    rows, slots = linear_sum_assignment(iou, maximize=True)
    return {objects[row]: int(slot) for row, slot in zip(rows, slots, strict=True) if iou[row, slot] > 0}


def paint_slots_over(
    frame: Float[Tensor, "channels height width"], labels: Integer[Tensor, "height width"], size: tuple[int, int]
) -> Painted:
    """The slot of each pixel in its colour over the frame without its own, outlined.

    Args:
        frame: in [0, 1].
        labels: the winning slot of each pixel.
        size: height and width of the image.
    """
    # in grey: a red ball under a green slot would come out brown
    below = _resize(paint_frame(frame.mean(0, keepdim=True)), size)
    shown = _nearest(labels.cpu().numpy(), size)
    colours = SLOT_COLOURS[shown % len(SLOT_COLOURS)]
    mixed = _OPACITY * colours + (1 - _OPACITY) * below
    return _outlined(mixed.round().astype(np.uint8), shown)


def paint_objects(
    true_masks: Integer[Tensor, "height width"], partners: dict[int, int], size: tuple[int, int]
) -> Painted:
    """True objects, each in the colour of its slot, light grey without one, on a dark background, outlined.

    Args:
        true_masks: ids of objects, 0 = background.
        partners: id of an object -> its slot.
        size: height and width of the image.
    """
    shown = _nearest(true_masks.cpu().numpy(), size)
    ids, places = np.unique(shown, return_inverse=True)
    palette = [_BACKGROUND if i == 0 else _colour(partners[i]) if i in partners else _UNMATCHED for i in ids.tolist()]
    return _outlined(np.array(palette, dtype=np.uint8)[places.reshape(shown.shape)], shown)


def _outlined(image: Painted, labels: np.ndarray) -> Painted:
    """A line of one pixel along the edges between labels, of darkened colours: black would hide labels that flicker."""
    edge = np.zeros(labels.shape, dtype=bool)
    edge[:, :-1] |= labels[:, :-1] != labels[:, 1:]
    edge[:-1] |= labels[:-1] != labels[1:]
    image[edge] = (_OUTLINE * image[edge]).astype(np.uint8)
    return image


def _on_ground(image: Tensor, mask: Tensor) -> Tensor:
    return image.float().clamp(0, 1) * mask.float() + _EMPTY * (1 - mask.float())


def _colour(slot: int) -> tuple[int, int, int]:
    red, green, blue = SLOT_COLOURS[slot % len(SLOT_COLOURS)].tolist()
    return red, green, blue


def _percent(share: float) -> str:
    return "none" if share == 0 else "< 1 %" if share < 0.01 else f"{100 * share:.0f} %"


def _shown_size(frames: Tensor, limits: tuple[int, int]) -> tuple[int, int]:
    """Height and width to show frames in, their longer side within the limits if whole pixels allow it."""
    least, most = limits
    height, width = frames.shape[-2:]
    longer = max(height, width)
    if longer <= most:
        factor = math.ceil(least / longer)
        return factor * height, factor * width
    return max(1, round(height * most / longer)), max(1, round(width * most / longer))


def _resize(image: UInt8[np.ndarray, "height width 3"], size: tuple[int, int]) -> Painted:
    """Enlarged without smoothing, shrunk to the mean of the pixels that fall together."""
    enlarges = size[0] >= image.shape[0]
    method = Image.Resampling.NEAREST if enlarges else Image.Resampling.BOX
    return np.asarray(Image.fromarray(image).resize((size[1], size[0]), method))


def _nearest(labels: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The label in the middle of each pixel of the image."""
    rows, cols = ((2 * np.arange(new) + 1) * old // (2 * new) for new, old in zip(size, labels.shape, strict=True))
    return labels[rows[:, None], cols]
