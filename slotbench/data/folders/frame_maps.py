"""Maps of the frames of a video, a number for each pixel, in files beside it: masks and depth.

The maps of `walk.mp4` in a folder NAME ("masks", "depth" or "depth_valid") beside it are one of

    NAME/walk.npz, NAME/walk.npy    numbers "time height width"; of an npz the array "NAME", or the only one
    NAME/walk/                      a file per frame, in the order of their names: an image, or an npy file

with a map for every frame, of its size; where both are folders of files, those of one number in their names belong
together. In masks 0 is the background, and every other number an object, the same one throughout the video, or what
`void` names. Compression with losses changes numbers, so JPEGs, WebPs and movies are no maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float

from slotbench.data.folders.names import IMAGES, check_same_frames, entry, folder_named, frame_files, frame_numbers
from slotbench.data.folders.video_files import VideoFile
from slotbench.data.formats.images import read_numbers
from slotbench.errors import DataFilesError, listing
from slotbench.io import map_npy, npz_names, read_npz

__all__ = ["DEPTH", "MASKS", "VALID", "FrameMaps", "check_maps", "find_maps", "name_of", "read_map", "resize_depth"]

MASKS, DEPTH, VALID = "masks", "depth", "depth_valid"
"""The folders beside the videos."""

_GREY = ("1", "L", "P", "I", "I;16", "I;16B")
_SIXTEEN_BITS = ("I;16", "I;16B", "I")


class FrameMaps:
    """The maps of one video.

    Attributes:
        path: the file or folder.
        length: frames that there are maps of.
        numbers: of these frames, in the names of their files; None where they have none.
    """

    def __init__(self, place: Path, kind: str, void: Sequence[int] = ()) -> None:
        self.kind, self.void = kind, list(void)
        # no with_suffix: what follows a dot in the name is no suffix
        tried = (place, place.parent / f"{place.name}.npz", place.parent / f"{place.name}.npy")
        found = next((path for one in tried if (path := entry(one)) is not None), None)
        if found is None:
            raise DataFilesError(
                f"there are no {kind} at {place}; expected {kind} of every video: NAME.npz, NAME.npy or a folder NAME "
                f"of {'16-bit PNGs' if kind == DEPTH else 'images'} or npy files, one for each frame"
            )
        self.path = found
        self._files: list[Path] | None = None
        self.numbers: list[float] | None = None
        if found.is_dir():
            self._files = frame_files(found, (".png", ".npy") if kind == DEPTH else (*IMAGES, ".npy"))
            if not self._files:
                raise DataFilesError(f"{found} holds no {kind}: images or npy files, one for each frame")
            self.numbers = frame_numbers(self._files)
        self.length = len(self._files or self._array())

    def read(self, numbers: Sequence[int], size: tuple[int, int]) -> np.ndarray:
        """Maps of these frames, "time height width"."""
        maps = self._stored(numbers)
        for one in maps:
            if one.shape != tuple(size):
                raise DataFilesError(
                    f"{self.path} has {self.kind} of shape {one.shape}, and the video has frames of {size[0]} x "
                    f"{size[1]} pixels: resize one of them"
                )
        return np.stack(maps)

    def ids(self, numbers: Sequence[int], size: tuple[int, int]) -> np.ndarray:
        """Maps of these frames as int32, if they are ids; -1 where they are `void`."""
        found = self.read(numbers, size)
        void = np.isin(found, self.void)
        if (((found < 0) | (found > np.iinfo(np.int32).max)) & ~void).any():
            raise DataFilesError(f"{self.path} holds ids below 0 or too large; expected 0, 1, 2, ..., or void")
        return np.where(void, np.int32(-1), found.astype(np.int32))

    def hold(self, number: int) -> bool:
        """Whether one of the maps, 16 of them at most, has this number somewhere."""
        return any((one == number).any() for one in self._stored(range(0, self.length, -(-self.length // 16))))

    def _stored(self, numbers: Sequence[int]) -> list[np.ndarray]:
        if self._files is None:
            return list(self._array()[list(numbers)])
        return [read_map(self._files[number], self.kind) for number in numbers]

    def _array(self) -> np.ndarray:
        if self.path.suffix == ".npy":
            return _checked(map_npy(self.path), self.path, self.kind, 3)
        names = npz_names(self.path)
        name = names[0] if len(names) == 1 else self.kind
        return _checked(read_npz(self.path, [name]).get(name, np.empty(0)), self.path, self.kind, 3)


def find_maps(videos: Sequence[VideoFile], kind: str, void: Sequence[int] = ()) -> list[FrameMaps] | None:
    """The maps of all videos, or None where no folder has any; `void` are ids that count nowhere."""
    places = {parent: folder_named(parent, kind) for parent in {video.path.parent for video in videos}}
    if not any(place.is_dir() for place in places.values()):
        return None
    found = [FrameMaps(places[video.path.parent] / name_of(video.path), kind, void) for video in videos]
    check_maps(videos, found)
    return found


def check_maps(videos: Sequence[VideoFile], found: Sequence[FrameMaps]) -> None:
    """Refuses maps of other frames than those of their videos."""
    for video, maps in zip(videos, found, strict=True):
        if maps.length != video.length:
            raise DataFilesError(
                f"{maps.path} has {maps.kind} of {maps.length} frames, and {video.path} has {video.length} frames: "
                "expected a map for each"
            )
        check_same_frames(maps.kind, maps.path, maps.numbers, video.path, video.numbers)


def name_of(video: Path) -> str:
    """The name of a video's maps; a folder of images may have a dot in its name."""
    return video.name if video.is_dir() else video.stem


def read_map(path: Path, kind: str = MASKS) -> np.ndarray:
    """The map "height width" of one frame: an npy file, or an image that was stored without losses."""
    if path.suffix.lower() == ".npy":
        return _checked(map_npy(path), path, kind, 2)
    if kind == DEPTH:
        return read_numbers(path, _SIXTEEN_BITS, "depth as grey values of 16 bits")
    return read_numbers(path, _GREY, "ids of objects, as grey values or with a palette")


def resize_depth(
    depth: Float[np.ndarray, "time rows columns"], valid: Bool[np.ndarray, "time rows columns"], height: int, width: int
) -> tuple[Float[np.ndarray, "time height width"], Bool[np.ndarray, "time height width"]]:
    """Depth and its mask at `height` x `width` pixels; 0 where there is none.

    A pixel takes the nearest depth among those of the pixels that it covers, so that sparse depth does not get lost and
    no value arises between two objects; enlarged, it takes the one that it lies in.
    """
    found = np.where(valid, depth, np.inf)
    for axis, side in ((1, height), (2, width)):
        size = found.shape[axis]
        if side <= size:
            found = np.minimum.reduceat(found, np.arange(side) * size // side, axis=axis)
        else:
            found = found.take((2 * np.arange(side) + 1) * size // (2 * side), axis=axis)
    kept = np.isfinite(found)
    return np.where(kept, found, 0).astype(np.float32), kept


def _checked(values: np.ndarray, path: Path, kind: str, axes: int) -> np.ndarray:
    kinds, words = ("iuf", "numbers") if kind == DEPTH else ("iub", "integers")
    if values.ndim != axes or values.dtype.kind not in kinds:
        shape = listing(("time", "height", "width")[-axes:])
        raise DataFilesError(
            f"{path} holds {values.dtype} values of shape {values.shape}; expected {words} of shape ({shape})"
        )
    return values
