"""Video files of `VideoFolder`: movies, pictures, arrays and folders of frames, with random access to their frames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from slotbench.arrays import map_npy, npz_names, read_npz
from slotbench.data.folders.movie_file import MovieFile
from slotbench.data.folders.names import ARRAYS, MOVIES, STACKS
from slotbench.data.folders.picture_videos import FrameFolder, PictureStack, is_one_frame
from slotbench.data.folders.video_file import VideoFile
from slotbench.data.formats.images import check_size
from slotbench.errors import DataFilesError, FileError

__all__ = ["VideoFile", "open_video"]


def open_video(path: Path) -> VideoFile | None:
    """The video that a file or a folder of frames is, or None if it is none.

    Raises:
        DataFilesError: it looks like one and cannot be read.
    """
    if path.is_dir():
        return FrameFolder.open(path)
    suffix = path.suffix.lower()
    if suffix in STACKS:
        return PictureStack.open(path)
    if suffix in ARRAYS:
        return _Array(path)
    return MovieFile(path) if suffix in MOVIES else None


class _Array(VideoFile):
    """An npy file, or the array "video", "frames" or the only one of an npz: "time height width channels" in bytes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.suffix.lower() == ".npy" and is_one_frame(path):
            shape = map_npy(path).shape
            raise DataFilesError(
                f"{path} holds one frame, of shape {shape}; expected a video, uint8 of shape (time, height, width, 3), "
                "or a folder with a file for each frame"
            )
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
