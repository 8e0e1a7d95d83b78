"""The compiled ball simulator. `ball_physics` and `blinking_colours` hold the readable form, of the same bytes.

All that the kernels use is in this file: the compiler's cache on disk notices a change of this file, not of an import.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np

__all__ = ["BOX", "SUBSTEPS", "Kernel", "compiled_paint", "compiled_simulate", "use_numba"]

Kernel = Literal["auto", "numba", "numpy"]

BOX = 10.0
"""Side of the box, in the units of radii and positions."""

SUBSTEPS = 2
"""Steps of 1 / SUBSTEPS frame each between two frames."""


def use_numba(kernel: Kernel) -> bool:
    """Whether `kernel` means the compiled form here: "auto" does where numba is installed.

    Raises:
        ValueError: for a kernel that does not exist.
        RuntimeError: if numba is asked for by name and not installed.
    """
    if kernel not in ("auto", "numba", "numpy"):
        raise ValueError(f"kernel is {kernel!r}; expected 'auto', 'numba' or 'numpy'")
    installed = find_spec("numba") is not None
    if kernel == "numba" and not installed:
        raise RuntimeError("kernel='numba', but numba is not installed: use kernel='numpy' or `pip install numba`")
    return installed and kernel != "numpy"


@lru_cache(maxsize=1)
def compiled_simulate() -> Callable[..., Any]:
    """`_simulate`, compiled on the first call ever and read from disk by later processes."""
    import numba  # takes half a second, so only those who simulate wait for it

    return numba.njit(cache=True, nogil=True)(_simulate)


@lru_cache(maxsize=1)
def compiled_paint() -> Callable[..., Any]:
    """`_paint`, compiled likewise."""
    import numba

    return numba.njit(cache=True, nogil=True)(_paint)


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
    """Fills `positions`, `velocities` and `ids` of every clip; each sum is in the order that `ball_physics` has."""
    num_clips, num_frames, num_balls = positions.shape[0], positions.shape[1], positions.shape[2]
    side = centres.shape[0]
    per_unit = side / BOX
    for clip in range(num_clips):
        x = start[clip].copy()
        v = start_velocity[clip].copy()
        r = radii[clip]
        m = masses[clip]
        for frame in range(num_frames):
            for _ in range(SUBSTEPS if frame > 0 else 0):
                for i in range(num_balls):
                    for axis in range(2):
                        x[i, axis] += (1.0 / SUBSTEPS) * v[i, axis]
                        if x[i, axis] - r[i] < 0.0:
                            v[i, axis] = abs(v[i, axis])
                        if x[i, axis] + r[i] > BOX:
                            v[i, axis] = -abs(v[i, axis])
                for i in range(num_balls):
                    for j in range(i + 1, num_balls):
                        across = x[j, 0] - x[i, 0]
                        down = x[j, 1] - x[i, 1]
                        squared = across * across + down * down
                        reach = r[i] + r[j]
                        if squared >= reach * reach or squared == 0.0:
                            continue
                        distance = math.sqrt(squared)
                        across /= distance
                        down /= distance
                        vi = v[i, 0] * across + v[i, 1] * down
                        vj = v[j, 0] * across + v[j, 1] * down
                        if vi - vj <= 0.0:
                            continue
                        new_vj = (2.0 * m[i] * vi + vj * (m[j] - m[i])) / (m[i] + m[j])
                        new_vi = new_vj + vj - vi
                        v[i, 0] += (new_vi - vi) * across
                        v[i, 1] += (new_vi - vi) * down
                        v[j, 0] += (new_vj - vj) * across
                        v[j, 1] += (new_vj - vj) * down
            positions[clip, frame] = x
            velocities[clip, frame] = v
            # from the last ball to the first, so that of two balls on one pixel the first is seen
            for i in range(num_balls - 1, -1, -1):
                squared_radius = r[i] * r[i]
                # a box a pixel wider than the disc: what counts is the test on the pixel's centre
                left = max(0, int((x[i, 0] - r[i]) * per_unit) - 1)
                right = min(side, int((x[i, 0] + r[i]) * per_unit) + 2)
                top = max(0, int((x[i, 1] - r[i]) * per_unit) - 1)
                bottom = min(side, int((x[i, 1] + r[i]) * per_unit) + 2)
                for row in range(top, bottom):
                    below = centres[row] - x[i, 1]
                    below_squared = below * below
                    for column in range(left, right):
                        beside = centres[column] - x[i, 0]
                        if below_squared + beside * beside <= squared_radius:
                            ids[clip, frame, row, column] = i + 1


def _paint(
    ids: np.ndarray,
    shown: np.ndarray,
    asked: np.ndarray,
    palette: np.ndarray,
    frames: np.ndarray,
    masks: np.ndarray,
    targets: np.ndarray,
) -> None:
    """Fills `frames` and `masks`, cut into cells, and `targets` from instance ids and each instance's class."""
    num_clips, num_context, side = targets.shape[0], targets.shape[1], targets.shape[2]
    cell = masks.shape[2]
    per_side = side // cell
    for clip in range(num_clips):
        for frame in range(num_context):
            for row in range(side):
                for column in range(side):
                    targets[clip, frame, row, column] = asked[clip, frame, ids[clip, frame + 1, row, column]]
            for place in range(per_side * per_side):
                step = frame * per_side * per_side + place
                top = place // per_side * cell
                left = place % per_side * cell
                for row in range(cell):
                    for column in range(cell):
                        seen = ids[clip, frame, top + row, left + column]
                        masks[clip, step, row, column] = seen
                        for channel in range(3):
                            frames[clip, step, channel, row, column] = palette[shown[clip, frame, seen], channel]
