"""The compiled generator of Moving-MNIST. `moving_mnist` holds the readable form, of the same bytes.

All that the kernel uses is in this file: the compiler's cache on disk notices a change of this file, not of an import.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

__all__ = ["compiled_move_and_draw"]


@lru_cache(maxsize=1)
def compiled_move_and_draw() -> Callable[..., Any]:
    """`_move_and_draw`, compiled on the first call ever and read from disk by later processes."""
    import numba  # takes half a second, so only those who make clips wait for it

    return numba.njit(cache=True, nogil=True)(_move_and_draw)


def _move_and_draw(
    images: np.ndarray,
    start: np.ndarray,
    start_velocity: np.ndarray,
    mask_threshold: int,
    positions: np.ndarray,
    velocities: np.ndarray,
    frames: np.ndarray,
    masks: np.ndarray,
) -> None:
    """Fills `positions`, `velocities`, `frames` and `masks` of every clip; the latter two come as zeros."""
    num_clips, num_frames, num_digits = positions.shape[0], positions.shape[1], positions.shape[2]
    size = images.shape[2]
    span = frames.shape[2] - size
    threshold = np.uint8(mask_threshold)
    for clip in range(num_clips):
        x = start[clip].copy()
        v = start_velocity[clip].copy()
        for frame in range(num_frames):
            for i in range(num_digits):
                name = np.uint8(i + 1)
                for axis in range(2):
                    x[i, axis] += v[i, axis]
                    if x[i, axis] <= 0.0:
                        x[i, axis] = 0.0
                        v[i, axis] = -v[i, axis]
                    if x[i, axis] >= 1.0:
                        x[i, axis] = 1.0
                        v[i, axis] = -v[i, axis]
                left = int(span * x[i, 0])
                top = int(span * x[i, 1])
                for row in range(size):
                    # lines counted from 0, and no branch: the compiler then takes many pixels at a time
                    digit = images[clip, i, row]
                    seen = frames[clip, frame, top + row, left : left + size]
                    owner = masks[clip, frame, top + row, left : left + size]
                    for column in range(size):
                        value, before, owned = digit[column], seen[column], owner[column]
                        owner[column] = name if value > before and value > threshold else owned
                        seen[column] = max(value, before)
            positions[clip, frame] = x
            velocities[clip, frame] = v
