"""Videos that are pictures: a folder with one for each frame, or a file of several (GIF, animated PNG, WebP, TIFF)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from slotbench.arrays import map_npy
from slotbench.data.folders.names import IMAGES, frame_files, visible
from slotbench.data.folders.video_file import VideoFile
from slotbench.data.formats.images import check_size
from slotbench.data.formats.pictures import KINDS, as_frame, opened_picture, read_frame
from slotbench.errors import DataFilesError, FileError

__all__ = ["FrameFolder", "PictureStack", "is_one_frame"]

_MOST_PIXELS_IN_TURN = 1 << 31
"""Pixels of all pictures of a file in which each is decoded after those before it: some 10 seconds."""


class FrameFolder(VideoFile):
    """A folder with a file for each frame: pictures, or else arrays "height width 3" in bytes.

    Attributes:
        files: of the frames, in their order.
        others: files and folders in it that are none, by name.
    """

    def __init__(self, path: Path, suffixes: Sequence[str], read: Callable[[Path], np.ndarray]) -> None:
        self.path, self._read = path, read
        self.files = frame_files(path, suffixes)
        self.length = len(self.files)
        self.others = [file.name for file in visible(path) if file.suffix.lower() not in suffixes]
        self._size: tuple[int, ...] | None = None

    @classmethod
    def open(cls, path: Path) -> FrameFolder | None:
        """The video of a folder, or None if it holds no frames.

        Raises:
            DataFilesError: it holds frames of several videos, or pictures of other kinds beside them.
        """
        inside = visible(path)
        if any(file.suffix.lower() in IMAGES and not file.is_dir() for file in inside):
            return cls(path, IMAGES, read_frame)
        arrays = [file for file in inside if file.suffix.lower() == ".npy"]
        if arrays and all(map(is_one_frame, arrays[:: max(1, len(arrays) - 1)])):
            return cls(path, (".npy",), _read_array)
        return None

    def frames(self, numbers: Sequence[int]) -> Iterator[np.ndarray]:
        """Frames of these numbers, all of one size."""
        for number in numbers:
            frame = self._read(self.files[number])
            if self._size is None:
                first = frame if number == 0 else self._read(self.files[0])
                self._size = first.shape
            if frame.shape != self._size:
                raise DataFilesError(
                    f"{self.files[number]} has {frame.shape[0]} x {frame.shape[1]} pixels, and {self.files[0].name} "
                    f"beside it {self._size[0]} x {self._size[1]}; expected the frames of one video, of one size"
                )
            yield frame


class PictureStack(VideoFile):
    """One file of several pictures, each of which is a frame."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with opened_picture(path, ("GIF", *KINDS), _what(path)) as (image, layout):
            width, height = image.size
            if layout.in_turn and len(layout.pictures) * width * height > _MOST_PIXELS_IN_TURN:
                raise ValueError(
                    f"{len(layout.pictures):,} pictures of {width:,} x {height:,} pixels, each of which is decoded "
                    "after all before it; save it as a movie, or in parts"
                )
            self._pictures = layout.pictures
        self.length = len(self._pictures)

    @classmethod
    def open(cls, path: Path) -> PictureStack | None:
        """The video in a file, or None if it is a single picture; a GIF is a video of one frame then.

        Raises:
            DataFilesError: it cannot be read.
        """
        found = cls(path)
        return found if found.length > 1 or path.suffix.lower() in (".gif", ".apng") else None

    def frames(self, numbers: Sequence[int]) -> Iterator[np.ndarray]:
        """Frames of these numbers, all of one size."""
        size = None
        with opened_picture(self.path, ("GIF", *KINDS), _what(self.path)) as (image, _):
            for number in numbers:
                image.seek(self._pictures[number])
                check_size(*image.size)
                frame = as_frame(image)
                size = size or frame.shape
                if frame.shape != size:
                    raise ValueError(
                        f"picture {number} has {frame.shape[0]} x {frame.shape[1]} pixels, and another {size[0]} x "
                        f"{size[1]}; expected one size"
                    )
                yield frame


def is_one_frame(path: Path) -> bool:
    """Whether an npy file is a single frame, bytes "height width" or "height width channels", and no video."""
    try:
        values = map_npy(path)
    except FileError:
        return False
    return values.dtype == np.uint8 and (values.ndim == 2 or (values.ndim == 3 and values.shape[-1] in (1, 3)))


def _read_array(path: Path) -> np.ndarray:
    try:
        values = map_npy(path)
        if not is_one_frame(path):
            raise DataFilesError(
                f"{path} holds {values.dtype} values of shape {values.shape}; expected a frame as those beside it, "
                "uint8 of shape (height, width, 3)"
            )
        values = values[..., None] if values.ndim == 2 else values
        check_size(values.shape[1], values.shape[0])
    except FileError as error:
        raise DataFilesError(f"{path} cannot be read as a numpy file ({error})") from error
    except ValueError as error:
        raise DataFilesError(f"{path} holds {error}") from error
    return np.repeat(values, 3 // values.shape[-1], axis=-1)


def _what(path: Path) -> str:
    return "a GIF" if path.suffix.lower() == ".gif" else "an image"
