"""The released masks of CLEVRER: detections of Mask R-CNN in each frame, which are pseudo masks and not the truth."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from slotbench.data.clevrer.annotation import Appearance
from slotbench.data.formats.annotations import read_annotations
from slotbench.data.formats.coco_runs import decode_coco_runs

__all__ = ["pseudo_masks"]

_MOST_IDS = 255
_MOST_DETECTIONS = 1000  # of a frame
_LAYOUT = (
    "expected `frames`, each with frame_index and `objects`, each of these with color, material, shape, score, and a "
    "mask of size (height, width) and counts, as in derender_proposals"
)


def pseudo_masks(
    path: Path, frames: Sequence[int], size: tuple[int, int], known: Sequence[Appearance] | None = None
) -> UInt8[np.ndarray, "time height width"]:
    """Ids of frames: a detection is the object of the same colour, material and shape, and the background is 0.

    Of several detections of one object in a frame the one of the highest score counts, and where detections overlap the
    pixel is of the higher score. A detection that is like no known object is background.

    Args:
        path: proposal_NNNNN.json.
        frames: numbers in the video.
        size: height and width of the video's frames.
        known: objects in the order of their ids; None to number them as the file first names them.

    Raises:
        DataFilesError: the file is not there, or not what it should be.
    """
    paint = partial(_painted, numbers=frames, size=size, known=known)
    return read_annotations(path, paint, "file of proposals of CLEVRER", "masks", _LAYOUT)


def _painted(
    content: dict[str, Any], numbers: Sequence[int], size: tuple[int, int], known: Sequence[Appearance] | None
) -> np.ndarray:
    frames = {frame["frame_index"]: frame["objects"] for frame in content["frames"]}
    if known is None:
        known = list(dict.fromkeys(_appearance(item) for frame in sorted(frames) for item in frames[frame]))
    if len(known) > _MOST_IDS:
        raise ValueError(f"{len(known)} objects")
    ids = {appearance: number for number, appearance in enumerate(known, start=1)}
    masks = np.zeros((len(numbers), *size), np.uint8)
    for mask, number in zip(masks, numbers, strict=True):
        if number not in frames:
            raise ValueError(f"it has no frame {number}")
        if len(frames[number]) > _MOST_DETECTIONS:
            raise ValueError(f"{len(frames[number])} objects in frame {number}")
        best: dict[Appearance, tuple[float, Any]] = {}
        for item in frames[number]:
            appearance, score = _appearance(item), float(item["score"])
            if appearance in ids and (appearance not in best or score > best[appearance][0]):
                best[appearance] = (score, item["mask"])
        # the highest score last, over all others
        for appearance, (_, found) in sorted(best.items(), key=lambda entry: entry[1][0]):
            if list(found["size"]) != list(size):
                raise ValueError(f"a mask of {str(found['size'])[:30]} in a frame of {size[0]} x {size[1]} pixels")
            mask[decode_coco_runs(found["counts"], *size)] = ids[appearance]
    return masks


def _appearance(item: Any) -> Appearance:
    return str(item["color"]), str(item["material"]), str(item["shape"])
