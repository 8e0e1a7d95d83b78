"""Masks and truth of one clip brought together under the rules: the same frames, one size, ids as the metrics take."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Integer, Shaped
from torch import Tensor
from torch.nn import functional as F

from slotbench.data.formats.images import resize_nearest
from slotbench.errors import UserError
from slotbench.evaluation.proportions import fit
from slotbench.evaluation.soft_masks import NO_SLOT, check_slots_axis, soft_labels
from slotbench.interfaces import View
from slotbench.metrics.contingency import frame_tables
from slotbench.metrics.mask_rules import Rules

__all__ = ["Aligned", "MaskFacts", "align", "cut", "tables_of"]

_VALUES_AT_ONCE = 1 << 22
_MOST_CELLS = 1 << 24


@dataclass(frozen=True)
class MaskFacts:
    """What the masks of a clip are.

    Attributes:
        kind: "ids" or "soft masks".
        segments: slots: the axis of soft masks, or the different ids.
        pixels: of the scored frames.
        ties: of them, those whose largest share two slots have.
        unequal: of them, those whose shares do not sum to 1.
        uncovered: of them, those that no slot has.
        mask_size: height and width of the masks, as they are in the file.
        view: the part of the truth's frames that is scored.
    """

    kind: str
    segments: int
    pixels: int
    ties: int
    unequal: int
    uncovered: int
    mask_size: tuple[int, int]
    view: View


@dataclass(frozen=True)
class Aligned:
    """Masks and truth of one clip in the same frames, at one size.

    Attributes:
        labels: the slot of every pixel, -1 where no slot has it.
        true: the object of every pixel, 0 = background.
        valid: false where a pixel counts nowhere; None where all count.
        true_ids: the ids that the rows of its tables stand for.
        facts: about the masks.
        path: of the masks, for messages.
        views: cameras, whose frames of one time come one after the other; 0 where there is no axis of views.
    """

    labels: Integer[Tensor, "time height width"]
    true: Integer[Tensor, "time height width"]
    valid: Bool[Tensor, "time height width"] | None
    true_ids: Integer[np.ndarray, " rows"]
    facts: MaskFacts
    path: Path
    views: int = 0


def align(
    masks: Shaped[np.ndarray, "frames ..."],
    truth: Shaped[np.ndarray, "true_frames ..."],
    rules: Rules,
    paths: tuple[Path, Path],
    view: View | None = None,
    views: bool = False,
) -> Aligned:
    """Cuts masks and truth to the scored frames and pixels, resizes them to one size, and renumbers the truth.

    Args:
        masks: ids "time height width", or soft masks "time slots height width".
        truth: ids "time height width".
        rules: in force.
        paths: of masks and truth, for messages.
        view: the part of the frames that the masks show, if their file has it.
        views: whether there is an axis of views after that of time.

    Raises:
        UserError: numbers of frames or cameras differ, the rules do not allow the size, values are not finite, or ids
            too many.
    """
    if truth.ndim != 3 + views:
        raise UserError(
            f"{paths[1]} holds {truth.dtype} values of shape {truth.shape}; the truth has ids, one a pixel, as "
            f"integers (time, {'views, ' * views}height, width)"
        )
    cameras = truth.shape[1] if views else 0
    if views:
        masks, truth = _frame_by_frame(masks, truth, rules, paths)
        rules = replace(rules, first=None, skip=0, window=None)  # which are done
    if masks.ndim == 4:
        _check_axes(masks, truth.shape, rules, paths)
    _check_frames(len(masks), len(truth), rules, paths)
    mask_size = (masks.shape[-2], masks.shape[-1])
    masks, truth, part = fit(cut(masks, rules), cut(truth, rules), rules, view, paths)
    size = truth.shape[1:]
    if masks.shape[-2:] != size:
        _check_size(masks, size, rules, paths)
        if rules.resolution == "masks":
            truth = resize_nearest(truth, *masks.shape[-2:])
    height, width = truth.shape[1:]
    kind, segments, ties, unequal = "soft masks", masks.shape[1], 0, 0
    if masks.ndim == 4:
        bilinear = (height, width) if rules.resize == "bilinear" else masks.shape[-2:]
        labels, ties, unequal = _labels(masks, bilinear, paths[0])
    else:
        kind, (labels, segments) = "ids", _ids(masks)
    if tuple(labels.shape[1:]) != (height, width):
        labels = torch.from_numpy(resize_nearest(labels.numpy(), height, width))
    nowhere = (labels == NO_SLOT).numpy()
    uncovered = int(np.count_nonzero(nowhere))
    out = nowhere if uncovered and rules.uncovered == "void" else None
    true, valid, true_ids = _objects(truth, rules, paths[1], out)
    facts = MaskFacts(kind, segments, true.numel(), ties, unequal, uncovered, mask_size, part)
    return Aligned(labels, true, valid, true_ids, facts, paths[0], cameras)


def cut(values: Shaped[np.ndarray, "time ..."], rules: Rules) -> Shaped[np.ndarray, "frames ..."]:
    """The scored frames; with windows, whole windows."""
    values = values[rules.skip : rules.first]
    return values[: len(values) // rules.window * rules.window] if rules.window else values


def tables_of(
    labels: Integer[Tensor, "frames height width"], aligned: Aligned
) -> Integer[Tensor, "time *views true predicted"]:
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
    tables = frame_tables(labels[None], aligned.true[None], valid)[0, :, 0]
    return tables.unflatten(0, (-1, aligned.views)) if aligned.views else tables


def _frame_by_frame(
    masks: np.ndarray, truth: np.ndarray, rules: Rules, paths: tuple[Path, Path]
) -> tuple[np.ndarray, np.ndarray]:
    """The scored frames of all cameras, without the axis of views."""
    if masks.shape[1] != truth.shape[1]:
        raise UserError(
            f"{paths[0]} has masks of {masks.shape[1]} cameras, and {paths[1]} of {truth.shape[1]}; expected the same "
            "cameras in the same order, in the second axis"
        )
    _check_frames(len(masks), len(truth), rules, paths)
    masks, truth = cut(masks, rules), cut(truth, rules)
    return masks.reshape(-1, *masks.shape[2:]), truth.reshape(-1, *truth.shape[2:])


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


def _check_axes(masks: np.ndarray, true: tuple[int, ...], rules: Rules, paths: tuple[Path, Path]) -> None:
    """Refuses soft masks whose axes are in another order, as their sizes or their sums say."""
    frames, size = true[0], true[1:]
    if masks.shape[-2:] != size and masks.shape[1:3] == size:
        raise UserError(
            f"{paths[0]} holds soft masks of shape {masks.shape}, slots last; expected (time, slots, height, width): "
            "numpy.moveaxis(masks, -1, 1)"
        )
    if rules.first is None and masks.shape[-2:] == size and masks.shape[1] == frames != masks.shape[0]:
        raise UserError(
            f"{paths[0]} holds soft masks of shape {masks.shape}, and {paths[1]} has {frames} frames: slots first; "
            "expected (time, slots, height, width): numpy.moveaxis(masks, 0, 1)"
        )
    try:
        check_slots_axis(masks)
    except ValueError as error:
        raise UserError(f"{paths[0]} holds {error}") from error


def _check_size(masks: np.ndarray, size: tuple[int, ...], rules: Rules, paths: tuple[Path, Path]) -> None:
    if masks.ndim == 3 and rules.resolution == "truth" and rules.resize != "nearest":
        shapes = f"{masks.shape[1]} x {masks.shape[2]} pixels, and {paths[1]} {size[0]} x {size[1]}"
        raise UserError(
            f"{paths[0]} has ids of {shapes}: ids are not blended, so give soft masks, --resize nearest, or "
            "--resolution masks"
        )


def _labels(
    masks: Shaped[np.ndarray, "time slots rows cols"], size: tuple[int, ...], path: Path
) -> tuple[Integer[Tensor, "time height width"], int, int]:
    """The slot of each pixel, the number of ties, and the number of pixels whose shares do not sum to 1."""
    height, width = size
    step = max(1, _VALUES_AT_ONCE // (masks.shape[1] * height * width))
    found, are_logits = [], bool(masks.min() < 0)
    for start in range(0, len(masks), step):
        values = np.array(masks[start : start + step])
        part = torch.from_numpy(values.astype(np.float64 if values.dtype.itemsize == 8 else np.float32, copy=False))
        if tuple(part.shape[-2:]) != (height, width):
            part = F.interpolate(part, (height, width), mode="bilinear", align_corners=False)
        try:
            found.append(soft_labels(part, are_logits))
        except ValueError as error:
            raise UserError(f"{path} holds {error} among its soft masks") from error
    labels, ties, unequal = zip(*found, strict=True)
    return torch.cat(labels), sum(ties), sum(unequal)


def _ids(masks: Integer[np.ndarray, "time height width"]) -> tuple[Integer[Tensor, "time height width"], int]:
    """Ids as they are, those below 0 being no slot's, and how many different ones there are."""
    # sorting bytes would take longer than all that follows
    if masks.dtype == np.uint8:
        return torch.from_numpy(np.array(masks)), int(np.count_nonzero(np.bincount(masks.ravel())))
    ids = np.unique(masks)
    labels = np.maximum(masks, NO_SLOT) if ids[0] < NO_SLOT else np.array(masks)
    return torch.from_numpy(labels), max(1, int((ids >= 0).sum()))


