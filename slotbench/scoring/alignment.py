"""Masks and truth of one clip brought together under the rules: the same frames, one size, ids as the metrics take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Integer, Shaped
from torch import Tensor
from torch.nn import functional as F

from slotbench.data.formats.images import resize_nearest
from slotbench.errors import UserError
from slotbench.metrics.contingency import frame_tables, masks_to_labels
from slotbench.metrics.mask_rules import Rules

__all__ = ["Aligned", "align", "cut", "tables_of"]

_VALUES_AT_ONCE = 1 << 22
_MOST_CELLS = 1 << 24


@dataclass(frozen=True)
class Aligned:
    """One clip, ready to be counted.

    Attributes:
        labels: the slot of every pixel.
        true: the object of every pixel, 0 = background.
        valid: false where a pixel counts nowhere; None where all count.
        true_ids: the ids that the rows of its tables stand for.
        segments: slots: the axis of soft masks, or the different ids.
        ties: pixels whose largest share two slots have.
        path: of the masks, for messages.
    """

    labels: Integer[Tensor, "time height width"]
    true: Integer[Tensor, "time height width"]
    valid: Bool[Tensor, "time height width"] | None
    true_ids: Integer[np.ndarray, " rows"]
    segments: int
    ties: int
    path: Path


def align(
    masks: Shaped[np.ndarray, "frames ..."],
    truth: Shaped[np.ndarray, "true_frames ..."],
    rules: Rules,
    paths: tuple[Path, Path],
) -> Aligned:
    """Cuts both to the frames that are scored, brings them to one size, and renumbers the truth.

    Args:
        masks: ids "time height width", or soft masks "time slots height width".
        truth: ids "time height width".
        rules: in force.
        paths: of masks and truth, for messages.

    Raises:
        UserError: another number of frames, a size that the rules do not allow, numbers that are none, too many ids.
    """
    if truth.ndim != 3:
        raise UserError(f"{paths[1]} holds {truth.dtype} values of shape {truth.shape}; the truth has ids, one a pixel")
    _check_frames(len(masks), len(truth), rules, paths)
    masks, truth = cut(masks, rules), cut(truth, rules)
    size, soft = truth.shape[1:], masks.ndim == 4
    if masks.shape[-2:] != size:
        _check_size(masks, size, rules, paths)
        if rules.resolution == "masks":
            truth = resize_nearest(truth, *masks.shape[-2:])
    height, width = truth.shape[1:]
    segments, ties = masks.shape[1], 0
    if soft:
        bilinear = (height, width) if rules.resize == "bilinear" else masks.shape[-2:]
        labels, ties = _labels(masks, bilinear, paths[0])
    else:
        labels = torch.from_numpy(np.array(masks))
        # sorting bytes would take longer than all that follows
        few = masks.dtype == np.uint8
        segments = int(np.count_nonzero(np.bincount(masks.ravel()))) if few else len(np.unique(masks))
    if tuple(labels.shape[1:]) != (height, width):
        labels = torch.from_numpy(resize_nearest(labels.numpy(), height, width))
    true, valid, true_ids = _objects(truth, rules)
    return Aligned(labels, true, valid, true_ids, segments, ties, paths[0])


def cut(values: Shaped[np.ndarray, "time ..."], rules: Rules) -> Shaped[np.ndarray, "frames ..."]:
    """The frames that are scored; with windows, whole windows."""
    values = values[rules.skip : rules.first]
    return values[: len(values) // rules.window * rules.window] if rules.window else values


def tables_of(labels: Integer[Tensor, "time height width"], aligned: Aligned) -> Integer[Tensor, "time true predicted"]:
    """Pixels of each frame by true id and slot.

    Args:
        labels: those of `aligned`, or of something that it is compared with.
        aligned: the clip.

    Raises:
        UserError: there are so many ids that they can be none.
    """
    # those below 64 are used as they are
    low, high = labels.aminmax()
    columns = max(64, len(torch.unique(labels)) + 1) if int(high) > 63 or int(low) < 0 else 64
    if len(labels) * len(aligned.true_ids) * columns > _MOST_CELLS:
        raise UserError(
            f"{aligned.path} and its truth have {columns:,} and {len(aligned.true_ids):,} ids in {len(labels)} frames; "
            "expected some hundreds: are these colours, or ids that are new in every frame?"
        )
    valid = None if aligned.valid is None else aligned.valid[None]
    return frame_tables(labels[None], aligned.true[None], valid)[0, :, 0]


def _check_frames(frames: int, true_frames: int, rules: Rules, paths: tuple[Path, Path]) -> None:
    shorter = min(frames, true_frames)
    if rules.first is None and frames != true_frames:
        raise UserError(
            f"{paths[0]} has {frames} frames, and {paths[1]} has {true_frames}; give --first {shorter} to score the "
            f"first {shorter} of both"
        )
    if rules.first is not None and shorter < rules.first:
        path = paths[0] if frames < rules.first else paths[1]
        raise UserError(f"{path} has {shorter} frames, fewer than --first {rules.first}")
    left = (rules.first or frames) - rules.skip
    if left < (rules.window or 1):
        raise UserError(
            f"{paths[0]} has {frames} frames, of which {max(left, 0)} are left to score; expected at least "
            f"{rules.window or 1}"
        )


def _check_size(masks: np.ndarray, size: tuple[int, ...], rules: Rules, paths: tuple[Path, Path]) -> None:
    if masks.ndim == 4 and masks.shape[1:3] == size:
        raise UserError(
            f"{paths[0]} holds soft masks of shape {masks.shape}, slots last; expected (time, slots, height, width): "
            "numpy.moveaxis(masks, -1, 1)"
        )
    if masks.ndim == 3 and rules.resolution == "truth" and rules.resize != "nearest":
        shapes = f"{masks.shape[1]} x {masks.shape[2]} pixels, and {paths[1]} {size[0]} x {size[1]}"
        raise UserError(
            f"{paths[0]} has ids of {shapes}: ids are not blended, so give soft masks, --resize nearest, or "
            "--resolution masks"
        )


def _labels(
    masks: Shaped[np.ndarray, "time slots rows cols"], size: tuple[int, ...], path: Path
) -> tuple[Integer[Tensor, "time height width"], int]:
    """The slot of each pixel, and how many pixels have two."""
    height, width = size
    step = max(1, _VALUES_AT_ONCE // (masks.shape[1] * height * width))
    labels, ties = [], 0
    for start in range(0, len(masks), step):
        values = np.array(masks[start : start + step])
        part = torch.from_numpy(values.astype(np.float64 if values.dtype.itemsize == 8 else np.float32, copy=False))
        if tuple(part.shape[-2:]) != (height, width):
            part = F.interpolate(part, (height, width), mode="bilinear", align_corners=False)
        best = part[:, 0].clone()
        for slot in range(1, part.shape[1]):
            torch.maximum(best, part[:, slot], out=best)
        if best.isnan().any():  # as is the largest of numbers one of which is
            raise UserError(f"{path} holds values that are no numbers (nan) among its soft masks")
        winners = torch.zeros(best.shape, dtype=torch.int16)
        for slot in range(part.shape[1]):
            winners += part[:, slot] == best
        ties += int((winners != 1).sum())
        labels.append(masks_to_labels(part))
    return torch.cat(labels), ties


def _objects(truth: np.ndarray, rules: Rules) -> tuple[Tensor, Tensor | None, np.ndarray]:
    """The truth with its background at 0, where it counts, and the ids that the rows of its tables stand for."""
    valid = torch.from_numpy(~np.isin(truth, rules.void)) if rules.void else None
    if rules.background != 0:
        # room for ids beyond those that the file's type holds
        wide = truth.astype(np.int64)
        if rules.background is None:
            truth = np.where(wide >= 0, wide + 1, wide)
        else:
            truth = np.where(wide == rules.background, 0, np.where(wide == 0, rules.background, wide))
    if valid is not None:
        truth = np.where(valid.numpy(), truth, 0)
    low, high = int(truth.min()), int(truth.max())
    if low >= 0 and high < 64:
        ids = np.arange(high + 1)
    else:
        ids = np.unique(truth)
        ids = np.concatenate([[0], ids[ids != 0]])
    return torch.from_numpy(np.array(truth)), valid, ids
