"""Scene files of CATER: the place of every object in every frame, and which cone covers which object."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slotbench.data.formats.annotations import read_annotations

__all__ = ["MOST_OBJECTS", "SHAPES", "CaterScene", "cell_of", "read_scene"]

MOST_OBJECTS = 12
SHAPES = ("cube", "cylinder", "sphere", "cone", "spl")
"""By label, as in `CATERLike`; "spl" is the snitch."""

_HALF_FLOOR = 3.0
_LAYOUT = (
    "expected `objects`, each with instance, shape, sized and locations (frame: x, y, z), and `movements`, for each "
    "instance lists of action, other instance, first and last frame"
)


@dataclass(frozen=True)
class CaterScene:
    """A video's annotation; the snitch is the first object.

    Attributes:
        shapes: places in `SHAPES` "objects".
        positions: "time objects 3".
        holders: the object that contains an object directly, -1 for none "time objects".
        sizes: half the width of each object, 0 where the file does not say "objects".
    """

    shapes: np.ndarray
    positions: np.ndarray
    holders: np.ndarray
    sizes: np.ndarray

    @property
    def last_uncovered(self) -> int:
        """The last frame in which nothing contains the snitch."""
        free = np.flatnonzero(self.holders[:, 0] < 0)
        return int(free[-1]) if len(free) else 0

    @property
    def was_moved(self) -> bool:
        """Whether a cone is over the snitch at the end and has moved it since it came."""
        way = self.positions[-1, 0, :2] - self.positions[self.last_uncovered, 0, :2]
        return bool(self.holders[-1, 0] >= 0 and abs(way).max() > 1e-3)


def cell_of(positions: np.ndarray, grid: int) -> np.ndarray:
    """The cell "..." of positions "... 2 or more", by the rule of the released lists; on an edge in the upper cell.

    For 6 x 6 it is (floor(y) + 3) * 6 + floor(x) + 3. What lies past the last row or column counts to it: the released
    script does not clip, and would give the cell of another row.
    """
    # floored before half the grid is added: a sum would round -1e-17 up into the cell above
    at = np.floor(positions[..., :2] * (grid / (2 * _HALF_FLOOR))).astype(np.int64) + grid // 2
    at = at.clip(0, grid - 1)
    return at[..., 1] * grid + at[..., 0]


def read_scene(path: Path) -> CaterScene:
    """The annotation in a file."""
    return read_annotations(path, _parsed, "scenes", _LAYOUT)


def _parsed(content: dict[str, Any]) -> CaterScene:
    objects = content["objects"]
    if not 1 <= len(objects) <= MOST_OBJECTS:
        raise ValueError(f"{len(objects)} objects")
    objects = sorted(objects, key=lambda item: item["shape"] != "spl")
    if [item["shape"] for item in objects].count("spl") != 1:
        raise ValueError("there is not one snitch")
    shapes = np.array([SHAPES.index(item["shape"]) for item in objects])
    last = max(int(frame) for item in objects for frame in item["locations"])
    positions = np.full((last + 1, len(objects), 3), np.nan)
    for index, item in enumerate(objects):
        for frame, place in item["locations"].items():
            positions[int(frame), index] = [float(value) for value in place]
    if not np.isfinite(positions).all():
        raise ValueError("an object has no place in some frame")
    names = {item["instance"]: index for index, item in enumerate(objects)}
    sizes = np.array([float(item.get("sized", 0.0)) for item in objects])
    return CaterScene(shapes, positions, _holders(content["movements"], names, last + 1), sizes)


def _holders(movements: dict[str, Any], names: dict[str, int], frames: int) -> np.ndarray:
    """From when a contained object is contained (the end of the move), to when its container is picked up."""
    holders = np.full((frames, len(names)), -1)
    events = []
    for name, moves in movements.items():
        for action, other, first, last in moves:
            kind = str(action).strip("_")
            if kind == "contain":
                events.append((int(last), 1, names[name], names[other]))
            if kind in ("contain", "pick_place"):  # a cone that moves on to contain lets go of nothing else
                events.append((int(first), 0, names[name], -1))
    for frame, contains, mover, target in sorted(events):
        if contains:
            holders[frame:, target] = mover
        else:
            held = np.flatnonzero(holders[min(frame, frames - 1)] == mover)
            holders[frame:, held] = -1
    return holders
