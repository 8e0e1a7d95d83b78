"""Video files of `VideoFolder`: movies, images, arrays and folders of frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from PIL import Image
from PIL.GifImagePlugin import GifImageFile

from slotbench.data.folders.names import ARRAYS, IMAGES, MOVIES, STACKS, frame_files, frame_numbers, visible
from slotbench.data.formats.images import Fit, as_frame, opened_image, read_frame
from slotbench.data.formats.movies import MovieFile, VideoFile
from slotbench.errors import DataFilesError, FileError
from slotbench.io import map_npy, npz_names, read_npz

__all__ = ["FrameFolder", "VideoFile", "is_one_frame", "open_video"]

_CHANNELS = (1, 3, 4)


def open_video(path: Path, fit: Fit | None = None) -> VideoFile | None:
    """The video that a file or a folder of frames is, or None if it is none."""
    suffix = path.suffix.lower()
    if path.is_dir():
        return FrameFolder.open(path)
    if suffix in STACKS:
        stack = ImageStack(path)
        return stack if stack.length > 1 or suffix in (".gif", ".apng") else None
    if suffix in ARRAYS:
        return ArrayFile(path)
    return MovieFile(path, fit) if suffix in MOVIES else None


class FrameFolder(VideoFile):
    """A folder with a file for each frame: images, or else arrays "height width 3" in bytes.

    Attributes:
        files: of the frames, in their order.
    """

    def __init__(self, path: Path, suffixes: Sequence[str], read: Callable[[Path], np.ndarray]) -> None:
        self.path, self._frame = path, read
        self.files = frame_files(path, suffixes)
        self.length, self.numbers = len(self.files), frame_numbers(self.files)

    @classmethod
    def open(cls, path: Path) -> FrameFolder | None:
        """The video of a folder, or None if it holds no frames."""
        inside = visible(path)
        if any(file.suffix.lower() in IMAGES and not file.is_dir() for file in inside):
            return cls(path, IMAGES, read_frame)
        arrays = [file for file in inside if file.suffix.lower() == ".npy"]
        if arrays and all(map(is_one_frame, arrays[:: max(1, len(arrays) - 1)])):
            return cls(path, (".npy",), _read_array)
        return None

    @cached_property
    def size(self) -> tuple[int, int]:
        """Height and width of the first frame."""
        height, width, _ = self._frame(self.files[0]).shape
        return height, width

    def frames(self, numbers: Sequence[int]) -> Iterator[np.ndarray]:
        """Images or arrays of these numbers, all of one size."""
        for number in numbers:
            frame = self._frame(self.files[number])
            if frame.shape[:2] != self.size:
                raise DataFilesError(
                    f"frame {number} of {self.path} has {frame.shape[0]} x {frame.shape[1]} pixels; expected "
                    f"{self.size[0]} x {self.size[1]}, as the first one has"
                )
            yield frame


class ImageStack(VideoFile):
    """One file of several images, each of which is a frame: GIF, animated PNG or WebP, TIFF."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with opened_image(path) as image:
            self.length = getattr(image, "n_frames", 1)

    def frames(self, numbers: Sequence[int]) -> Iterator[np.ndarray]:
        """Frames of these numbers, for which the file is opened once."""
        with opened_image(self.path) as image:
            _clear_first(image)
            for number in numbers:
                image.seek(number)
                yield as_frame(image)


class ArrayFile(VideoFile):
    """An npy file, or the array "video", "frames" or the only one of an npz: "time height width channels" in bytes.

    Three axes whose last has 3 or 4 entries are an image in colour, and no grey video that is so narrow.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.length = len(self._values())

    def frames(self, numbers: Sequence[int]) -> Iterator[np.ndarray]:
        """Entries, for which the file is opened once."""
        values = self._values()
        return (_in_colour(values[number]) for number in numbers)

    def _values(self) -> np.ndarray:
        if self.path.suffix.lower() == ".npy":
            values = map_npy(self.path)
        else:
            known = npz_names(self.path)
            name = next((name for name in ("video", "frames", *known) if name in known), "video")
            values = read_npz(self.path, [name]).get(name, np.empty(0))
        shown = values[..., None] if values.ndim == 3 else values
        if shown.ndim != 4 or values.dtype != np.uint8 or shown.shape[-1] not in _CHANNELS or _is_image(values):
            raise DataFilesError(
                f"{self.path} holds {values.dtype} values of shape {values.shape}; expected a video, uint8 of shape "
                "(time, height, width, 3), or (time, height, width) in grey, of more than 4 columns"
            )
        return shown


def is_one_frame(path: Path) -> bool:
    """Whether an npy file is a single frame, bytes "height width" or "height width channels", and no video."""
    try:
        values = map_npy(path) if path.suffix.lower() == ".npy" else np.empty(0)
    except FileError:
        return False
    return _is_image(values)


def _is_image(values: np.ndarray) -> bool:
    return values.dtype == np.uint8 and (values.ndim == 2 or (values.ndim == 3 and values.shape[-1] in _CHANNELS))


def _read_array(path: Path) -> np.ndarray:
    if not is_one_frame(path):
        raise DataFilesError(f"{path} is no frame as those beside it; expected uint8 of shape (height, width, 3)")
    values = np.array(map_npy(path))
    return _in_colour(values[..., None] if values.ndim == 2 else values)


def _in_colour(frame: np.ndarray) -> np.ndarray:
    if frame.shape[-1] == 4:
        return as_frame(Image.fromarray(frame))
    return np.repeat(frame, 3 // frame.shape[-1], axis=-1)


def _clear_first(image: Image.Image) -> None:
    """Has the first frame of a GIF that gives way to what was before it give way to the background, as viewers do."""
    if isinstance(image, GifImageFile) and image.disposal_method == 3 and image.dispose is None:
        left, top, right, bottom = image.dispose_extent or (0, 0, *image.size)
        image.dispose = Image.new(image.mode, (right - left, bottom - top), image.info.get("background", 0)).im
