"""The compiled form of the ball simulator. `ball_physics` holds the readable one; both give the same bytes.

Everything the kernel uses is in this file: the compiler's on-disk cache notices a change of this file, not of one it imports.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

__all__ = ["BOX", "SUBSTEPS", "compiled"]

BOX = 10.0
"""Side of the box, in the units of radii and positions."""

SUBSTEPS = 2
"""Steps of 1 / SUBSTEPS frame each between two frames."""


def _simulate(
    start: np.ndarray,
    start_velocity: np.ndarray,
    radii: np.ndarray,
    masses: np.ndarray,
    centres: np.ndarray,
    positions: np.ndarray,
    velocities: np.ndarray,
    ids: np.ndarray,
) -> None:
    """Fills `positions`, `velocities` and `ids` frame by frame; every sum is in the order that `ball_physics` has."""
    num_frames, num_balls = positions.shape[0], positions.shape[1]
    side = centres.shape[0]
    step = 1.0 / SUBSTEPS
    per_unit = side / BOX
    x = start.copy()
    v = start_velocity.copy()
    for frame in range(num_frames):
        if frame > 0:
            for _ in range(SUBSTEPS):
                for i in range(num_balls):
                    for axis in range(2):
                        x[i, axis] += step * v[i, axis]
                        if x[i, axis] - radii[i] < 0.0:
                            v[i, axis] = abs(v[i, axis])
                        if x[i, axis] + radii[i] > BOX:
                            v[i, axis] = -abs(v[i, axis])
                for i in range(num_balls):
                    for j in range(i + 1, num_balls):
                        across = x[j, 0] - x[i, 0]
                        down = x[j, 1] - x[i, 1]
                        squared = across * across + down * down
                        reach = radii[i] + radii[j]
                        if squared >= reach * reach or squared == 0.0:
                            continue
                        distance = math.sqrt(squared)
                        across /= distance
                        down /= distance
                        vi = v[i, 0] * across + v[i, 1] * down
                        vj = v[j, 0] * across + v[j, 1] * down
                        if vi - vj <= 0.0:
                            continue
                        new_vj = (2.0 * masses[i] * vi + vj * (masses[j] - masses[i])) / (masses[i] + masses[j])
                        new_vi = new_vj + vj - vi
                        v[i, 0] += (new_vi - vi) * across
                        v[i, 1] += (new_vi - vi) * down
                        v[j, 0] += (new_vj - vj) * across
                        v[j, 1] += (new_vj - vj) * down
        for i in range(num_balls):
            positions[frame, i, 0] = x[i, 0]
            positions[frame, i, 1] = x[i, 1]
            velocities[frame, i, 0] = v[i, 0]
            velocities[frame, i, 1] = v[i, 1]
        # from the last ball to the first, so that of two balls on one pixel the first is seen
        for i in range(num_balls - 1, -1, -1):
            squared_radius = radii[i] * radii[i]
            # one pixel wider than the disc: what counts is the test on the pixel's centre
            left = max(0, int((x[i, 0] - radii[i]) * per_unit) - 1)
            right = min(side, int((x[i, 0] + radii[i]) * per_unit) + 2)
            top = max(0, int((x[i, 1] - radii[i]) * per_unit) - 1)
            bottom = min(side, int((x[i, 1] + radii[i]) * per_unit) + 2)
            for row in range(top, bottom):
                below = centres[row] - x[i, 1]
                below_squared = below * below
                for column in range(left, right):
                    beside = centres[column] - x[i, 0]
                    if below_squared + beside * beside <= squared_radius:
                        ids[frame, row, column] = i + 1


@lru_cache(maxsize=1)
def compiled() -> Callable[..., Any]:
    """The kernel, compiled on the first call ever and read from disk by later processes.

    Raises:
        ImportError: if numba is not installed.
    """
    import numba

    return numba.njit(cache=True, nogil=True)(_simulate)
