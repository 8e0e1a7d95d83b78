"""Images as arrays: frames as viewers show them, numbers exactly as they were stored, and both resized."""

from __future__ import annotations

import contextlib
import io
import struct
import warnings
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image, ImageOps
from PIL.PngImagePlugin import PngImageFile
from torch import Tensor
from torch.nn import functional as F

from slotbench.errors import DataFilesError, FileError
from slotbench.interfaces import View
from slotbench.io import open_file

__all__ = ["Fit", "Fitting", "as_frame", "decode_png", "opened_image", "read_frame", "read_numbers"]
__all__ += ["Resolution", "refused_if_damaged", "resize_bilinear", "resize_nearest", "sides"]

Resolution = int | tuple[int, int]
"""Pixels of frames: of each side of a square, or height and width."""

Fitting = Literal["crop", "stretch", "letterbox"]
"""How frames get other proportions: the largest box of them in the middle, all stretched, or all between black bars."""

_KINDS = ("PNG", "JPEG", "BMP", "WEBP", "TIFF", "PPM", "GIF")  # of those that Pillow knows some start other programs
_LOSSY = ("JPEG", "MPO", "WEBP")
_EXACT_TIFF = (None, "raw", "packbits", "tiff_lzw", "tiff_adobe_deflate", "tiff_deflate", "lzma", "zstd", "group4")
_SIXTEEN_BITS = ("I;16", "I;16L", "I;16B", "I;16N")
_BITS = 258  # of a sample, in a TIFF
# what Pillow and PyAV raise for files that are damaged
_DAMAGED = (OSError, ValueError, SyntaxError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError,
            EOFError, MemoryError, struct.error, zlib.error, Image.DecompressionBombError)  # fmt: skip


@dataclass(frozen=True)
class Fit:
    """How frames become those of a data set: a box of them, or all of them, resized.

    Args:
        height: rows of the result.
        width: columns of the result.
        channels: 3, or 1 for grey.
        mode: see `Fitting`.
    """

    height: int
    width: int
    channels: int = 3
    mode: Fitting = "crop"

    def __call__(self, frame: UInt8[np.ndarray, "height width 3"]) -> UInt8[np.ndarray, "channels rows columns"]:
        """A frame, with anti-aliasing."""
        if self.channels == 1:
            frame = np.array(Image.fromarray(frame).convert("L"))[..., None]
        pixels = self.cut(frame.transpose(2, 0, 1))
        batch = torch.from_numpy(np.ascontiguousarray(pixels))[None]
        return resize_bilinear(batch, self.height, self.width)[0].numpy()

    def masks(self, ids: np.ndarray) -> np.ndarray:
        """Masks "time height width", ids unchanged."""
        return resize_nearest(self.cut(ids), self.height, self.width)

    def cut(self, images: np.ndarray) -> np.ndarray:
        """What is resized of images "... height width"; bars are 0: black, background, or no depth."""
        return self.view(images.shape[-2:]).cut(images)

    def view(self, size: tuple[int, int]) -> View:
        """That part of frames of this height and width."""
        if self.mode == "stretch":
            return View.whole(*size)
        height, width = size
        as_wide = max(1, round(width * self.height / self.width)), width
        as_high = height, max(1, round(height * self.width / self.height))
        is_narrow = width * self.height <= height * self.width
        return View.middle(*size, *(as_wide if is_narrow == (self.mode == "crop") else as_high))


def sides(resolution: Resolution) -> tuple[int, int]:
    """Height and width of frames of a resolution."""
    height, width = (resolution, resolution) if isinstance(resolution, int) else resolution
    if min(height, width) < 1:
        raise ValueError(f"resolution is {resolution}; expected pixels per side, or [height, width], 1 or more")
    return height, width


