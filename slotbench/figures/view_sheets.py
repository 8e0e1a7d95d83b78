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
    slot_colour,
)
from slotbench.figures.sheets import Row, contact_sheet, film_strip

__all__ = ["turn_video", "view_sheet", "view_video", "without_sheet"]

Views = Float[Tensor, "time views channels height width"]
Labels = Integer[Tensor, "time views height width"]

_LEAST, _MOST = 64, 80
_LEAST_OF_TURN, _MOST_OF_TURN = 128, 160


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
        shown: cameras that are shown to the encoder, the first ones.
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
    return contact_sheet(rows, _names(frames.shape[1], shown), size)


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


def without_sheet(
    frames: Float[Tensor, "views channels height width"],
    painted: Float[Tensor, "views channels height width"],
    without: Float[Tensor, "slots views channels height width"],
    shown: int,
) -> Painted:
    """One step in all cameras: the frame, what is painted, and the same with one slot after the other taken out."""
    size = size_within(frames, _LEAST, _MOST)
    images = {"frame": frames, "painted": painted}
    rows = [Row(name, [resize(paint_frame(image), size) for image in views]) for name, views in images.items()]
    for slot, views in enumerate(without):
        taken = [resize(paint_frame(image), size) for image in views]
        rows.append(Row(f"without\nslot {slot}", taken, slot_colour(slot)))
    return contact_sheet(rows, _names(len(frames), shown), size)


def turn_video(
    painted: Float[Tensor, "time channels height width"], labels: Integer[Tensor, "time height width"] | None
) -> UInt8[np.ndarray, "time strip_height strip_width 3"]:
    """What a camera that moves is painted, beside the winning slot of each pixel, if there are masks."""
    size = size_within(painted, _LEAST_OF_TURN, _MOST_OF_TURN)
    panels = {"painted": np.stack([resize(paint_frame(image), size) for image in painted])}
    if labels is not None:
        over = zip(painted, labels, strict=True)
        panels["slots"] = np.stack([paint_slots_over(image, winners, size) for image, winners in over])
    return film_strip(panels)


def _names(views: int, shown: int) -> list[str]:
    return ["shown" if view < shown else "held out" for view in range(views)]
