"""The released videos of CATER, whole, for a cache, and their scenes: where objects are, and what covers them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slotbench.data.base import padded
from slotbench.data.clips import ClipReader
from slotbench.data.formats.annotations import read_annotations
from slotbench.data.formats.images import Fit
from slotbench.data.formats.movies import MovieFile
from slotbench.errors import DataFilesError

__all__ = ["LAYOUT", "MOST_OBJECTS", "SHAPES", "TIMED", "CaterScene", "ReleasedVideos", "cell_of", "number_of"]
__all__ += ["read_scene"]

LAYOUT = (
    "expected what the archives of one version of CATER (max2action or all_actions) hold: videos/CATER_new_*.avi, "
    "scenes/CATER_new_*.json, and lists/localize/{train,val,train_subsetT,train_subsetV}.txt; `slotbench prepare CATER "
    "--path DIR --out CACHE` makes a cache of it that path may name too"
)

TIMED = ("positions", "holders")
"""The entries of a cache that have an axis of frames after that of videos."""


class ReleasedVideos(ClipReader):
    """Videos of some names, with their scenes; all as long as the first."""

    def __init__(self, path: Path, resolution: int, names: Sequence[str], scenes: bool) -> None:
        self.path, self.names, self.scenes = path, names, scenes
        self.fit = Fit(resolution, resolution, mode="stretch")
        self.lengths = np.full(len(names), self._movie(names[0]).length)

    def clip(self, video: int, frames: range) -> dict[str, np.ndarray]:
        """A whole video."""
        name, length = self.names[video], len(frames)
        movie = self._movie(name)
        shown = movie.fitted(frames, self.fit)
        if movie.length != length:
            raise DataFilesError(f"{movie.path} has {movie.length} frames, and the first video of the lists {length}")
        found = {"frames": shown, "number": np.array(number_of(name))}
        if not self.scenes:
            return found
        scene = read_scene(self.path / "scenes" / f"{name}.json")
        if len(scene.positions) != length:
            raise DataFilesError(f"the scene of {movie.path} has {len(scene.positions)} frames, not {length}")
        return found | {
            # doubles: rounded ones might lie in another cell
            "positions": padded(scene.positions, MOST_OBJECTS, axis=1),
            "holders": padded(scene.holders.astype(np.int8), MOST_OBJECTS, axis=1, fill=-1),
            "shape_label": padded(scene.shapes, MOST_OBJECTS, fill=-1),
            "sizes": padded(scene.sizes, MOST_OBJECTS),
        }

    def _movie(self, name: str) -> MovieFile:
        file = self.path / "videos" / f"{name}.avi"
        if not file.is_file():
            raise DataFilesError(f"there is no video {file}; {LAYOUT}")
        return MovieFile(file)


def number_of(name: str) -> int:
    """The number in the name of a video."""
    return int(name.rpartition("_")[2])


MOST_OBJECTS = 12
SHAPES = ("cube", "cylinder", "sphere", "cone", "spl")
"""By label, as in `CATERLike`; "spl" is the snitch."""

_HALF_FLOOR = 3.0
_SCENE = (
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
    return read_annotations(path, _parsed, "scenes", _SCENE)


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
