"""Video files of `VideoFolder`: movies, GIFs, arrays and folders of images, with random access to their frames."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from slotbench.arrays import map_npy, npz_names, read_npz
from slotbench.data.folders.movie_file import MovieFile
from slotbench.data.folders.video_file import VideoFile
from slotbench.data.formats.images import check_size, opened_image
from slotbench.errors import DataFilesError, FileError

__all__ = ["ARRAYS", "IMAGES", "KINDS", "MOVIES", "VideoFile", "natural_order", "open_video"]

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".ppm")
MOVIES = (".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm", ".mpg", ".mpeg")
ARRAYS = (".npy", ".npz")

KINDS = ("PNG", "JPEG", "BMP", "WEBP", "TIFF", "PPM")
"""The kinds of images that are read, as Pillow calls them."""


def open_video(path: Path) -> VideoFile | None:
    """The video that a file or a folder of images is, or None if it is none.

    Raises:
        DataFilesError: it looks like one and cannot be read.
    """
    if path.is_dir():
        images = [file for file in path.iterdir() if file.suffix.lower() in IMAGES]
        return _Images(path, sorted(images, key=natural_order)) if images else None
    suffix = path.suffix.lower()
    if suffix == ".gif":
        return _Gif(path)
    if suffix in ARRAYS:
        return _Array(path)
    return MovieFile(path) if suffix in MOVIES else None


class _Images(VideoFile):
    def __init__(self, path: Path, files: list[Path]) -> None:
        self.path, self.files, self.length = path, files, len(files)

    def frames(self, numbers: Sequence[int]) -> Iterator[np.ndarray]:
        for number in numbers:
            with opened_image(self.files[number], KINDS, "an image") as image:
                yield np.asarray(image.convert("RGB"))


class _Gif(VideoFile):
    def __init__(self, path: Path) -> None:
        self.path = path
        with opened_image(path, ("GIF",), "a GIF") as image:
            self.length = int(getattr(image, "n_frames", 1))

    def frames(self, numbers: Sequence[int]) -> Iterator[np.ndarray]:
        with opened_image(self.path, ("GIF",), "a GIF") as image:
            for number in numbers:
                image.seek(number)
                yield np.asarray(image.convert("RGB"))


class _Array(VideoFile):
    """An npy file, or the array "video", "frames" or the only one of an npz: "time height width channels" in bytes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.length = len(self._values())

    def frames(self, numbers: Sequence[int]) -> Iterator[np.ndarray]:
        values = self._values()
        for number in numbers:
            yield np.repeat(values[number], 3 // values.shape[-1], axis=-1)

    def _values(self) -> np.ndarray:
        try:
            if self.path.suffix.lower() == ".npz":
                known = npz_names(self.path)
                names = [name for name in ("video", "frames") if name in known] or known
                if not names:
                    raise DataFilesError(f"{self.path} cannot be read as a numpy file: there is no array in it")
                values = read_npz(self.path, names[:1])[names[0]]
            else:
                values = map_npy(self.path)
        except FileError as error:
            raise DataFilesError(f"{self.path} cannot be read as a numpy file ({error})") from error
        with_channels = values[..., None] if values.ndim == 3 else values
        if with_channels.ndim != 4 or values.dtype != np.uint8 or with_channels.shape[-1] not in (1, 3):
            raise DataFilesError(
                f"{self.path} holds {values.dtype} values of shape {values.shape}; expected uint8 of shape (time, "
                "height, width, 3), or without the last axis"
            )
        try:
            check_size(with_channels.shape[2], with_channels.shape[1])
        except ValueError as error:
            raise DataFilesError(f"{self.path} holds {error}") from error
        return with_channels


def natural_order(path: Path) -> list[tuple[int, str]]:
    """Sorting key that puts frame2 before frame10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", path.name)]
