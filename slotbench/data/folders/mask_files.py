"""Mask files of `VideoFolder`: the object in each pixel of each frame.

They lie in a folder `masks` beside the videos. The masks of `walk.mp4` are one of

    masks/walk.npz, masks/walk.npy    integers "time height width"; of an npz the array "masks", or the only one
    masks/walk/                       an image per frame in the order of their names, grey or with a palette, or an npy
                                      file "height width"

with a mask for every frame of the video and the size of its frames. 0 is the background; every other number is an
object, the same one throughout the video. Compression with losses changes ids, so JPEGs, lossy WebPs and movies are no
masks.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from slotbench.data.folders.frame_maps import FrameMaps, MapKind, find_maps, read_npy_map
from slotbench.data.folders.names import IMAGES, folder_named
from slotbench.data.folders.video_file import VideoFile
from slotbench.data.formats.pictures import read_numbers
from slotbench.errors import DataFilesError

__all__ = ["MASKS", "find_masks", "mask_ids", "read_mask_image"]

MASKS = "masks"
"""The folder of the masks, beside the videos."""

_GREY = ("1", "L", "P", "I", "I;16", "I;16B")


def mask_ids(maps: FrameMaps, numbers: Sequence[int], size: tuple[int, ...]) -> np.ndarray:
    """Ids of these frames as int32.

    Raises:
        DataFilesError: the masks have another size than the frames, or are not ids.
    """
    found = maps.sized(numbers, size)
    if found.size and (found.min() < 0 or found.max() > np.iinfo(np.int32).max):
        raise DataFilesError(f"{maps.path} holds ids below 0 or too large; expected 0, 1, 2, ...")
    return found.astype(np.int32)


def find_masks(videos: Sequence[VideoFile], among: str = MASKS) -> list[FrameMaps] | None:
    """The masks of all videos, or None where there are none at all.

    Args:
        videos: the files.
        among: the folder of the masks, beside the videos.

    Raises:
        DataFilesError: some videos have masks and others not, or as many masks as frames are not there.
    """
    if not any(folder_named(parent, among).is_dir() for parent in {video.path.parent for video in videos}):
        return None
    return find_maps(videos, among, _KIND)


def read_mask_image(path: Path) -> np.ndarray:
    """The ids "height width" of an image, grey or with a palette, turned as viewers show it; or of an npy file.

    Raises:
        DataFilesError: it is damaged, has colours, is one of several in its file, or was compressed with losses.
    """
    if path.suffix.lower() == ".npy":
        return read_npy_map(path, _KIND)
    return read_numbers(path, _GREY, "ids of objects, as grey values or with a palette")


_KIND = MapKind("masks", "iub", "integers", "images or npy files", (*IMAGES, ".npy"), read_mask_image)
