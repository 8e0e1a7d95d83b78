"""Sources of the videos and scenes of CATER: the released files, or a cache of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from slotbench.data.base import padded
from slotbench.data.cater.scene import MOST_OBJECTS, CaterScene, read_scene
from slotbench.data.clip_cache import ClipCache
from slotbench.data.clips import ClipReader
from slotbench.data.formats.images import Fit
from slotbench.data.formats.movies import MovieFile, keep_movies
from slotbench.errors import DataFilesError

__all__ = ["LAYOUT", "TIMED", "CaterVideos", "ListedVideos", "PreparedVideos", "ReleasedVideos"]

LAYOUT = (
    "expected what the archives of one version of CATER (max2action or all_actions) hold: videos/CATER_new_*.avi, "
    "scenes/CATER_new_*.json, and lists/localize/{train,val,train_subsetT,train_subsetV}.txt"
)

TIMED = ("positions", "holders")
"""The entries of a cache that have an axis of frames after that of videos."""


class CaterVideos(ABC):
    """Videos and their annotations, by the names that the lists have for videos."""

    @abstractmethod
    def length(self, name: str) -> int:
        """Frames of a video.

        Raises:
            DataFilesError: it is not there, or cannot be read.
        """

    @abstractmethod
    def frames(self, name: str, numbers: Sequence[int]) -> np.ndarray:
        """Frames of a video by number: bytes "frames 3 resolution resolution"."""

    @abstractmethod
    def scene(self, name: str) -> CaterScene:
        """The annotation of a video.

        Raises:
            DataFilesError: it is not there, or not what it should be.
        """

    @abstractmethod
    def origin(self, name: str) -> str:
        """Where a video is from, for messages."""


class ReleasedVideos(CaterVideos):
    """The released files.

    Args:
        path: the folder of one version.
        resolution: pixels per side.
        names: of the videos, which are decoded into the user's cache folder if they are not there; None for none.
    """

    def __init__(self, path: Path, resolution: int, names: Sequence[str] | None = None) -> None:
        self.path = path
        self.fit = Fit(resolution, resolution, crop=False)
        self._kept = None if names is None else {name: self._movie(name, self.fit) for name in names}
        keep_movies((self._kept or {}).values())

    def length(self, name: str) -> int:
        """Frames of an AVI file."""
        return self._opened(name).length

    def frames(self, name: str, numbers: Sequence[int]) -> np.ndarray:
        """Frames of an AVI file, resized."""
        return self._opened(name).fitted(numbers, self.fit)

    def scene(self, name: str) -> CaterScene:
        """The annotation of a scene file."""
        return read_scene(self.path / "scenes" / f"{name}.json")

    def origin(self, name: str) -> str:
        """The file."""
        return str(self.path / "videos" / f"{name}.avi")

    def _opened(self, name: str) -> MovieFile:
        return self._movie(name) if self._kept is None else self._kept[name]

    def _movie(self, name: str, fit: Fit | None = None) -> MovieFile:
        file = self.path / "videos" / f"{name}.avi"
        if not file.is_file():
            raise DataFilesError(f"there is no video {file}; {LAYOUT}")
        return MovieFile(file, fit)


class ListedVideos(ClipReader):
    """The released videos of some names, whole, for a cache.

    Args:
        videos: the released files.
        names: of the videos, in order.
        scenes: reads the annotations too.
    """

    def __init__(self, videos: ReleasedVideos, names: Sequence[str], scenes: bool) -> None:
        self.videos, self.names, self.scenes = videos, names, scenes
        self.lengths = np.full(len(names), videos.length(names[0]))

    def clip(self, video: int, frames: range) -> dict[str, np.ndarray]:
        """A whole video, which must be as long as the first one."""
        name, length = self.names[video], len(frames)
        # one frame more is asked for, to see that there is none
        origin, shown = self.videos.origin(name), self.videos.frames(name, range(length + 1))
        if len(shown) != length:
            raise DataFilesError(f"{origin} has other than {length} frames, those of the first video of the lists")
        found = {"frames": shown, "number": np.array(number_of(name))}
        if not self.scenes:
            return found
        scene = self.videos.scene(name)
        if len(scene.positions) != length:
            raise DataFilesError(f"the scene of {origin} has {len(scene.positions)} frames, not {length}")
        return found | {
            # doubles: rounded ones might lie in another cell
            "positions": padded(scene.positions, MOST_OBJECTS, axis=1),
            "holders": padded(scene.holders.astype(np.int8), MOST_OBJECTS, axis=1, fill=-1),
            "shape_label": padded(scene.shapes, MOST_OBJECTS, fill=-1),
            "sizes": padded(scene.sizes, MOST_OBJECTS),
        }


class PreparedVideos(CaterVideos):
    """The videos of a cache.

    Args:
        cache: of `ListedVideos`.
    """

    def __init__(self, cache: ClipCache) -> None:
        self.cache = cache

    def length(self, name: str) -> int:
        """Frames of a video of the cache."""
        return int(self.cache.lengths[self._place(name)])

    def frames(self, name: str, numbers: Sequence[int]) -> np.ndarray:
        """Frames, copied out of the cache."""
        return self.cache.field("frames")[self._place(name)][np.asarray(numbers)]

    def scene(self, name: str) -> CaterScene:
        """The annotation in the cache."""
        place = self._place(name)
        shapes, sizes, positions, holders = (
            self.cache.field(f"objects.{field}")[place] for field in ("shape_label", "sizes", "positions", "holders")
        )
        count = int((shapes >= 0).sum())
        return CaterScene(shapes[:count], positions[:, :count], holders[:, :count].astype(np.int64), sizes[:count])

    def origin(self, name: str) -> str:
        """The name and the cache."""
        return f"{name} of {self.cache.folder}"

    @cached_property
    def _places(self) -> dict[int, int]:
        return {int(number): place for place, number in enumerate(self.cache.field("objects.number"))}

    def _place(self, name: str) -> int:
        place = self._places.get(number_of(name))
        if place is None:
            raise DataFilesError(f"the cache {self.cache.folder} has no video {name}: prepare it anew")
        return place


def number_of(name: str) -> int:
    """The number in the name of a video."""
    return int(name.rpartition("_")[2])
