"""Headers of picture files, read before anything is decoded: the number of pictures, and whether they are exact.

Each walk is bounded, and refuses what would take minutes to decode: a JPEG of thousands of scans, a TIFF whose
directories or strips have no end, an animation of more frames than can be meant.
"""

from __future__ import annotations

import io
import re
import struct
from dataclasses import dataclass
from typing import IO

__all__ = ["MOST_PICTURES", "Layout", "check_jpeg", "layout_of"]

MOST_PICTURES = 10_000
"""Pictures that one file may have."""

_MOST_SCANS = 64  # a progressive JPEG has about 10
_MOST_SEGMENTS = 10_000
_MOST_JPEG_BYTES = 1 << 28
_MOST_CHUNKS = 1 << 20
_MOST_STRIPS = 1 << 18
_MOST_TAGS = 4096
_MOST_TEXT = 1 << 25  # bytes of a PPM in digits
_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
_LOSSY_TIFF = {6, 7, 33003, 33004, 33005, 34712, 34892, 50001, 50002}  # JPEG, JPEG 2000, WebP, JPEG XL


@dataclass(frozen=True)
class Layout:
    """The content of a picture file.

    Attributes:
        kind: its name in words, such as "a JPEG".
        pictures: numbers of the pictures as Pillow counts them, without previews.
        exact: whether pixels come out of the file as they went in.
        in_turn: whether a picture can be decoded only after those before it.
    """

    kind: str
    pictures: range | tuple[int, ...] = range(1)
    exact: bool = True
    in_turn: bool = False


