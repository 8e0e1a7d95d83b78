"""AVI files of Motion JPEG, in which every frame is an image of its own: any frame, without a video library."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from slotbench.data.formats.images import check_size, refused_if_damaged
from slotbench.data.formats.picture_files import check_jpeg
from slotbench.errors import DataFilesError
from slotbench.files import open_regular

__all__ = ["MotionJpeg"]

_HEADER = struct.Struct("<4sI")
_MOST_FRAMES = 1 << 20
_MOST_CHUNKS = 1 << 22
_MOST_BYTES = 1 << 24  # of a frame
_DEEPEST = 4


class MotionJpeg:
    """The frames of a file, by number.

    The chunks are walked through once; their index at the end of the file, which may be missing, is not read.

    Args:
        path: the file.

    Attributes:
        places: where each frame begins, and its bytes "frames 2".

    Raises:
        DataFilesError: it is no AVI file, is cut off, or has no frames of Motion JPEG.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        refused = refused_if_damaged(f"{path} cannot be read as an AVI file")
        with refused, open_regular(path) as file:
            size = file.seek(0, io.SEEK_END)
            file.seek(0)
            kind, _ = _HEADER.unpack(file.read(_HEADER.size))
            if kind != b"RIFF" or file.read(4) != b"AVI ":
                raise ValueError("it does not begin with RIFF and AVI")
            places: list[tuple[int, int]] = []
            ends, position, chunks = [size], 12, 0
            while position + _HEADER.size <= ends[-1]:
                chunks += 1
                if chunks > _MOST_CHUNKS or len(places) > _MOST_FRAMES:
                    raise ValueError("it has more chunks than can be meant")
                file.seek(position)
                kind, length = _HEADER.unpack(file.read(_HEADER.size))
                start = position + _HEADER.size
                if start + length > size:
                    raise ValueError(f"a chunk of {length:,} bytes at byte {position:,} goes past its end")
                if kind == b"LIST" and file.read(4) in (b"movi", b"rec ") and len(ends) < _DEEPEST:
                    ends.append(start + length)
                    position = start + 4
                else:
                    if kind[2:] in (b"dc", b"db") and length:
                        places.append((start, length))
                    position = start + length + length % 2
                while len(ends) > 1 and position + _HEADER.size > ends[-1]:
                    position = max(position, ends.pop())
                    position += position % 2
            if not places:
                raise ValueError("it has no frames")
        self.places = np.array(places)

    def __len__(self) -> int:
        return len(self.places)

    def read(self, frames: Sequence[int], at_least: tuple[int, int] | None = None) -> np.ndarray:
        """Frames by number: bytes "frames 3 height width".

        Args:
            frames: their numbers.
            at_least: height and width; a JPEG may be decoded at a half, a quarter or an eighth of its size, if that is
                no smaller.

        Raises:
            DataFilesError: a frame is damaged, of another size than the first, or not there.
        """
        return np.stack(list(self.images(frames, at_least)))

    def images(self, frames: Sequence[int], at_least: tuple[int, int] | None = None) -> Iterator[np.ndarray]:
        """As `read`, one frame "3 height width" after the other."""
        shape: tuple[int, ...] = ()
        with open_regular(self.path) as file:
            for frame in frames:
                if not 0 <= frame < len(self.places):
                    raise DataFilesError(f"{self.path} has {len(self.places)} frames, and frame {frame} is asked for")
                start, length = self.places[frame].tolist()
                with refused_if_damaged(f"frame {frame} of {self.path} cannot be decoded"):
                    if length > _MOST_BYTES:
                        raise ValueError(f"it has {length:,} bytes")
                    file.seek(start)
                    content = file.read(length)
                    check_jpeg(content)
                    with Image.open(io.BytesIO(content), formats=("JPEG",)) as image:
                        check_size(*image.size)
                        if at_least is not None:
                            image.draft("RGB", (at_least[1], at_least[0]))
                        pixels = np.asarray(image.convert("RGB")).transpose(2, 0, 1)
                    shape = shape or pixels.shape
                    if pixels.shape != shape:
                        raise ValueError("it is of another size than the frames before it")
                yield pixels
