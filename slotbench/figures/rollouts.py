"""A roll-out beside what really followed, as a sheet of some clips and as a video of one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from slotbench.figures.painting import (
    IN_VIDEO,
    Colour,
    Painted,
    paint_frame,
    paint_overlay,
    paint_slots,
    resize,
    size_within,
)
from slotbench.figures.sheets import DIM, Entry, Row, contact_sheet, film_strip, legend
from slotbench.interfaces import Decoded
from slotbench.metrics.contingency import masks_to_labels

__all__ = ["Baseline", "rollout_sheet", "rollout_video"]

Baseline = tuple[str, Float[Tensor, "*batch horizon channels height width"]]
"""The name of a predictor that learns nothing, and the frames that it predicts."""

_OVERLAY: tuple[Entry, ...] = (((0, 255, 0), "truth"), ((255, 0, 0), "prediction"), ((255, 255, 0), "both"))
_MAX_CLIPS, _MAX_COLUMNS = 3, 10
_CONTEXT, _BLACK, _WHITE = (240, 190, 60), (0, 0, 0), (230, 230, 230)


def rollout_sheet(
    frames: Float[Tensor, "batch time channels height width"],
    decoded: Decoded,
    context: int,
    baseline: Baseline | None = None,
) -> Painted:
    """Per clip: what followed, what was predicted, both over one another, a baseline, and the slot of each pixel.

    Shows at most three clips, and of each at most ten frames, evenly spaced. A legend below says what the rows and
    columns are.
    """
    horizon = decoded.reconstruction.shape[1]
    true = frames[:, context : context + horizon]
    steps = range(0, horizon, max(1, math.ceil(horizon / _MAX_COLUMNS)))
    labels = [f"seen {context}"] + [f"+{step + 1}" for step in steps]
    rows: list[Row] = []
    for i in range(min(len(frames), _MAX_CLIPS)):
        predicted = decoded.reconstruction[i]
        seen = paint_frame(frames[i, context - 1])
        rows.append(Row("truth", [seen, *(paint_frame(true[i, t]) for t in steps)]))
        rows.append(Row("prediction", [seen, *(paint_frame(predicted[t]) for t in steps)]))
        rows.append(Row("both", [seen, *(paint_overlay(true[i, t], predicted[t]) for t in steps)]))
        if baseline is not None:
            name, simple = baseline
            rows.append(Row(name.replace(", ", ",\n"), [seen, *(paint_frame(simple[i, t]) for t in steps)]))
        if decoded.masks is not None:
            slots = _painted_slots(decoded.masks[i], predicted)
            rows.append(Row("slots", [seen, *(slots[t] for t in steps)]))
    entries: list[Entry] = [
        (None, f"seen {context}: the last of {context} true frames that the model reads (context)."),
        (None, f"+n: the n-th of {horizon} frames that follow."),
        (None, "truth: as they were."),
        (None, "prediction: as the model says, from its own frames."),
        (None, "both, over one another:"),
        *_OVERLAY,
    ]
    if baseline is not None:
        entries.append((None, f"{baseline[0]}: the best of what learns nothing."))
    if decoded.masks is not None:
        entries.append((None, "slots: the slot that painted each pixel, dark where the prediction is."))
    return contact_sheet(rows, labels, entries=entries)


def rollout_video(
    true: Float[Tensor, "time channels height width"],
    predicted: Float[Tensor, "horizon channels height width"],
    masks: Float[Tensor, "horizon slots height width"] | None = None,
    baseline: Baseline | None = None,
) -> UInt8[np.ndarray, "time strip_height strip_width 3"]:
    """A video of a roll-out: truth, prediction, both over one another, a baseline and slots, with their names above.

    What comes before the first predicted frame is context: it is shown in all places, in a yellow border, which is grey
    for predicted frames. Below stand the number of the frame, whether it is context or predicted, and the colours of
    the third place. Small frames are enlarged by whole pixels so that the names fit.

    Args:
        true: the clip.
        predicted: its last frames, as the model says.
        masks: share of each slot in each pixel of these.
        baseline: the name of a predictor that learns nothing, and these frames as it says.
    """
    context = len(true) - len(predicted)
    if context < 0:
        raise ValueError(f"{len(predicted)} predicted frames and {len(true)} true ones; expected at least as many true")
    size = size_within(true, *IN_VIDEO)
    seen = [paint_frame(frame) for frame in true[:context]]
    shown = torch.cat([true[:context], predicted])
    panels = {
        "truth": [paint_frame(frame) for frame in true],
        "prediction": [paint_frame(frame) for frame in shown],
        "both": [paint_overlay(frame, other) for frame, other in zip(true, shown, strict=True)],
    }
    if baseline is not None:
        name, simple = baseline
        panels[name.split(",")[0]] = [*seen, *(paint_frame(frame) for frame in simple)]
    if masks is not None:
        panels["slots"] = [*seen, *_painted_slots(masks, predicted)]
    enlarged = {name: np.stack([resize(frame, size) for frame in video]) for name, video in panels.items()}
    strips = film_strip(enlarged, [_CONTEXT] * context + [DIM] * len(predicted))
    names = [f"frame {t + 1}: context" for t in range(context)]
    names += [f"frame {context + t + 1}: predicted (+{t + 1})" for t in range(len(predicted))]
    keys = [_key(name, _CONTEXT if t < context else _WHITE, strips.shape[2]) for t, name in enumerate(names)]
    return np.concatenate([strips, np.stack(keys)], axis=1)


def _painted_slots(
    masks: Float[Tensor, "horizon slots height width"], predicted: Float[Tensor, "horizon channels height width"]
) -> list[Painted]:
    """The slot that painted each pixel, dark where the prediction is."""
    labels, bright = masks_to_labels(masks), (predicted.mean(1) > 0.5).long()
    return [paint_slots(*both) for both in zip(labels, bright, strict=True)]


def _key(text: str, ink: Colour, width: int) -> Painted:
    """The lines below a frame of a roll-out."""
    lines: Sequence[tuple[Sequence[Entry], Colour]] = (([(None, text)], ink), (_OVERLAY, _WHITE))
    return np.concatenate([legend(entries, width, _BLACK, colour, sharp=True) for entries, colour in lines])
