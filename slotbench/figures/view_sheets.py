"""All cameras of a clip on one sheet: what each sees, what is painted for it, and the slots."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Integer, UInt8
from torch import Tensor

from slotbench.figures.painting import (
    Painted,
    match_slots,
    paint_frame,
    paint_objects,
    paint_slots_over,
    resize,
    size_within,
)
from slotbench.figures.sheets import Row, contact_sheet

__all__ = ["view_sheet", "view_video"]

Views = Float[Tensor, "time views channels height width"]
Labels = Integer[Tensor, "time views height width"]

_LEAST, _MOST = 64, 80


def view_sheet(
    frames: Views,
    painted: Views,
    labels: Labels | None,
    true_masks: Labels | None,
    num_slots: int,
    shown: int,
    steps: Sequence[int],
) -> Painted:
    """Some steps of a clip below one another, a column for each camera: those that are shown first.

    The rows of a step are the frame, what is painted, the winning slot of each pixel over the frame, and the true
    objects. A slot has one colour in all cameras and at all steps, and a true object that of the slot that it is
    matched with over all of them.

    Args:
        frames: of all cameras, in [0, 1].
        painted: the same from slots, in [0, 1].
        labels: the winning slot of each pixel; absent where the decoder has no masks.
        true_masks: ids of objects, which all cameras share; 0 = background.
        num_slots: slots.
        shown: cameras that are shown to the encoder, the first ones.
        steps: which steps.
    """
    size = size_within(frames, _LEAST, _MOST)
    partners = {}
    if labels is not None and true_masks is not None:
        partners = match_slots(labels.flatten(0, 1), true_masks.flatten(0, 1), num_slots)
    rows = []
    for t in steps:
        rows.append(Row(f"t = {t}\nframe", [resize(paint_frame(frame), size) for frame in frames[t]]))
        rows.append(Row("painted", [resize(paint_frame(image), size) for image in painted[t]]))
        if labels is not None:
            over = zip(frames[t], labels[t], strict=True)
            rows.append(Row("slots", [paint_slots_over(frame, winners, size) for frame, winners in over]))
        if true_masks is not None:
            rows.append(Row("truth", [paint_objects(ids, partners, size) for ids in true_masks[t]]))
    names = ["shown" if view < shown else "held out" for view in range(frames.shape[1])]
    return contact_sheet(rows, names, size)


def view_video(
    frames: Views,
    painted: Views,
    labels: Labels | None,
    true_masks: Labels | None,
    num_slots: int,
    shown: int,
) -> UInt8[np.ndarray, "time sheet_height sheet_width 3"]:
    """A clip as a video of sheets of one step each; arguments are those of `view_sheet`."""
    given = (frames, painted, labels, true_masks, num_slots, shown)
    return np.stack([view_sheet(*given, steps=[t]) for t in range(len(frames))])
