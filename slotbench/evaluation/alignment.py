"""Masks and truth of one clip brought together under the rules: the same frames, one size, ids as the metrics take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Integer
from torch import Tensor

from slotbench.data.folders.names import check_same_frames
from slotbench.errors import UserError
from slotbench.evaluation.mask_files import MaskClip
from slotbench.interfaces import View
from slotbench.metrics.contingency import frame_tables, masks_to_labels
from slotbench.metrics.mask_rules import Rules

__all__ = ["Aligned", "align"]

_MOST_CELLS = 1 << 24


@dataclass(frozen=True)
class Aligned:
    """Masks and truth of one clip in the same frames, at one size.

    Attributes:
        labels: the slot of every pixel, -1 where no slot has it.
        true: the object of every pixel, 0 = background.
        valid: false where a pixel counts nowhere; None where all count.
        true_ids: the ids that the rows of its tables stand for.
        slots: slots, or different ids, of the masks.
    """

    labels: Integer[Tensor, "time *views height width"]
    true: Integer[Tensor, "time *views height width"]
    valid: Bool[Tensor, "time *views height width"] | None
    true_ids: Integer[np.ndarray, " rows"]
    slots: int

    def tables(self, labels: Integer[Tensor, "time *views height width"]) -> Integer[Tensor, "time *views true slots"]:
        """Pixels of each frame by true id and slot, for these labels or those of a baseline."""
        ids = len(torch.unique(labels))
        if len(labels) * len(self.true_ids) * ids > _MOST_CELLS:
            raise UserError(f"there are {ids:,} ids in {len(labels)} frames: are these colours, or new in every frame?")
        valid = None if self.valid is None else self.valid[None]
        tables = frame_tables(labels[None], self.true[None], valid)[0]
        return tables if labels.ndim == 4 else tables[:, 0]


def align(masks: MaskClip, truth: MaskClip, rules: Rules) -> Aligned:
    """Cuts masks and truth to the scored frames and pixels, resizes them to one size, and renumbers the truth."""
    if truth.is_soft:
        raise UserError(f"{truth.path} holds {truth.values.dtype} values; the truth has ids, one a pixel, as integers")
    if masks.values.ndim != truth.values.ndim + masks.is_soft:
        shapes = f"{masks.values.shape}, and {truth.path} {truth.values.shape}"
        raise UserError(f"{masks.path} has shape {shapes}; expected an axis of views in both or in neither")
    own, true = _same_frames(masks, truth, rules)
    if masks.view is not None:
        true = _shown(true, masks.view, truth, rules.background or 0)
    own_size, size = own.shape[-2:], true.shape[-2:]
    if masks.view is None and not _alike(own_size, size):
        raise UserError(
            f"{masks.path} has masks of {own_size[0]} x {own_size[1]} pixels, and {truth.path} {size[0]} x {size[1]}, "
            "another proportion: crop or stretch one of them as the other was"
        )
    if own_size != size and rules.resolution == "masks":
        true = _nearest(true, own_size)
    labels, slots = _labels(own, masks, true.shape[-2:], rules)
    nowhere = labels < 0
    out = nowhere.numpy() if rules.uncovered == "void" and bool(nowhere.any()) else None
    true, valid, ids = _objects(true, truth, rules, out)
    return Aligned(labels, torch.from_numpy(true), valid, ids, slots)


def _same_frames(masks: MaskClip, truth: MaskClip, rules: Rules) -> tuple[np.ndarray, np.ndarray]:
    """The scored frames of both."""
    own, true = masks.values, truth.values
    if masks.frames is not None:
        there = np.arange(len(true)) if truth.frames is None else truth.frames
        places = np.searchsorted(there, masks.frames)
        if len(masks.frames) != len(own) or (there[np.minimum(places, len(there) - 1)] != masks.frames).any():
            raise UserError(
                f"{masks.path} is of frames up to {masks.frames[-1]} of its video, and {truth.path} lacks some"
            )
        true = true[places]
    if rules.first is None and len(own) != len(true):
        shorter = min(len(own), len(true))
        raise UserError(
            f"{masks.path} has {len(own)} frames, and {truth.path} has {len(true)}; give --first {shorter} to score "
            f"the first {shorter} of both"
        )
    if rules.first is not None and min(len(own), len(true)) < rules.first:
        raise UserError(f"{masks.path} or {truth.path} has fewer frames than --first {rules.first}")
    check_same_frames("masks", masks.path, masks.numbers, truth.path, truth.numbers)
    frames = (rules.first or len(own)) - rules.skip
    if frames < (rules.window or 1):
        raise UserError(
            f"{masks.path} has {max(frames, 0)} frames left to score; expected {rules.window or 1} at least"
        )
    stop = rules.skip + (frames // rules.window * rules.window if rules.window else frames)
    return own[rules.skip : stop], true[rules.skip : stop]


def _shown(true: np.ndarray, view: View, truth: MaskClip, background: int) -> np.ndarray:
    """The part of true frames, which may be larger or smaller than the view's, that masks show; bars are background."""
    height, width = true.shape[-2:]
    if _alike((height, width), view.box[2:]) and not _alike((height, width), view.frame):
        return true  # cut already
    if not _alike((height, width), view.frame):
        raise UserError(f"{truth.path} has frames of {height} x {width} pixels; its masks are of {view.frame}")
    down, across = height / view.frame[0], width / view.frame[1]
    top, left, rows, columns = view.box
    rows, columns = max(1, round(rows * down)), max(1, round(columns * across))
    top, left = min(round(top * down), max(height - rows, 0)), min(round(left * across), max(width - columns, 0))
    return View((height, width), (top, left, rows, columns)).cut(true, background)


