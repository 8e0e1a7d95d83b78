"""One picture as an array: as frame, in bytes as viewers show it, or as numbers, exactly as they were stored.

A frame is turned as its EXIF orientation says, and black where it is transparent. Of 16 bits the upper 8 are taken (of
12 in a TIFF likewise); floating point is in [0, 1]. No rule looks at the values of one picture, so that all frames of a
video are read alike; what has no stated range is refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from slotbench.data.formats.images import check_size, refused_if_damaged
from slotbench.data.formats.picture_files import Layout, layout_of
from slotbench.errors import DataFilesError
from slotbench.files import open_regular

__all__ = ["KINDS", "as_frame", "opened_picture", "read_frame", "read_numbers"]

KINDS = ("PNG", "JPEG", "BMP", "WEBP", "TIFF", "PPM")
"""The kinds of pictures that are read, as Pillow calls them; of those that it knows some start other programs."""

_ORIENTATION = 0x0112
_BITS = 258  # of a sample, in a TIFF
_SIXTEEN_BITS = ("I;16", "I;16L", "I;16B", "I;16N")


@contextlib.contextmanager
def opened_picture(path: Path, kinds: Sequence[str], what: str) -> Iterator[tuple[Image.Image, Layout]]:
    """A picture of one of these kinds, open, and what its file holds.

    Args:
        path: the file.
        kinds: as Pillow calls them.
        what: it is to be, for messages.

    Raises:
        DataFilesError: it is damaged, too large, would take minutes to decode, or is of another kind.
    """
    with open_regular(path) as file, refused_if_damaged(f"{path} cannot be read as {what}"):
        layout = layout_of(file)
        with Image.open(file, formats=tuple(kinds)) as image:
            check_size(*image.size)
            yield image, layout


def read_frame(path: Path) -> UInt8[np.ndarray, "height width 3"]:
    """A picture as a frame.

    Raises:
        DataFilesError: it cannot be read, or the file holds several.
    """
    with opened_picture(path, KINDS, "an image") as (image, layout):
        _check_alone(path, layout)
        return as_frame(image)


def read_numbers(path: Path, modes: Sequence[str], expected: str, kinds: Sequence[str] = KINDS) -> np.ndarray:
    """The numbers "height width" of a picture that stands for something else than colours: ids, or depth.

    Args:
        path: the file.
        modes: of Pillow that can be meant.
        expected: in words, what these are.
        kinds: of files.

    Raises:
        DataFilesError: it cannot be read, has colours, holds several pictures, or was compressed with losses, which
            change numbers and make new ones.
    """
    with opened_picture(path, kinds, "an image") as (image, layout):
        if not layout.exact:
            raise DataFilesError(
                f"{path} is {layout.kind}, whose compression changes numbers and makes new ones at every edge; "
                f"expected {expected}: save them anew, from what they were before, as PNG"
            )
        _check_alone(path, layout)
        if image.mode not in modes:
            raise DataFilesError(f"{path} is an image in {image.mode}; expected {expected}")
        image.load()
        return _upright(np.asarray(image), image)


def as_frame(image: Image.Image) -> UInt8[np.ndarray, "height width 3"]:
    """An open picture as a frame.

    Raises:
        ValueError: its numbers have no range that is known.
    """
    image.load()
    if image.mode in (*_SIXTEEN_BITS, "I", "F"):
        values = _in_bytes(image)[..., None].repeat(3, axis=-1)
    elif image.has_transparency_data:
        black = Image.new("RGBA", image.size, (0, 0, 0, 255))
        values = np.asarray(Image.alpha_composite(black, image.convert("RGBA")).convert("RGB"))
    else:
        values = np.asarray(image.convert("RGB"))
    return np.ascontiguousarray(_upright(values, image))


def _in_bytes(image: Image.Image) -> UInt8[np.ndarray, "height width"]:
    """Grey values of more than 8 bits."""
    values = np.asarray(image)
    if image.mode == "F":
        # not one picture by its own least and largest value: the frames of a video would flicker
        if not bool(((values >= 0) & (values <= 1)).all()):
            raise ValueError(
                f"values of floating point from {values.min():.6g} to {values.max():.6g}; expected 0 to 1, black to "
                "white: scale all frames of the video alike"
            )
        return np.rint(values * 255).astype(np.uint8)
    if image.mode == "I" and image.format not in ("PNG", "PPM"):  # which have 16 bits at most
        raise ValueError(
            "whole numbers of 32 bits, or with a sign, of which nothing says what is white; expected 8 or 16 bits"
        )
    bits = min(int(getattr(image, "tag_v2", {}).get(_BITS, (16,))[0]), 16)
    clear = image.info.get("transparency")
    if isinstance(clear, int):
        values = np.where(values == clear, 0, values)
    return (values >> (bits - 8)).clip(0, 255).astype(np.uint8)


def _check_alone(path: Path, layout: Layout) -> None:
    if len(layout.pictures) > 1:
        raise DataFilesError(
            f"{path} is {layout.kind} of {len(layout.pictures):,} pictures; expected one in each file: split it, or "
            "give it as a video of its own"
        )


def _upright(values: np.ndarray, image: Image.Image) -> np.ndarray:
    """Pixels "height width ..." as a viewer turns them; an orientation that cannot be read is none, as there."""
    try:
        orientation = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # of which there are many kinds
        return values
    if orientation in (5, 6, 7, 8):
        values = values.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        values = values[::-1]
    return values[:, ::-1] if orientation in (2, 3, 6, 7) else values
