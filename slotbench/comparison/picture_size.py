"""How large a picture is once it is unpacked, read off its headers before anybody unpacks it."""

from __future__ import annotations

import struct
from collections.abc import Iterator

__all__ = ["MOST_PIXELS", "unfit"]

MOST_PIXELS = 256_000_000
"""Pixels that a picture, or all frames of an animation together, may have: a page unpacks them into memory."""

_MOST_SIDE = 32_768
_SCALABLE = (b"VP8 ", b"VP8L", b"VP8X")


def unfit(content: bytes, suffix: str) -> str:
    """Why a picture does not go into a page: it is not what its name says, or far too large; "" if nothing is wrong.

    Videos are not looked into: a browser unpacks one when somebody plays it, a frame at a time.

    Args:
        content: of the file.
        suffix: of its name, in lower case, such as ".png".
    """
    readers = {".png": _png, ".gif": _gif, ".jpg": _jpeg, ".jpeg": _jpeg, ".webp": _webp}
    if suffix not in readers:
        return ""
    try:
        width, height, frames = readers[suffix](content)
    except (struct.error, IndexError, ValueError):
        return f"is no {suffix.removeprefix('.').upper()} picture, or is damaged"
    if max(width, height) > _MOST_SIDE or width * height * frames > MOST_PIXELS:
        many = f", {frames} frames" if frames > 1 else ""
        return f"is too large for a page: {width} x {height} pixels{many}"
    return ""


def _png(content: bytes) -> tuple[int, int, int]:
    if content[:8] != b"\x89PNG\r\n\x1a\n" or content[12:16] != b"IHDR":
        raise ValueError("no PNG")
    width, height = struct.unpack_from(">II", content, 16)
    frames, place = 1, 8
    while place + 8 <= len(content):
        length, kind = struct.unpack_from(">I4s", content, place)
        if kind == b"acTL":  # an animation, which says how many pictures it has
            frames = max(1, struct.unpack_from(">I", content, place + 8)[0])
        if kind in (b"IDAT", b"IEND"):
            break
        place += length + 12
    return width, height, frames


def _gif(content: bytes) -> tuple[int, int, int]:
    if content[:6] not in (b"GIF87a", b"GIF89a"):
        raise ValueError("no GIF")
    width, height = struct.unpack_from("<HH", content, 6)
    frames = sum(1 for _ in _gif_frames(content))
    return width, height, max(1, frames)


def _gif_frames(content: bytes) -> Iterator[int]:
    """Where each frame of an animation begins."""
    place = 13 + _colours(content[10])
    while place < len(content):
        kind = content[place]
        if kind == 0x3B:
            return
        if kind == 0x21:
            place += 2
        elif kind == 0x2C:
            yield place
            place += 11 + _colours(content[place + 9])
        else:
            raise ValueError("no block of a GIF")
        while place < len(content) and content[place]:
            place += content[place] + 1
        place += 1


def _colours(flags: int) -> int:
    return 3 * 2 ** ((flags & 7) + 1) if flags & 0x80 else 0


def _jpeg(content: bytes) -> tuple[int, int, int]:
    if content[:2] != b"\xff\xd8":
        raise ValueError("no JPEG")
    place = 2
    while True:
        if content[place] != 0xFF:
            raise ValueError("no segment of a JPEG")
        marker = content[place + 1]
        if marker == 0xFF:
            place += 1
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", content, place + 5)
            return width, height, 1
        else:
            place += 2 + struct.unpack_from(">H", content, place + 2)[0]


def _webp(content: bytes) -> tuple[int, int, int]:
    kind = content[12:16]
    if content[:4] != b"RIFF" or content[8:12] != b"WEBP" or kind not in _SCALABLE:
        raise ValueError("no WebP")
    if kind == b"VP8X":
        width, height = (int.from_bytes(content[at : at + 3], "little") + 1 for at in (24, 27))
        return width, height, max(1, content.count(b"ANMF"))
    if kind == b"VP8L":
        bits = struct.unpack_from("<I", content, 21)[0]
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, 1
    width, height = struct.unpack_from("<HH", content, 26)
    return width & 0x3FFF, height & 0x3FFF, 1