def layout_of(file: IO[bytes]) -> Layout:
    """The content of an open picture file, which is at its beginning before and after.

    Raises:
        ValueError: it would take too long to decode, or is damaged.
        struct.error: it ends early.
    """
    head = file.read(16)
    file.seek(0)
    try:
        if head.startswith(b"\xff\xd8"):
            check_jpeg(file.read(_MOST_JPEG_BYTES + 1))
            return Layout("a JPEG", exact=False)
        if head.startswith(b"\x89PNG"):
            return _png(file)
        if head.startswith(b"GIF8"):
            return Layout("a GIF", range(_gif_pictures(file)), in_turn=True)
        if head[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
            return _tiff(file, head)
        if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
            return _webp(file)
        if head[:1] == b"P":
            _check_ppm(file)
        return Layout("an image")
    finally:
        file.seek(0)


def check_jpeg(content: bytes) -> None:
    """Refuses a JPEG of more scans than can be meant, each of which goes over the whole image.

    Raises:
        ValueError: says how many.
    """
    if len(content) > _MOST_JPEG_BYTES:
        raise ValueError(f"a JPEG of more than {_MOST_JPEG_BYTES:,} bytes")
    place, scans = 2, 0
    for _ in range(_MOST_SEGMENTS):
        found = _MARKER.search(content, place)
        marker = b"\xff\xd9" if found is None else found.group()
        if found is None or marker == b"\xff\xd9":
            return
        scans += marker == b"\xff\xda"
        if scans > _MOST_SCANS:
            raise ValueError(f"a JPEG of more than {_MOST_SCANS} scans")
        place = found.end()
        if marker not in (b"\xff\xd8", b"\xff\x01"):
            place += max(2, int.from_bytes(content[place : place + 2], "big"))
    raise ValueError(f"a JPEG of more than {_MOST_SEGMENTS:,} segments")


def _png(file: IO[bytes]) -> Layout:
    """Chunks: acTL says how many pictures there are, fcTL before IDAT that the image itself is the first of them."""
    file.seek(8)
    pictures, first_is_shown = 1, False
    for _ in range(_MOST_CHUNKS):
        header = file.read(8)
        if len(header) < 8 or header[4:] == b"IEND":
            break
        length, kind = struct.unpack(">I4s", header)
        content = file.read(8) if kind == b"acTL" else b""
        if len(content) == 8:
            pictures = struct.unpack(">I", content[:4])[0]
        if kind == b"fcTL":
            first_is_shown = True
        if kind == b"IDAT" and pictures == 1:
            break
        if kind == b"IDAT":
            shown = range(pictures) if first_is_shown else range(1, pictures + 1)
            return Layout("an animated PNG", _few(shown), in_turn=True)
        file.seek(length + 4 - len(content), io.SEEK_CUR)
    else:
        raise ValueError(f"a PNG of more than {_MOST_CHUNKS:,} chunks")
    return Layout("a PNG")


def _gif_pictures(file: IO[bytes]) -> int:
    """Image descriptors, counted block by block."""
    packed = file.read(13)[10:11]
    if packed and packed[0] & 0x80:
        file.seek(3 << ((packed[0] & 7) + 1), io.SEEK_CUR)
    count = 0
    for _ in range(_MOST_CHUNKS):
        kind = file.read(1)
        if not kind or kind == b";":
            return max(1, count)
        if kind == b"!":
            file.read(1)
        elif kind == b",":
            count += 1
            packed = file.read(9)[8:9]
            if packed and packed[0] & 0x80:
                file.seek(3 << ((packed[0] & 7) + 1), io.SEEK_CUR)
            file.read(1)
            if count > MOST_PICTURES:
                break
        else:
            continue
        while length := file.read(1):
            if length == b"\0":
                break
            file.seek(length[0], io.SEEK_CUR)
    raise ValueError(f"a GIF of more than {MOST_PICTURES:,} pictures")


def _webp(file: IO[bytes]) -> Layout:
    """Chunks, those of an animation's frames among them: `VP8 ` is lossy, `VP8L` is not."""
    file.seek(12)
    pictures, exact, animated = 0, True, False
    for _ in range(_MOST_CHUNKS):
        header = file.read(8)
        if len(header) < 8:
            break
        kind, length = struct.unpack("<4sI", header)
        exact &= kind != b"VP8 "
        if kind == b"ANMF":
            animated = True
            file.seek(16, io.SEEK_CUR)  # its own chunks follow
            continue
        pictures += kind in (b"VP8 ", b"VP8L")
        file.seek(length + length % 2, io.SEEK_CUR)
    else:
        raise ValueError(f"a WebP of more than {_MOST_CHUNKS:,} chunks")
    name = "a WebP" if exact else "a lossy WebP"
    return Layout(name, _few(range(max(1, pictures))), exact, in_turn=True) if animated else Layout(name, exact=exact)


def _tiff(file: IO[bytes], head: bytes) -> Layout:
    """Directories one after the other, each of which is a picture, or the preview or mask of one."""
    order, big = "<" if head[:1] == b"I" else ">", head[2:4] in (b"+\0", b"\0+")
    count_form, entry, place_form = ("Q", "HHQQ", "Q") if big else ("H", "HHII", "I")
    count_size = struct.calcsize(order + count_form)
    place_size = struct.calcsize(order + place_form)
    place = struct.unpack(order + place_form, head[8:16] if big else head[4:8])[0]
    seen: set[int] = set()
    shown, exact, strips = [], True, 0
    while place and place not in seen:
        if len(seen) >= MOST_PICTURES:
            raise ValueError(f"a TIFF of more than {MOST_PICTURES:,} pictures")
        seen.add(place)
        file.seek(place)
        count = struct.unpack(order + count_form, file.read(count_size))[0]
        if count > _MOST_TAGS:
            raise ValueError(f"a directory of {count:,} tags")
        size = struct.calcsize(order + entry)
        tags = {}
        for tag, kind, number, value in struct.iter_unpack(order + entry, file.read(count * size)):
            small = value if kind != 3 or order == "<" else value >> (8 * place_size - 16)
            tags[tag] = (number, small & 0xFFFF if kind == 3 else small)
        strips += max(tags.get(tag, (0, 0))[0] for tag in (273, 324))
        if strips > _MOST_STRIPS:
            raise ValueError(f"a TIFF of more than {_MOST_STRIPS:,} strips or tiles")
        if not tags.get(254, (1, 0))[1] & 0b101:
            shown.append(len(seen) - 1)
            exact &= tags.get(259, (1, 1))[1] not in _LOSSY_TIFF
        place = struct.unpack(order + place_form, file.read(place_size))[0]
    if not exact:
        _check_jpegs_within(file, strips)
    return Layout("a TIFF" if exact else "a TIFF with lossy compression", tuple(shown) or (0,), exact)


def _check_jpegs_within(file: IO[bytes], strips: int) -> None:
    """The scans of all strips together; other data has their marker once in 65,536 bytes by chance."""
    file.seek(0)
    scans, size, last = 0, 0, b""
    while block := file.read(1 << 20):
        scans += (last + block).count(b"\xff\xda")
        size, last = size + len(block), block[-1:]
    if scans > (1 + strips) * _MOST_SCANS + size // 4096:
        raise ValueError(f"{scans:,} scans in {strips:,} strips; expected at most {_MOST_SCANS} in each")


def _check_ppm(file: IO[bytes]) -> None:
    """Refuses digits without end, and a head whose comments have none."""
    head = file.read(4096)
    if len(re.sub(rb"#[^\r\n]*", b"", head).split()) < 3:
        raise ValueError("its head has more than 4,096 bytes, or ends early")
    if head[:2] in (b"P1", b"P2", b"P3") and file.seek(0, io.SEEK_END) > _MOST_TEXT:
        raise ValueError(f"more than {_MOST_TEXT:,} bytes of digits; save it as a PNG")


def _few(pictures: range) -> range:
    if len(pictures) > MOST_PICTURES:
        raise ValueError(f"{len(pictures):,} pictures; expected at most {MOST_PICTURES:,}")
    return pictures