def _objects(
    truth: np.ndarray, rules: Rules, path: Path, out: np.ndarray | None
) -> tuple[Tensor, Tensor | None, np.ndarray]:
    """The truth with its background at 0, where it counts, and the ids that the rows of its tables stand for."""
    if rules.void:
        void = np.isin(truth, rules.void)
        out = void if out is None else out | void
    if truth.dtype.kind == "i" and truth.min() < 0:
        unnamed = set(np.unique(truth[truth < 0]).tolist()) - {rules.background, *rules.void}
        if unnamed:
            one = max(unnamed)
            raise UserError(
                f"{path} has pixels of id {one}, which is no object's; give --void {one} if they count nowhere, or "
                f"--background {one} if they are the background"
            )
    if rules.background != 0:
        # room for ids beyond those that the file's type holds
        wide = truth.astype(np.int64)
        if rules.background is None:
            truth = np.where(wide >= 0, wide + 1, wide)
        else:
            truth = np.where(wide == rules.background, 0, np.where(wide == 0, rules.background, wide))
    if out is not None:
        truth = np.where(out, 0, truth)
    low, high = int(truth.min()), int(truth.max())
    if low >= 0 and high < 64:
        ids = np.arange(high + 1)
    else:
        ids = np.unique(truth)
        ids = np.concatenate([[0], ids[ids != 0]])
    return torch.from_numpy(np.array(truth)), None if out is None else torch.from_numpy(~out), ids
