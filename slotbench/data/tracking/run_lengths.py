"""Binary masks as run lengths: pixels in row-major order, "start length start length ...", starts counted from 1.

That is the encoding of the annotations and predictions of the object-centric representation benchmark
(github.com/ecker-lab/object-centric-representation-benchmark, `ocrb/eval/eval_utils.py`). It is another than that of
COCO, which goes column by column and counts the runs of both values.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool

from slotbench.errors import DataFilesError

__all__ = ["decode_runs", "encode_runs"]

_MOST_DIGITS = 10


def decode_runs(text: str, height: int, width: int) -> Bool[np.ndarray, "height width"]:
    """The pixels of a mask.

    Args:
        text: the runs.
        height: of the frame.
        width: of the frame.

    Raises:
        DataFilesError: these are no pairs of whole numbers, or a run leaves the frame.

    Example:
        >>> decode_runs("2 2 6 1", 2, 3).astype(int)
        array([[0, 1, 1],
               [0, 0, 1]])
    """
    words, pixels = text.split(), height * width
    if len(words) % 2 or any(not (word.isascii() and word.isdigit()) or len(word) > _MOST_DIGITS for word in words):
        raise DataFilesError(
            f"a mask is {text[:40]!r}; expected runs as pairs of whole numbers, 'start length start length ...'"
        )
    runs = np.array(words, dtype=np.int64).reshape(-1, 2)
    starts, stops = runs[:, 0] - 1, runs.sum(1) - 1
    if len(runs) and (starts.min() < 0 or runs[:, 1].min() < 1 or stops.max() > pixels):
        raise DataFilesError(
            f"a mask is {text[:40]!r}, a run of which leaves the {pixels} pixels of a frame of {height} x {width}; "
            "expected starts from 1 on"
        )
    # +1 where a run starts and -1 behind its end, so that the sum counts the runs over a pixel
    edges = np.zeros(pixels + 1, dtype=np.int64)
    np.add.at(edges, starts, 1)
    np.add.at(edges, stops, -1)
    covered: np.ndarray = edges[:-1].cumsum() > 0
    return covered.reshape(height, width)


def encode_runs(mask: Bool[np.ndarray, "height width"]) -> str:
    """The runs of a mask.

    Example:
        >>> encode_runs(np.array([[False, True, True], [False, False, True]]))
        '2 2 6 1'
    """
    flat = np.concatenate([[0], np.asarray(mask, dtype=np.int8).ravel(), [0]])
    edges = np.flatnonzero(np.diff(flat)) + 1
    starts, stops = edges[::2], edges[1::2]
    return " ".join(f"{start} {stop - start}" for start, stop in zip(starts, stops, strict=True))
