"""What a roll-out looks like, beside what really followed."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, UInt8
from torch import Tensor

from slotbench.interfaces import Decoded
from slotbench.metrics.contingency import masks_to_labels
from slotbench.tasks.pictures import OVERLAY, Entry, contact_sheet, paint_frame, paint_overlay, paint_slots

__all__ = ["rollout_sheet"]

_MAX_CLIPS, _MAX_COLUMNS = 3, 10


def rollout_sheet(
    frames: Float[Tensor, "batch time channels height width"], decoded: Decoded, context: int
) -> UInt8[np.ndarray, "sheet_height sheet_width 3"]:
    """Per clip: what followed, what was predicted, both over one another, and which slot painted each pixel.

    Shows at most three clips, and of each at most ten frames, evenly spaced. A legend below says what the rows and
    columns are.

    Args:
        frames: the true clips, context and horizon.
        decoded: the roll-out.
        context: true frames that it started from.
    """
    horizon = decoded.reconstruction.shape[1]
    true = frames[:, context : context + horizon]
    steps = range(0, horizon, max(1, math.ceil(horizon / _MAX_COLUMNS)))
    labels = [f"seen {context}"] + [f"+{step + 1}" for step in steps]
    rows, names = [], []
    for i in range(min(len(frames), _MAX_CLIPS)):
        predicted = decoded.reconstruction[i]
        seen = paint_frame(frames[i, context - 1])
        rows.append([seen, *(paint_frame(true[i, t]) for t in steps)])
        rows.append([seen, *(paint_frame(predicted[t]) for t in steps)])
        rows.append([seen, *(paint_overlay(true[i, t], predicted[t]) for t in steps)])
        names += ["truth", "prediction", "both"]
        if decoded.masks is not None:
            masks = masks_to_labels(decoded.masks[i])
            bright = [(predicted[t].mean(0) > 0.5).long() for t in steps]
            rows.append([seen, *(paint_slots(masks[t], b) for t, b in zip(steps, bright, strict=True))])
            names.append("slots")
    entries: list[Entry] = [
        (None, f"seen {context}: the last of {context} true frames that the model reads (context)."),
        (None, f"+n: the n-th of {horizon} frames that follow."),
        (None, "truth: as they were."),
        (None, "prediction: as the model says, from its own frames."),
        (None, "both, over one another:"),
        *OVERLAY,
    ]
    if decoded.masks is not None:
        entries.append((None, "slots: the slot that painted each pixel, dark where the prediction is."))
    return contact_sheet(rows, labels, names, entries=entries)
