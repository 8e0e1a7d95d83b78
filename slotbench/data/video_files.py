"""One video of the user's own, whatever it is stored as: how many frames it has, and some of them."""

from __future__ import annotations

import contextlib
import re
import struct
import warnings
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from slotbench.arrays import map_npy, npz_names, read_npz
from slotbench.data.files import DataFilesError
from slotbench.data.png import MOST_PIXELS, check_size
from slotbench.errors import FileError
from slotbench.files import open_regular

__all__ = ["ARRAYS", "IMAGES", "KINDS", "MOVIES", "VideoFile", "natural_order", "open_video", "opened_picture"]

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".ppm")
MOVIES = (".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm", ".mpg", ".mpeg")
ARRAYS = (".npy", ".npz")

KINDS = ("PNG", "JPEG", "BMP", "WEBP", "TIFF", "PPM")
"""The kinds of pictures that are read, as Pillow calls them."""
_CONTAINERS = "mov,mp4,m4a,3gp,3g2,mj2,avi,matroska,webm,mpeg,mpegts,mpegvideo"
# what Pillow and PyAV raise for files that are damaged
_DAMAGED = (
    OSError, ValueError, SyntaxError, EOFError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError,
    MemoryError, struct.error, zlib.error,
)  # fmt: skip


class VideoFile(ABC):
    """A video.

    Attributes:
        path: the file or folder.
        length: its frames.
    """

    path: Path
    length: int

    @abstractmethod
    def frames(self, numbers: Sequence[int]) -> Iterator[np.ndarray]:
        """Frames of these ascending numbers, each "height width 3" in bytes, one after the other.

        Raises:
            DataFilesError: one cannot be read.
        """


def open_video(path: Path) -> VideoFile | None:
    """The video that a file or a folder of pictures is, or None if it is none.

    Raises:
        DataFilesError: it looks like one and cannot be read.
    """
    if path.is_dir():
        pictures = [file for file in path.iterdir() if file.suffix.lower() in IMAGES]
        return _Pictures(path, sorted(pictures, key=natural_order)) if pictures else None
    suffix = path.suffix.lower()
    if suffix == ".gif":
        return _Gif(path)
    if suffix in ARRAYS:
        return _Array(path)
    return _Movie(path) if suffix in MOVIES else None


class _Pictures(VideoFile):
    def __init__(self, path: Path, files: list[Path]) -> None:
        self.path, self.files, self.length = path, files, len(files)

    def frames(self, numbers: Sequence[int]) -> Iterator[np.ndarray]:
        for number in numbers:
            with opened_picture(self.files[number], KINDS, "a picture") as picture:
                yield np.asarray(picture.convert("RGB"))


class _Gif(VideoFile):
    def __init__(self, path: Path) -> None:
        self.path = path
        with opened_picture(path, ("GIF",), "a GIF") as picture:
            self.length = int(getattr(picture, "n_frames", 1))

    def frames(self, numbers: Sequence[int]) -> Iterator[np.ndarray]:
        with opened_picture(self.path, ("GIF",), "a GIF") as picture:
            for number in numbers:
                picture.seek(number)
                yield np.asarray(picture.convert("RGB"))


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

    def frames(self, numbers: Sequence[int]) -> Iterator[np.ndarray]:
        wanted = {int(self.times[number]) for number in numbers}
        found = 0
        with self._opened("cannot be decoded") as container:
            stream = container.streams.video[0]
            # to the last key frame before, from which on frames can be decoded
            container.seek(min(wanted), stream=stream)
            for frame in container.decode(stream):
                if frame.pts in wanted:
                    check_size(frame.width, frame.height)
                    found += 1
                    yield frame.to_ndarray(format="rgb24")
                if found == len(wanted):
                    break
        if found < len(wanted):
            raise DataFilesError(f"{self.path} gave {found} of {len(wanted)} frames: it is damaged or incomplete")

    def _packet_times(self) -> np.ndarray:
        """The time stamp of every frame, found without decoding; what a file says about its length is often wrong."""
        with self._opened("cannot be read as a video") as container:
            packets = container.demux(container.streams.video[0])
            times = np.unique(np.array([packet.pts for packet in packets if packet.pts is not None], np.int64))
        if not len(times):
            raise DataFilesError(f"{self.path} has no pictures in it")
        return times

    @contextlib.contextmanager
    def _opened(self, trouble: str) -> Iterator[Any]:
        """The movie as PyAV sees it; handed over as bytes, and as a movie only, so that it can name no other file."""
        import av

        with open_regular(self.path) as file:
            try:
                with av.open(file, options={"format_whitelist": _CONTAINERS}, metadata_errors="ignore") as container:
                    if not container.streams.video:
                        raise DataFilesError(f"{self.path} has no pictures in it")
                    context = container.streams.video[0].codec_context
                    check_size(context.width, context.height)
                    context.options = {"max_pixels": str(MOST_PIXELS)}
                    yield container
            except FileError:
                raise
            except (av.FFmpegError, *_DAMAGED) as error:
                raise DataFilesError(f"{self.path} {trouble} ({_one_line(error)})") from error


@contextlib.contextmanager
def opened_picture(path: Path, kinds: tuple[str, ...], what: str) -> Iterator[Image.Image]:
    """A picture of one of these kinds, open; of the kinds that Pillow knows some start other programs."""
    with open_regular(path) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about what is strange in a file: it can be read, or not
        try:
            with Image.open(file, formats=kinds) as picture:
                check_size(*picture.size)
                yield picture
        except FileError:
            raise
        except (UnidentifiedImageError, Image.DecompressionBombError, *_DAMAGED) as error:
            raise DataFilesError(f"{path} cannot be read as {what} ({_one_line(error)})") from error


def _one_line(error: BaseException) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:160]


def natural_order(path: Path) -> list[tuple[int, str]]:
    """Sorts frame2 before frame10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", path.name)]
