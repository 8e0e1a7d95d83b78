"""Images as arrays: their size bounded before they are decoded, what Pillow raises in one sentence; and resized."""

from __future__ import annotations

import contextlib
import io
import struct
import warnings
import zlib
from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image, UnidentifiedImageError
from PIL.PngImagePlugin import PngImageFile
from torch import Tensor
from torch.nn import functional as F

from slotbench.errors import DataFilesError, FileError

__all__ = [
    "MOST_PIXELS",
    "check_size",
    "decode_png",
    "middle_square",
    "refused_if_damaged",
    "resize_bilinear",
    "resize_nearest",
    "square_frame",
]

MOST_PIXELS = 1 << 25
"""Pixels that an image may have: those of a video of 8K, 7680 x 4320."""

# what Pillow and PyAV raise for files that are damaged
_DAMAGED: tuple[type[Exception], ...] = (
    OSError, ValueError, SyntaxError, EOFError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError,
    MemoryError, struct.error, zlib.error, UnidentifiedImageError, Image.DecompressionBombError,
)  # fmt: skip


def check_size(width: int, height: int) -> None:
    """Refuses an image without pixels, or with more than can be meant, before memory is taken for it.

    Raises:
        ValueError: says the size.
    """
    if width < 1 or height < 1 or width * height > MOST_PIXELS:
        raise ValueError(f"an image of {width:,} x {height:,} pixels; expected 1 to {MOST_PIXELS:,} of them")


def decode_png(png: bytes | memoryview) -> np.ndarray:
    """The pixels of a PNG as "channels height width": uint8, or uint16 of a grey image of 16 bits.

    Raises:
        DataFilesError: the bytes are no PNG, or it is damaged or too large.
    """
    with refused_if_damaged(f"{len(png):,} bytes cannot be decoded as a PNG"), PngImageFile(io.BytesIO(png)) as image:
        check_size(*image.size)
        pixels = np.array(image)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


@contextlib.contextmanager
def refused_if_damaged(trouble: str, *also: type[Exception]) -> Iterator[None]:
    """Turns what Pillow and PyAV raise into one sentence.

    Args:
        trouble: how it begins.
        also: errors that are turned besides.

    Raises:
        DataFilesError: the file is damaged, too large, or something else.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about what is strange in a file: it can be read, or not
        try:
            yield
        except FileError:
            raise
        except _DAMAGED + also as error:
            reason = (" ".join(str(error).split()) or type(error).__name__)[:160]
            raise DataFilesError(f"{trouble} ({reason})") from error


def resize_bilinear(
    frames: UInt8[Tensor, "batch channels height width"], height: int, width: int, antialias: bool = True
) -> UInt8[Tensor, "batch channels new_height new_width"]:
    """Frames of `height` x `width` pixels by bilinear interpolation, rounded.

    Args:
        frames: bytes.
        height: rows of the result.
        width: columns of the result.
        antialias: whether a pixel of a smaller image is a mean over all that it covers, or of four pixels only.
    """
    if frames.shape[-2:] == (height, width):
        return frames
    if not frames.shape[-2] or not frames.shape[-1]:
        raise ValueError(f"a frame of {frames.shape[-2]} x {frames.shape[-1]} pixels has nothing to be resized")
    resized = F.interpolate(frames.float(), (height, width), mode="bilinear", antialias=antialias, align_corners=False)
    return resized.round_().clamp_(0, 255).to(torch.uint8)


def resize_nearest(masks: np.ndarray, height: int, width: int) -> np.ndarray:
    """Masks "... height width" of another size: a pixel takes the id that lies under its centre."""
    rows, columns = masks.shape[-2:]
    if (rows, columns) == (height, width):
        return masks
    if not rows or not columns:
        raise ValueError(f"a mask of {rows} x {columns} pixels has nothing to be resized")
    down = (2 * np.arange(height) + 1) * rows // (2 * height)
    across = (2 * np.arange(width) + 1) * columns // (2 * width)
    return masks[..., down[:, None], across]


def middle_square(images: np.ndarray) -> np.ndarray:
    """The square in the middle of images "... height width"."""
    rows, columns = images.shape[-2:]
    size = min(rows, columns)
    top, left = (rows - size) // 2, (columns - size) // 2
    return images[..., top : top + size, left : left + size]


def square_frame(frame: np.ndarray, side: int, channels: int = 3) -> np.ndarray:
    """The square in the middle of a frame "height width 3" as "channels side side"; grey with one channel."""
    if channels == 1:
        frame = np.array(Image.fromarray(frame).convert("L"))[..., None]
    cropped = middle_square(frame.transpose(2, 0, 1))
    return resize_bilinear(torch.from_numpy(np.ascontiguousarray(cropped))[None], side, side)[0].numpy()
