"""Maps of the frames of a video, a number for each pixel, in files beside it: the base of masks and depth.

The maps of `walk.mp4` in a folder `NAME` beside it are one of

    NAME/walk.npz, NAME/walk.npy    numbers "time height width"; of an npz the array "NAME", or the only one
    NAME/walk/                      a file per frame, in the order of their names
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from slotbench.arrays import map_npy, npz_names, read_npz
from slotbench.data.folders.names import folder_named, frame_files, visible
from slotbench.data.folders.video_file import VideoFile
from slotbench.data.formats.images import check_size
from slotbench.errors import DataFilesError, FileError, listing
from slotbench.text import one_line

__all__ = ["FrameMaps", "MapKind", "check_map", "find_maps", "name_of", "read_npy_map"]


@dataclass(frozen=True)
class MapKind:
    """A kind of maps, such as masks or depth.

    Attributes:
        name: what they are called in messages.
        dtypes: the kinds of numpy numbers that they may be.
        numbers: these in words.
        files: in words, what a folder of one file per frame holds.
        suffixes: of such files.
        read_file: the map "height width" of such a file.
    """

    name: str
    dtypes: str
    numbers: str
    files: str
    suffixes: Sequence[str]
    read_file: Callable[[Path], np.ndarray]


class FrameMaps(ABC):
    """The maps of one video.

    Attributes:
        path: the file or folder.
        length: frames that there are maps of.
        kind: what they are.
    """

    path: Path
    length: int
    kind: MapKind

    @abstractmethod
    def read(self, numbers: Sequence[int]) -> np.ndarray:
        """Maps of these frames, "time height width"."""

    def sized(self, numbers: Sequence[int], size: tuple[int, ...]) -> np.ndarray:
        """Maps of these frames, "time height width".

        Raises:
            DataFilesError: they have another size than the frames, or cannot be read.
        """
        found = self.read(numbers)
        if found.shape[1:] != tuple(size):
            raise DataFilesError(
                f"{self.path} has {self.kind.name} of {found.shape[1]} x {found.shape[2]} pixels, and the video has "
                f"frames of {size[0]} x {size[1]}: resize one of them"
            )
        return found


def find_maps(videos: Sequence[VideoFile], folder: str, kind: MapKind) -> list[FrameMaps]:
    """The maps of all videos.

    Args:
        videos: the files.
        folder: the folder of the maps, beside the videos.
        kind: what they are.

    Raises:
        DataFilesError: a video has none, or not as many as frames.
    """
    places = {parent: folder_named(parent, folder) for parent in {video.path.parent for video in videos}}
    found = [_maps_of(places[video.path.parent] / name_of(video), kind) for video in videos]
    without = [str(video.path) for video, maps in zip(videos, found, strict=True) if maps is None]
    if without:
        place = places[videos[0].path.parent]
        names = {name_of(video) for video, maps in zip(videos, found, strict=True) if maps is None}
        others = [one_line(file.name) for file in visible(place) if file.stem in names] if place.is_dir() else []
        none = (
            f"; {listing(others, 3)} is none of these: movies and pictures with losses change numbers" if others else ""
        )
        raise DataFilesError(
            f"{place} has no {kind.name} of {listing(without, 3)}; expected {kind.name} of every video: "
            f"{place}/NAME.npz, {place}/NAME.npy or a folder {place}/NAME of {kind.files}{none}"
        )
    whole = [maps for maps in found if maps is not None]
    for video, maps in zip(videos, whole, strict=True):
        if maps.length != video.length:
            raise DataFilesError(
                f"{maps.path} has {kind.name} of {maps.length} frames, and {video.path} has {video.length} frames: "
                "expected a map for each"
            )
    return whole


def name_of(video: VideoFile) -> str:
    """The name of a video's maps; a folder of images may have a dot in its name."""
    return video.path.name if video.path.is_dir() else video.path.stem


def read_npy_map(path: Path, kind: MapKind) -> np.ndarray:
    """The map "height width" of an npy file.

    Raises:
        DataFilesError: it is damaged, or no such map.
    """
    try:
        values = map_npy(path)
    except FileError as error:
        raise DataFilesError(str(error)) from error
    if values.ndim != 2 or values.dtype.kind not in kind.dtypes:
        raise DataFilesError(
            f"{path} holds {values.dtype} values of shape {values.shape}; expected {kind.numbers} of shape "
            "(height, width)"
        )
    return check_map(values, path)


def check_map(values: np.ndarray, path: Path) -> np.ndarray:
    """A map "height width", if it is no larger than an image may be.

    Raises:
        DataFilesError: it is.
    """
    try:
        check_size(values.shape[1], values.shape[0])
    except ValueError as error:
        raise DataFilesError(f"{path} holds {error}") from error
    return values


def _maps_of(place: Path, kind: MapKind) -> FrameMaps | None:
    if place.is_dir():
        return _Files(place, kind)
    # no with_suffix: what follows a dot in the name is no suffix
    for file in (place.parent / f"{place.name}{suffix}" for suffix in (".npz", ".npy")):
        if file.is_file():
            return _Array(file, kind)
    return None


class _Array(FrameMaps):
    def __init__(self, path: Path, kind: MapKind) -> None:
        self.path, self.kind = path, kind
        self._held: np.ndarray | None = None
        self.length = len(self._values())

    def read(self, numbers: Sequence[int]) -> np.ndarray:
        return self._values()[list(numbers)]

    def _values(self) -> np.ndarray:
        if self._held is None:
            self._held = self._checked(self._opened())
        return self._held

    def _opened(self) -> np.ndarray | None:
        try:
            if self.path.suffix == ".npy":
                return map_npy(self.path)
            names = npz_names(self.path)
            name = names[0] if len(names) == 1 else self.path.parent.name.lower()
            return read_npz(self.path, [name]).get(name)
        except FileError as error:
            raise DataFilesError(str(error)) from error

    def _checked(self, values: np.ndarray | None) -> np.ndarray:
        expected = f"expected {self.kind.numbers} of shape (time, height, width)"
        if values is None:
            raise DataFilesError(f"{self.path} holds no array {self.path.parent.name.lower()}; {expected}")
        if values.ndim != 3 or values.dtype.kind not in self.kind.dtypes:
            raise DataFilesError(f"{self.path} holds {values.dtype} values of shape {values.shape}; {expected}")
        if len(values):
            check_map(values[0], self.path)
        return values

    def __getstate__(self) -> dict[str, object]:
        # what is mapped is not sent to another process
        return self.__dict__ | {"_held": None}


class _Files(FrameMaps):
    def __init__(self, path: Path, kind: MapKind) -> None:
        self.path, self.kind = path, kind
        self.files = frame_files(path, kind.suffixes)
        if not self.files:
            there = listing((one_line(file.name) for file in visible(path)), 3)
            raise DataFilesError(f"{path} holds {there}; expected {kind.name} as {kind.files}, one for each frame")
        self.length = len(self.files)

    def read(self, numbers: Sequence[int]) -> np.ndarray:
        found = [self.kind.read_file(self.files[number]) for number in numbers]
        for number, values in zip(numbers, found, strict=True):
            if values.shape != found[0].shape:
                raise DataFilesError(
                    f"{self.files[number]} has {values.shape[0]} x {values.shape[1]} pixels, and another of "
                    f"{self.path} has {found[0].shape[0]} x {found[0].shape[1]}"
                )
        return np.stack(found)