@contextlib.contextmanager
def refused_if_damaged(trouble: str, *also: type[Exception]) -> Iterator[None]:
    """Turns what Pillow, PyAV (`also`) and numpy raise into one sentence that begins with `trouble`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about what is strange in a file: it can be read, or not
        try:
            yield
        except FileError:
            raise
        except _DAMAGED + also as error:
            reason = (" ".join(str(error).split()) or type(error).__name__)[:160]
            raise DataFilesError(f"{trouble} ({reason}): copy or make it anew") from error


@contextlib.contextmanager
def opened_image(path: Path) -> Iterator[Image.Image]:
    """An open image file."""
    with (
        open_file(path) as file,
        refused_if_damaged(f"{path} cannot be read as an image"),
        Image.open(file, formats=_KINDS) as image,
    ):
        yield image


def read_frame(path: Path) -> UInt8[np.ndarray, "height width 3"]:
    """An image file as a frame."""
    with opened_image(path) as image:
        _check_alone(path, image)
        return as_frame(image)


def read_numbers(path: Path, modes: Sequence[str], expected: str) -> np.ndarray:
    """The numbers "height width" of an image that stands for something else than colours: ids, or depth."""
    with opened_image(path) as image:
        if image.format in _LOSSY or (image.format == "TIFF" and image.info.get("compression") not in _EXACT_TIFF):
            raise DataFilesError(
                f"{path} is a {image.format}, whose compression changes numbers and makes new ones at every edge; "
                f"expected {expected}: save them anew, from what they were before, as PNG"
            )
        _check_alone(path, image)
        if image.mode not in modes:
            raise DataFilesError(f"{path} is an image in {image.mode}; expected {expected}")
        return np.asarray(_upright(image))


def as_frame(image: Image.Image) -> UInt8[np.ndarray, "height width 3"]:
    """An open image as viewers show it: upright, black where it is transparent, the upper 8 bits of 16."""
    clear, kind = image.info.get("transparency"), image.format
    image.load()
    bits = min(int(getattr(image, "tag_v2", {}).get(_BITS, (16,))[0]), 16)
    upright = _upright(image)
    if upright.mode in (*_SIXTEEN_BITS, "I", "F"):
        grey = _in_bytes(np.asarray(upright), kind, bits, clear)
        return np.ascontiguousarray(grey[..., None].repeat(3, axis=-1))
    if upright.has_transparency_data:
        black = Image.new("RGBA", upright.size, (0, 0, 0, 255))
        upright = Image.alpha_composite(black, upright.convert("RGBA"))
    return np.array(upright.convert("RGB"))


def decode_png(png: bytes | memoryview) -> np.ndarray:
    """The pixels of a PNG as "channels height width": uint8, or uint16 of a grey image of 16 bits."""
    with refused_if_damaged(f"{len(png):,} bytes cannot be decoded as a PNG"), PngImageFile(io.BytesIO(png)) as image:
        pixels = np.array(image)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


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
    resized = F.interpolate(frames.float(), (height, width), mode="bilinear", antialias=antialias, align_corners=False)
    return resized.round_().clamp_(0, 255).to(torch.uint8)


def resize_nearest(masks: np.ndarray, height: int, width: int) -> np.ndarray:
    """Masks "... height width" of another size: a pixel takes the id that lies under its centre."""
    rows, columns = masks.shape[-2:]
    if (rows, columns) == (height, width):
        return masks
    down = (2 * np.arange(height) + 1) * rows // (2 * height)
    across = (2 * np.arange(width) + 1) * columns // (2 * width)
    return masks[..., down[:, None], across]


def _in_bytes(values: np.ndarray, kind: str | None, bits: int, clear: object) -> UInt8[np.ndarray, "height width"]:
    """Grey values of more than 8 bits."""
    if values.dtype.kind == "f":
        # not one image by its own least and largest value: the frames of a video would flicker
        if not bool(((values >= 0) & (values <= 1)).all()):
            raise ValueError(
                f"values of floating point from {values.min():.6g} to {values.max():.6g}; expected 0 to 1, black to "
                "white: scale all frames of the video alike"
            )
        return np.rint(values * 255).astype(np.uint8)
    if values.dtype.itemsize > 2 and kind not in ("PNG", "PPM"):  # which have 16 bits at most
        raise ValueError("whole numbers of 32 bits, of which nothing says what is white; expected 8 or 16 bits")
    if isinstance(clear, int):
        values = np.where(values == clear, 0, values)
    return (values >> (bits - 8)).clip(0, 255).astype(np.uint8)


def _check_alone(path: Path, image: Image.Image) -> None:
    if (count := getattr(image, "n_frames", 1)) > 1 and image.format != "MPO":
        raise DataFilesError(f"{path} holds {count:,} images; expected one in each file, or a video of its own")


def _upright(image: Image.Image) -> Image.Image:
    """An image turned as its EXIF orientation says; one that cannot be read is none, as in viewers."""
    with contextlib.suppress(Exception):
        return ImageOps.exif_transpose(image)
    return image
