"""What `predict --save` writes: slots and masks of one video as an npz file that says what its axes are.

    slots           float32         time slots dim
    masks           uint8, uint16   time height width            the slot that has each pixel
    soft_masks      float16         time slots height width      the share of each slot in each pixel
    reconstruction  uint8           time channels height width   what the model painted
    frame           int64           time                         the number of each of these frames in the source
    source, about, axes             text: the source video; the run and its checkpoint; the axes of each array, as JSON

`numpy.load(path)` reads it; nothing in it is pickled.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from slotbench.errors import UserError, lines

__all__ = ["AXES", "arrays_of_clip", "write_arrays"]

AXES = {
    "slots": "time slots dim",
    "masks": "time height width",
    "soft_masks": "time slots height width",
    "reconstruction": "time channels height width",
}
"""What can be saved, and the axes of each."""


def arrays_of_clip(found: Mapping[str, Tensor], clip: int, names: Iterable[str], task: str) -> dict[str, np.ndarray]:
    """The arrays of one clip, out of what a task's `predict_step` has returned.

    Args:
        found: "slots", soft "masks" with a share for each slot, "labels" (the slot of each pixel), "frames" in [0, 1].
        clip: which clip of the batch.
        names: keys of `AXES`.
        task: the task's name, for messages.

    Raises:
        UserError: the task does not give what is asked for.
    """
    found = found if isinstance(found, Mapping) else {}
    there: dict[str, Any] = {}
    if "slots" in found:
        there["slots"] = lambda: found["slots"][clip].float()
    if "masks" in found:
        soft = found["masks"][clip]
        # a task with one target has no axis of time
        soft = soft if soft.ndim == 4 else soft[None]
        there["masks"] = lambda: _ids(soft.argmax(1), soft.shape[1])
        there["soft_masks"] = lambda: soft.half()
    if "labels" in found:
        there["masks"] = lambda: _ids(found["labels"][clip], _slots(found))
    if "frames" in found:
        there["reconstruction"] = lambda: (found["frames"][clip].float().clamp(0, 1) * 255).round().to(torch.uint8)
    absent = [name for name in names if name not in there]
    if absent:
        raise UserError(
            lines(
                f"{task} gives no {', '.join(absent)} to save",
                available=", ".join(name for name in AXES if name in there),
            )
        )
    return {name: there[name]().cpu().numpy() for name in names}


def write_arrays(
    path: Path,
    arrays: Mapping[str, np.ndarray],
    frames: Sequence[int] | np.ndarray,
    source: str,
    about: Mapping[str, Any],
) -> Path:
    """Writes `path`.npz; the file gets its name once it is whole, and arrays may be mapped ones.

    Args:
        path: without the ending.
        arrays: by keys of `AXES`.
        frames: the number of each frame in the source.
        source: where the video is from.
        about: the run, the checkpoint and the like.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    complete, partial = path.with_name(f"{path.name}.npz"), path.with_name(f".{path.name}.npz.partial")
    everything: dict[str, Any] = {
        **arrays,
        "frame": np.asarray(frames, np.int64),
        "source": np.array(source),
        "about": np.array(json.dumps(dict(about))),
        "axes": np.array(json.dumps({name: AXES[name] for name in arrays} | {"frame": "time"})),
    }
    try:
        with partial.open("wb") as file:
            np.savez_compressed(file, **everything)
        os.replace(partial, complete)
    finally:
        partial.unlink(missing_ok=True)
    return complete


def _slots(found: Mapping[str, Tensor]) -> int:
    return found["masks"].shape[-3] if "masks" in found else int(found["labels"].max()) + 1


def _ids(labels: Tensor, slots: int) -> Tensor:
    return labels.to(torch.uint8 if slots <= 256 else torch.uint16)
