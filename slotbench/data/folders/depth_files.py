"""Depth files of `DepthVideo`: how far away what each pixel shows is.

They lie in a folder `depth` beside the videos. The depth of `walk.mp4` is one of

    depth/walk.npz, depth/walk.npy    numbers "time height width"; of an npz the array "depth", or the only one
    depth/walk/                       a grey PNG of 16 bits, or an npy file "height width", per frame, in the order of
                                      their names

with a map for every frame of the video and the size of its frames. A folder `depth_valid` may have masks, in the same
forms as `masks`, which are 0 where a pixel has no depth. `DepthVideo` reads nothing through a link that leads
out of the folder of the videos.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float

from slotbench.data.folders.frame_maps import FrameMaps, MapKind, find_maps, read_npy_map
from slotbench.data.folders.video_file import VideoFile
from slotbench.data.formats.pictures import read_numbers
from slotbench.errors import DataFilesError
from slotbench.files import is_inside

__all__ = ["DEPTH", "VALID", "check_inside", "depth_values", "find_depth", "resize_depth"]

DEPTH, VALID = "depth", "depth_valid"
"""The folders of depth and of its masks, beside the videos."""

_SIXTEEN_BITS = ("I;16", "I;16B", "I")


def depth_values(
    maps: FrameMaps, numbers: Sequence[int], size: tuple[int, ...]
) -> Float[np.ndarray, "time height width"]:
    """Depth of these frames as float32, in the unit of the file.

    Raises:
        DataFilesError: it has another size than the frames, or cannot be read.
    """
    with np.errstate(over="ignore"):  # too large for float32 is infinite, which is no depth
        return maps.sized(numbers, size).astype(np.float32)


def find_depth(videos: Sequence[VideoFile]) -> list[FrameMaps]:
    """The depth of all videos.

    Raises:
        DataFilesError: a video has none, or not for as many frames.
    """
    return find_maps(videos, DEPTH, _KIND)


def check_inside(folder: Path, path: Path) -> Path:
    """The path, if no link on its way leads out of the folder, nor that of a file in it.

    Raises:
        DataFilesError: one does.
    """
    for place in (path, *(path.iterdir() if path.is_dir() else ())):
        if not is_inside(folder, place):
            raise DataFilesError(f"{place} is a link that leads out of {folder}: copy the file there")
    return path


def resize_depth(
    depth: Float[np.ndarray, "time rows columns"], valid: Bool[np.ndarray, "time rows columns"], side: int
) -> tuple[Float[np.ndarray, "time side side"], Bool[np.ndarray, "time side side"]]:
    """Depth and its mask at `side` x `side` pixels; 0 where there is none.

    A pixel takes the nearest depth among those of the pixels that it covers, so that sparse depth does not get lost and
    no value arises between two objects; enlarged, it takes the one that it lies in.

    Args:
        depth: anything where it is not valid.
        valid: pixels that have depth.
        side: rows and columns of the result.
    """
    found = np.where(valid, depth, np.inf)
    for axis in (1, 2):
        size = found.shape[axis]
        if side <= size:
            found = np.minimum.reduceat(found, np.arange(side) * size // side, axis=axis)
        else:
            found = found.take((2 * np.arange(side) + 1) * size // (2 * side), axis=axis)
    kept = np.isfinite(found)
    return np.where(kept, found, 0).astype(np.float32), kept


def _read_map(path: Path) -> np.ndarray:
    if path.suffix.lower() != ".png":
        return read_npy_map(path, _KIND)
    return read_numbers(path, _SIXTEEN_BITS, "depth as grey values of 16 bits", ("PNG",))


_KIND = MapKind("depth", "iuf", "numbers", "16-bit PNGs or npy files", (".png", ".npy"), _read_map)
