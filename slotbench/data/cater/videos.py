"""Where the videos and scenes of CATER are read from: the released files, or a cache of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from slotbench.data.cater.scene import MOST_OBJECTS, CaterScene, read_scene
from slotbench.data.clip_cache import ClipCache
from slotbench.data.formats.avi import MotionJpeg
from slotbench.data.formats.images import resize_bilinear
from slotbench.data.preparing import in_order
from slotbench.errors import DataFilesError
from slotbench.interfaces import VideoBatch

__all__ = ["LAYOUT", "TIMED", "CaterMovie", "CaterVideos", "PreparedVideos", "ReleasedVideos", "video_pieces"]

LAYOUT = (
    "expected what the archives of one version of CATER (max2action or all_actions) hold: videos/CATER_new_*.avi, "
    "scenes/CATER_new_*.json, and lists/localize/{train,val,train_subsetT,train_subsetV}.txt"
)

TIMED = ("positions", "holders")
"""The entries of a cache that have an axis of frames after that of videos."""

_MOST_FRAMES = 4096
_PIECE = 4  # videos that are decoded and written to a cache at a time


class CaterMovie(ABC):
    """The frames of one video, by number.

    Attributes:
        origin: where it is from, for messages.
    """

    origin: str

    @abstractmethod
    def __len__(self) -> int:
        """Its frames."""

    @abstractmethod
    def read(self, frames: Sequence[int]) -> np.ndarray:
        """Bytes "frames 3 resolution resolution"."""


class CaterVideos(ABC):
    """Movies and scenes, by the names that the lists have for videos."""

    @abstractmethod
    def movie(self, name: str) -> CaterMovie:
        """The frames of a video.

        Raises:
            DataFilesError: it is not there, or cannot be read.
        """

    @abstractmethod
    def scene(self, name: str) -> CaterScene:
        """The annotation of a video.

        Raises:
            DataFilesError: it is not there, or not what it should be.
        """


class _Released(CaterMovie):
    def __init__(self, file: Path, resolution: int) -> None:
        self.movie, self.resolution, self.origin = MotionJpeg(file), resolution, str(file)

    def __len__(self) -> int:
        return len(self.movie)

    def read(self, frames: Sequence[int]) -> np.ndarray:
        side = self.resolution
        # one by one: a frame may be many times as large as it is to be
        images = (torch.from_numpy(image[None].copy()) for image in self.movie.images(frames, at_least=(side, side)))
        return np.concatenate([resize_bilinear(image, side, side).numpy() for image in images])


class ReleasedVideos(CaterVideos):
    """The released files.

    Args:
        path: the folder of one version.
        resolution: pixels per side.
    """

    def __init__(self, path: Path, resolution: int) -> None:
        self.path, self.resolution = path, resolution

    def movie(self, name: str) -> CaterMovie:
        """The frames of an AVI file."""
        file = self.path / "videos" / f"{name}.avi"
        if not file.is_file():
            raise DataFilesError(f"there is no video {file}; {LAYOUT}")
        movie = _Released(file, self.resolution)
        if len(movie) > _MOST_FRAMES:
            raise DataFilesError(
                f"{file} has {len(movie):,} frames; expected at most {_MOST_FRAMES:,}: CATER's have 301"
            )
        return movie

    def scene(self, name: str) -> CaterScene:
        """The annotation of a scene file."""
        return read_scene(self.path / "scenes" / f"{name}.json")


class _Prepared(CaterMovie):
    def __init__(self, frames: np.ndarray, origin: str) -> None:
        self.frames, self.origin = frames, origin

    def __len__(self) -> int:
        return len(self.frames)

    def read(self, frames: Sequence[int]) -> np.ndarray:
        return self.frames[np.asarray(frames)]


class PreparedVideos(CaterVideos):
    """The videos of a cache.

    Args:
        cache: which `video_pieces` was written to.
    """

    def __init__(self, cache: ClipCache) -> None:
        self.cache = cache

    def movie(self, name: str) -> CaterMovie:
        """The frames in the cache, of which those are copied that are asked for."""
        return _Prepared(self.cache.field("frames")[self._place(name)], f"{name} of {self.cache.folder}")

    def scene(self, name: str) -> CaterScene:
        """What was read of the scene file."""
        place = self._place(name)
        shapes, sizes, positions, holders = (
            self.cache.field(f"objects.{field}")[place] for field in ("shape_label", "sizes", "positions", "holders")
        )
        count = int((shapes >= 0).sum())
        return CaterScene(shapes[:count], positions[:, :count], holders[:, :count].astype(np.int64), sizes[:count])

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


def video_pieces(source: ReleasedVideos, names: Sequence[str], scenes: bool, jobs: int, first: int) -> Iterator[Any]:
    """Whole videos from a place in `names` on, a few at a time, for a cache."""
    length = len(source.movie(names[0]))
    pieces = [names[start : start + _PIECE] for start in range(first, len(names), _PIECE)]
    return in_order(partial(_piece, source, scenes, length), pieces, jobs)


def _piece(source: ReleasedVideos, scenes: bool, length: int, names: Sequence[str]) -> VideoBatch:
    frames = []
    logs: list[dict[str, np.ndarray]] = []
    for name in names:
        movie = source.movie(name)
        if len(movie) != length:
            raise DataFilesError(f"{movie.origin} has {len(movie)} frames, and the first video of the lists {length}")
        frames.append(movie.read(range(length)))
        log = {"number": np.array(number_of(name))}
        if scenes:
            scene = source.scene(name)
            if len(scene.positions) != length:
                raise DataFilesError(f"the scene of {movie.origin} has {len(scene.positions)} frames, not {length}")
            log |= _padded(scene)
        logs.append(log)
    return VideoBatch(
        frames=torch.from_numpy(np.stack(frames)),
        time=torch.arange(length).repeat(len(names), 1),
        objects={name: torch.from_numpy(np.stack([log[name] for log in logs])) for name in logs[0]},
    )


def _padded(scene: CaterScene) -> dict[str, np.ndarray]:
    room = MOST_OBJECTS - len(scene.shapes)
    return {
        # doubles: rounded ones might lie in another cell
        "positions": np.pad(scene.positions, ((0, 0), (0, room), (0, 0))),
        "holders": np.pad(scene.holders.astype(np.int8), ((0, 0), (0, room)), constant_values=-1),
        "shape_label": np.pad(scene.shapes, (0, room), constant_values=-1),
        "sizes": np.pad(scene.sizes, (0, room)),
    }
