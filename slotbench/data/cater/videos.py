"""The released videos and scenes of CATER, whole, for a cache."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from slotbench.data.base import padded
from slotbench.data.cater.scene import MOST_OBJECTS, read_scene
from slotbench.data.clips import ClipReader
from slotbench.data.formats.images import Fit
from slotbench.data.formats.movies import MovieFile
from slotbench.errors import DataFilesError

__all__ = ["LAYOUT", "TIMED", "ReleasedVideos", "number_of"]

LAYOUT = (
    "expected what the archives of one version of CATER (max2action or all_actions) hold: videos/CATER_new_*.avi, "
    "scenes/CATER_new_*.json, and lists/localize/{train,val,train_subsetT,train_subsetV}.txt; `slotbench prepare CATER "
    "--path DIR --out CACHE` makes a cache of it that path may name too"
)

TIMED = ("positions", "holders")
"""The entries of a cache that have an axis of frames after that of videos."""


class ReleasedVideos(ClipReader):
    """Videos of some names, with their scenes; all as long as the first.

    Args:
        path: the folder of one version.
        resolution: pixels per side.
        names: of the videos, in order.
        scenes: reads the annotations too.
    """

    def __init__(self, path: Path, resolution: int, names: Sequence[str], scenes: bool) -> None:
        self.path, self.names, self.scenes = path, names, scenes
        self.fit = Fit(resolution, resolution, crop=False)
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
