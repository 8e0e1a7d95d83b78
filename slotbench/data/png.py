"""PNG pictures of 8 bits per channel, decoded faster than a general reader does.

zlib unpacks the whole picture at once and a compiled loop undoes the filters, writing channel by channel, the order in
which frames are wanted. Whatever else a PNG may be (16 bits, a palette, transparency, interlacing) goes to Pillow.

Source: the PNG specification, sections 9 (filtering) and 11 (chunks).
"""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from PIL.PngImagePlugin import PngImageFile

from slotbench.data.files import DataFilesError

__all__ = ["MOST_PIXELS", "check_size", "decode_png"]

MOST_PIXELS = 1 << 25
"""Pixels that a picture may have: those of a video of 8K, 7680 x 4320."""

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {0: 1, 2: 3}  # of the colour types grey and red-green-blue
_NOT_A_PNG = (
    ValueError,
    SyntaxError,
    OSError,
    EOFError,
    struct.error,
    zlib.error,
    IndexError,
    KeyError,
    TypeError,
    OverflowError,
)


def check_size(width: int, height: int) -> None:
    """Refuses a picture without pixels, or with more than can be meant, before memory is taken for it.

    Raises:
        ValueError: says the size.
    """
    if width < 1 or height < 1 or width * height > MOST_PIXELS:
        raise ValueError(f"a picture of {width:,} x {height:,} pixels; expected 1 to {MOST_PIXELS:,} of them")


def decode_png(png: bytes | memoryview) -> np.ndarray:
    """The pixels as "channels height width", uint8, or uint16 of a picture of 16 bits.

    Raises:
        DataFilesError: the bytes are no PNG, or it is damaged, too large, or followed by other bytes.
    """
    try:
        height, width, channels, content = _unpack(png)
        if not channels:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                pixels = np.asarray(PngImageFile(io.BytesIO(png)))
            return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))
        out = np.empty((channels, height, width), np.uint8)
        if len(content) != height * (channels * width + 1) or not _compiled()(np.frombuffer(content, np.uint8), out):
            raise ValueError("its content does not have the size or the filters that it should have")
    except _NOT_A_PNG as error:
        raise DataFilesError(f"{len(png):,} bytes cannot be decoded as a PNG: {error}") from error
    return out


def _unpack(png: bytes | memoryview) -> tuple[int, int, int, bytes]:
    """Height, width, channels (0 for a picture that is left to Pillow) and the filtered rows."""
    if bytes(png[:8]) != _SIGNATURE:
        raise ValueError("it does not begin like one")
    if bytes(png[12:16]) != b"IHDR":
        raise ValueError("it does not begin with its size")
    parts: list[bytes | memoryview] = []
    width, height, depth, colour, _, _, interlaced = struct.unpack_from(">IIBBBBB", png, 16)
    check_size(width, height)
    transparent = False
    position, end = 8, len(png)
    while True:
        if position + 12 > end:
            raise ValueError("it ends early")
        length, kind = struct.unpack_from(">I4s", png, position)
        if position + 12 + length > end:
            raise ValueError("it ends early")
        if kind == b"IDAT":
            parts.append(png[position + 8 : position + 8 + length])
        transparent |= kind == b"tRNS"
        position += 12 + length
        if kind == b"IEND":
            break
    if position != end:
        raise ValueError(f"{end - position:,} bytes follow after its end")
    if transparent or depth != 8 or colour not in _CHANNELS or interlaced:
        return height, width, 0, b""
    channels = _CHANNELS[colour]
    packed = parts[0] if len(parts) == 1 else b"".join(parts)
    size = height * (channels * width + 1)
    # no more than it should be, whatever a few bytes may unpack to
    unpacker = zlib.decompressobj()
    content = unpacker.decompress(packed, size)
    if len(content) == size and not unpacker.eof:
        # the check sum, and whatever else there is, which must be nothing
        content += unpacker.decompress(unpacker.unconsumed_tail, 1)
    if not unpacker.eof or unpacker.unused_data or unpacker.unconsumed_tail:
        raise ValueError("its content does not end where it should")
    return height, width, channels, content


@lru_cache(maxsize=1)
def _compiled() -> Callable[..., bool]:
    import numba  # takes half a second, so only those who decode wait for it

    compiled: Callable[..., bool] = numba.njit(cache=True, nogil=True)(_unfilter)
    return compiled


def _unfilter(content: Any, out: Any) -> bool:
    """Undoes the filter of each row of `content` into `out`; False if there is a filter that does not exist."""
    channels, rows, columns = out.shape
    stride = channels * columns
    row = np.zeros(stride, np.uint8)
    above = np.zeros(stride, np.uint8)
    position = 0
    for y in range(rows):
        kind = content[position]
        position += 1
        if kind == 0:
            for i in range(stride):
                row[i] = content[position + i]
        elif kind == 1:
            for i in range(channels):
                row[i] = content[position + i]
            for i in range(channels, stride):
                row[i] = content[position + i] + row[i - channels]
        elif kind == 2:
            for i in range(stride):
                row[i] = content[position + i] + above[i]
        elif kind == 3:
            for i in range(channels):
                row[i] = content[position + i] + (above[i] >> 1)
            for i in range(channels, stride):
                row[i] = content[position + i] + ((np.int32(row[i - channels]) + np.int32(above[i])) >> 1)
        elif kind == 4:
            for i in range(channels):
                row[i] = content[position + i] + above[i]
            for i in range(channels, stride):
                left, up, corner = np.int32(row[i - channels]), np.int32(above[i]), np.int32(above[i - channels])
                to_left, to_up, to_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
                if to_left <= to_up and to_left <= to_corner:
                    nearest = left
                elif to_up <= to_corner:
                    nearest = up
                else:
                    nearest = corner
                row[i] = content[position + i] + nearest
        else:
            return False
        position += stride
        for channel in range(channels):
            for x in range(columns):
                out[channel, y, x] = row[x * channels + channel]
        row, above = above, row
    return True
