"""Which slot took what: a sheet and a video of one clip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float, Integer, UInt8
from torch import Tensor

from slotbench.figures.painting import (
    IN_VIDEO,
    Painted,
    evenly_spaced,
    match_slots,
    paint_alone,
    paint_frame,
    paint_objects,
    paint_slots_over,
    resize,
    size_within,
    slot_colour,
)
from slotbench.figures.sheets import Row, contact_sheet, film_strip
from slotbench.metrics.contingency import masks_to_labels

__all__ = ["frame_panel", "slot_panel", "slot_strips", "slot_video"]

Frames = Float[Tensor, "time channels height width"]
Images = Float[Tensor, "time out_channels height width"]
Masks = Float[Tensor, "time slots height width"]
Labels = Integer[Tensor, "time height width"]
Strips = UInt8[np.ndarray, "time strip_height strip_width 3"]

# shorter and longer limits of an image's longer side in pixels
_ON_SHEET, _ON_LONG_SHEET, _LONG_SHEET_SLOTS = (96, 160), (64, 80), 12
_FAINT = 0.1  # largest share of a slot that is not worth a row


def slot_panel(
    frames: Frames,
    reconstruction: Images | None,
    masks: Masks,
    components: Float[Tensor, "time slots out_channels height width"] | None = None,
    true_masks: Labels | None = None,
    attention_masks: Masks | None = None,
    times: Sequence[int] | None = None,
    shares: Float[Tensor, " slots"] | None = None,
    partners: dict[int, int] | None = None,
    target: Images | None = None,
    clusters: Labels | None = None,
) -> Painted:
    """One clip on a sheet, time from left to right, at most eight frames, the first and the last among them.

    The rows are the frame, what was to be painted if that is something else, its reconstruction, the winning slot of
    each pixel over the frame (of the decoder's masks, and of the attention's), clusters of the features that the model
    reads, the true objects, and then each slot alone: its image where its mask is, light grey where it is not, with the
    share of the clip's pixels that it wins. A slot that wins none is shown through its attention, if that wins some, or
    not at all, if its mask is faint. Small frames are enlarged by whole pixels, large ones shrunk; with more than
    twelve slots all is smaller.

    Args:
        frames: the clip, in [0, 1].
        reconstruction: what the model made of it; absent where that is no image.
        masks: share of each slot in each pixel; `attention_masks` by where it attended.
        components: each slot's own image; absent, the frame is shown through the mask.
        true_masks: ids of objects, 0 = background.
        times: the frames' numbers in a longer video, if these are not all of it.
        shares: of the pixels of that video that each slot wins.
        partners: id of an object -> its slot, over that video.
        target: what was to be painted; absent where that is the frames.
        clusters: of k-means on the features, by the number of the slot in whose colour each is shown.
    """
    slots = masks.shape[1]
    size = size_within(frames, *(_ON_SHEET if slots <= _LONG_SHEET_SLOTS else _ON_LONG_SHEET))
    chosen = evenly_spaced(0, len(frames) - 1)
    labels = masks_to_labels(masks)
    if true_masks is not None and partners is None:
        partners = match_slots(labels, true_masks, slots)
    attended = None if attention_masks is None else masks_to_labels(attention_masks)
    winners = {"slots": labels, "attention": attended, "k-means": clusters}
    images = {"frame": frames, "target": target, "reconstruction": reconstruction}
    overview = _overview(images, winners, true_masks, partners, size, chosen)
    rows = [Row(name, shown) for name, shown in overview.items()]
    if shares is None:
        shares = torch.bincount(labels.flatten(), minlength=slots).cpu() / labels.numel()  # what is last is no slot's
    unused = []
    for slot in range(slots):
        own, mask = frames if components is None else components[:, slot], masks[:, slot]
        label = _percent(float(shares[slot]))
        if shares[slot] == 0 and attention_masks is not None and attended is not None and (attended == slot).any():
            own, mask, label = frames, attention_masks[:, slot], "attention"
        elif shares[slot] == 0 and mask.max() < _FAINT:
            unused.append(str(slot))
            continue
        alone = [resize(paint_alone(own[t], mask[t]), size) for t in chosen]
        rows.append(Row(f"slot {slot}\n{label}", alone, slot_colour(slot)))
    note = [(None, f"slots that have nothing: {', '.join(unused)}")] if unused else []
    return contact_sheet(rows, [f"t = {t if times is None else times[t]}" for t in chosen], size, note)


def frame_panel(rows: Mapping[str, Frames]) -> Painted:
    """At most eight frames of videos of one clip, a row per video with its name."""
    chosen = evenly_spaced(0, len(next(iter(rows.values()))) - 1)
    painted = [Row(name, [paint_frame(frames[t]) for t in chosen]) for name, frames in rows.items()]
    return contact_sheet(painted, [f"t = {t}" for t in chosen])


def slot_video(
    frames: Frames,
    reconstruction: Images | None,
    masks: Masks,
    true_masks: Labels | None = None,
    target: Images | None = None,
    clusters: Labels | None = None,
    attended: Labels | None = None,
) -> Strips:
    """The video of a whole clip, whose frames `slot_strips` makes.

    Args:
        frames: the clip; the arguments that are not described here are those of `slot_strips`.
        reconstruction: what the model made of it.
        masks: share of each slot in each pixel.
        true_masks: ids of objects.
        target: what was to be painted.
        clusters: of the features.
        attended: the slot that wins each pixel by its attention.
    """
    labels = masks_to_labels(masks)
    partners = None if true_masks is None else match_slots(labels, true_masks, masks.shape[1])
    return slot_strips(frames, reconstruction, labels, true_masks, partners, target, clusters, attended)


def slot_strips(
    frames: Frames,
    reconstruction: Images | None,
    labels: Labels,
    true_masks: Labels | None = None,
    partners: dict[int, int] | None = None,
    target: Images | None = None,
    clusters: Labels | None = None,
    attended: Labels | None = None,
) -> Strips:
    """Frames as a video: frame, reconstruction, slots and clusters over the frame and true objects, side by side.

    Args:
        frames: a clip, or some frames of a longer video, in [0, 1].
        reconstruction: what the model made of them; absent where that is no image.
        labels: the winning slot of each pixel.
        true_masks: ids of objects, 0 = background.
        partners: id of an object -> its slot, over the whole video, as `match_slots` finds them.
        target: what was to be painted, where that is not the frames.
        clusters: of k-means on the features, as in `slot_panel`.
        attended: the slot that wins each pixel by its attention.
    """
    images = {"frame": frames, "target": target, "reconstruction": reconstruction}
    size = size_within(frames, *IN_VIDEO)
    winners = {"slots": labels, "attention": attended, "k-means": clusters}
    panels = _overview(images, winners, true_masks, partners, size, range(len(frames)))
    return film_strip({name: np.stack(video) for name, video in panels.items()})


def _overview(
    images: Mapping[str, Tensor | None],
    winners: Mapping[str, Labels | None],
    true_masks: Labels | None,
    partners: dict[int, int] | None,
    size: tuple[int, int],
    steps: Sequence[int],
) -> dict[str, list[Painted]]:
    """Images of these steps by name: those that there are, the winning slots over the frame, and the true objects."""
    there = {name: frames for name, frames in images.items() if frames is not None}
    found = {name: [resize(paint_frame(frames[t]), size) for t in steps] for name, frames in there.items()}
    for name, labels in winners.items():
        if labels is None:
            continue
        found[name] = [paint_slots_over(there["frame"][t], labels[t], size) for t in steps]
    if true_masks is not None:
        found["truth"] = [paint_objects(true_masks[t], partners or {}, size) for t in steps]
    return found


def _percent(share: float) -> str:
    return "none" if share == 0 else "< 1 %" if share < 0.01 else f"{100 * share:.0f} %"