def _alike(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether one of two sizes is the other enlarged, sides rounded to whole pixels."""
    small, large = sorted((one, other))
    width, height = small[0] * large[1] / large[0], small[1] * large[0] / large[1]
    return abs(small[1] - width) <= 0.5 or abs(small[0] - height) <= 0.5


def _labels(own: np.ndarray, masks: MaskClip, size: tuple[int, ...], rules: Rules) -> tuple[Tensor, int]:
    """The slot of each pixel at a size, and how many slots there are."""
    if masks.is_soft:
        soft = torch.from_numpy(own.astype(np.float64 if own.dtype.itemsize == 8 else np.float32))
        slots = soft.shape[-3]
        if not bool(soft.isfinite().all()):
            raise UserError(f"{masks.path} holds values that are no numbers (nan or infinite) among its soft masks")
        if slots > 1 and soft.min() >= 0 and not _sums_to_one(soft, -3) and _sums_to_one(soft, -1):
            raise UserError(f"{masks.path} has shares that sum to 1 over the last axis; expected slots before height")
        found = masks_to_labels(soft, (size[0], size[1]) if rules.resize == "bilinear" else None).long()
        labels = torch.where(found == slots, -1, found)
    else:
        ids = np.unique(own)
        slots, labels = max(1, int((ids >= 0).sum())), torch.from_numpy(np.maximum(own.astype(np.int64), -1))
        if labels.shape[-2:] != size and rules.resize != "nearest":
            raise UserError(
                f"{masks.path} has ids of another size than the truth: ids are not blended, so give soft masks, "
                "--resize nearest, or --resolution masks"
            )
    return torch.from_numpy(_nearest(labels.numpy(), size)), slots


def _sums_to_one(soft: Tensor, axis: int) -> bool:
    return bool(((soft.sum(axis) - 1).abs() < 0.02).all())


def _objects(
    true: np.ndarray, truth: MaskClip, rules: Rules, out: np.ndarray | None
) -> tuple[np.ndarray, Tensor | None, np.ndarray]:
    """The truth with its background at 0, where it counts, and the ids that the rows of its tables stand for."""
    true = true.astype(np.int64)
    if rules.void:
        void = np.isin(true, rules.void)
        out = void if out is None else out | void
    unnamed = set(np.unique(true[true < 0]).tolist()) - {rules.background, *rules.void}
    if unnamed:
        raise UserError(
            f"{truth.path} has pixels of id {max(unnamed)}, which is no object's; give --void {max(unnamed)} if they "
            f"count nowhere, or --background {max(unnamed)} if they are the background"
        )
    if rules.background is None:
        true = np.where(true >= 0, true + 1, true)
    elif rules.background != 0:
        true = np.where(true == rules.background, 0, np.where(true == 0, rules.background, true))
    if out is not None:
        true = np.where(out, 0, true)
    low, high = int(true.min()), int(true.max())
    ids = np.arange(high + 1) if low >= 0 and high < 64 else np.unique(np.append(true.ravel(), 0))
    # the row of the background is the first
    ids = np.concatenate([[0], ids[ids != 0]])
    return true, None if out is None else torch.from_numpy(~out), ids


def _nearest(values: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """Ids at another size: a pixel takes the id under its centre."""
    rows, columns = values.shape[-2:]
    down = (2 * np.arange(size[0]) + 1) * rows // (2 * size[0])
    across = (2 * np.arange(size[1]) + 1) * columns // (2 * size[1])
    return values if (rows, columns) == tuple(size) else values[..., down[:, None], across]
