"""One video of the user's own, whatever it is stored as: how many frames it has, and some of them."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from slotbench.data.files import DataFilesError

__all__ = ["ARRAYS", "IMAGES", "MOVIES", "VideoFile", "open_video"]

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".ppm")
MOVIES = (".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm", ".mpg", ".mpeg")
ARRAYS = (".npy", ".npz")


class VideoFile(ABC):
    """A video.

    Attributes:
        path: the file or folder.
        length: its frames.
    """

    path: Path
    length: int

    @abstractmethod
    def frames(self, numbers: Sequence[int]) -> list[np.ndarray]:
        """Frames of these ascending numbers, each "height width 3" in bytes."""


def open_video(path: Path) -> VideoFile | None:
    """The video that a file or a folder of pictures is, or None if it is none.

    Raises:
        DataFilesError: it looks like one and cannot be read.
    """
    if path.is_dir():
        pictures = [file for file in path.iterdir() if file.suffix.lower() in IMAGES]
        return _Pictures(path, sorted(pictures, key=_natural)) if pictures else None
    suffix = path.suffix.lower()
    if suffix == ".gif":
        return _Gif(path)
    if suffix in ARRAYS:
        return _Array(path)
    return _Movie(path) if suffix in MOVIES else None


class _Pictures(VideoFile):
    def __init__(self, path: Path, files: list[Path]) -> None:
        self.path, self.files, self.length = path, files, len(files)

    def frames(self, numbers: Sequence[int]) -> list[np.ndarray]:
        return [_rgb(self.files[number]) for number in numbers]


class _Gif(VideoFile):
    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with Image.open(path) as picture:
                self.length = getattr(picture, "n_frames", 1)
        except (OSError, UnidentifiedImageError) as error:
            raise DataFilesError(f"{path} cannot be read as a GIF ({error})") from error

    def frames(self, numbers: Sequence[int]) -> list[np.ndarray]:
        found = []
        with Image.open(self.path) as picture:
            for number in numbers:
                picture.seek(number)
                found.append(np.asarray(picture.convert("RGB")))
        return found


class _Array(VideoFile):
    """An npy file, or the array "video", "frames" or the only one of an npz: "time height width channels" in bytes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.length = len(self._values())

    def frames(self, numbers: Sequence[int]) -> list[np.ndarray]:
        values = self._values()
        return [np.repeat(values[number], 3 // values.shape[-1], axis=-1) for number in numbers]

    def _values(self) -> np.ndarray:
        try:
            values = np.load(self.path, mmap_mode="r", allow_pickle=False)
            if isinstance(values, np.lib.npyio.NpzFile):
                names = [name for name in ("video", "frames") if name in values] or list(values)
                values = values[names[0]]
        except (OSError, ValueError, EOFError, IndexError) as error:
            raise DataFilesError(f"{self.path} cannot be read as a numpy file ({error})") from error
        with_channels = values[..., None] if values.ndim == 3 else values
        if with_channels.ndim != 4 or values.dtype != np.uint8 or with_channels.shape[-1] not in (1, 3):
            raise DataFilesError(
                f"{self.path} holds {values.dtype} values of shape {values.shape}; expected uint8 of shape (time, "
                "height, width, 3), or without the last axis"
            )
        return with_channels


class _Movie(VideoFile):
    def __init__(self, path: Path) -> None:
        if find_spec("av") is None:
            raise DataFilesError(
                f"{path} needs PyAV to be read: pip install 'slotbench[video]'; or give a folder of pictures, a GIF, "
                "or an npz file"
            )
        self.path = path
        self.times = self._packet_times()
        self.length = len(self.times)

    def frames(self, numbers: Sequence[int]) -> list[np.ndarray]:
        import av

        wanted = {int(self.times[number]) for number in numbers}
        found: list[np.ndarray] = []
        try:
            with av.open(str(self.path)) as container:
                stream = container.streams.video[0]
                # to the last key frame before, from which on frames can be decoded
                container.seek(min(wanted), stream=stream)
                for frame in container.decode(stream):
                    if frame.pts in wanted:
                        found.append(frame.to_ndarray(format="rgb24"))
                    if len(found) == len(wanted):
                        break
        except (av.FFmpegError, OSError) as error:
            raise DataFilesError(f"{self.path} cannot be decoded ({error})") from error
        if len(found) < len(wanted):
            raise DataFilesError(f"{self.path} gave {len(found)} of {len(wanted)} frames: it is damaged or incomplete")
        return found

    def _packet_times(self) -> np.ndarray:
        """The time stamp of every frame, found without decoding; what a file says about its length is often wrong."""
        import av

        try:
            with av.open(str(self.path)) as container:
                if not container.streams.video:
                    raise DataFilesError(f"{self.path} has no pictures in it")
                packets = container.demux(container.streams.video[0])
                return np.unique([packet.pts for packet in packets if packet.pts is not None])
        except (av.FFmpegError, OSError) as error:
            raise DataFilesError(f"{self.path} cannot be read as a video ({error})") from error


def _rgb(path: Path) -> np.ndarray:
    try:
        with Image.open(path) as picture:
            return np.asarray(picture.convert("RGB"))
    except (OSError, UnidentifiedImageError) as error:
        raise DataFilesError(f"{path} cannot be read as a picture ({error})") from error


def _natural(path: Path) -> list[tuple[int, str]]:
    """Sorts frame2 before frame10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", path.name)]
