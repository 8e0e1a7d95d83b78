"""Movies whose frames say which they are, written by PyAV."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

LENGTH = 40


def numbered_frame(number: int, length: int = LENGTH, height: int = 48, width: int = 192) -> np.ndarray:
    """White up to a column that grows with its number, black beyond."""
    frame = np.zeros((height, width, 3), np.uint8)
    frame[:, : width * (number + 1) // length] = 255
    return frame


def number_of(frame: np.ndarray, length: int = LENGTH) -> int:
    """The number of a frame, read off it."""
    return round(int((frame[frame.shape[0] // 2, :, 1] > 128).sum()) * length / frame.shape[1]) - 1


def write_movie(
    path: Path,
    codec: str = "libx264",
    options: Mapping[str, str] | None = None,
    b_frames: int | None = None,
    container: str | None = None,
    pixels: str = "yuv420p",
    size: tuple[int, int] = (48, 192),
    times: Callable[[int], int] | None = None,
    muxing: Mapping[str, str] | None = None,
) -> Path:
    """A movie of `LENGTH` numbered frames; `times` has that of each frame in milliseconds."""
    import av

    with av.open(str(path), "w", format=container, options=dict(muxing or {})) as movie:
        stream: Any = movie.add_stream(codec, rate=25 if times is None else 1000)
        (stream.height, stream.width), stream.pix_fmt = size, pixels
        stream.options = {"g": "12", **(options or {})}
        if b_frames is not None:
            stream.codec_context.max_b_frames = b_frames
        for number in range(LENGTH):
            frame = av.VideoFrame.from_ndarray(numbered_frame(number, LENGTH, *size), format="rgb24")
            if times is not None:
                frame.pts, frame.time_base = times(number), Fraction(1, 1000)
            movie.mux(stream.encode(frame))
        movie.mux(stream.encode(None))
    return path


def packets_of(path: Path) -> list[tuple[bytes, bool]]:
    """The packets of a movie, and whether they are of key frames."""
    import av

    with av.open(str(path)) as movie:
        return [(bytes(packet), packet.is_keyframe) for packet in movie.demux(video=0) if packet.size]


def write_avi(path: Path, packets: list[tuple[bytes, bool]], code: bytes, size: tuple[int, int] = (48, 192)) -> Path:
    """An AVI file of packets, with an index of key frames."""
    height, width = size
    chunks, index = [b"movi"], b""
    for packet, key in packets:
        index += b"00dc" + struct.pack(
            "<III", 16 * key, sum(map(len, chunks)) if len(packets) < 999 else 0, len(packet)
        )
        chunks.append(_chunk(b"00dc", packet))
    main = struct.pack("<14I", 40000, 0, 0, 16, len(packets), 0, 1, 0, width, height, 0, 0, 0, 0)
    stream = b"vids" + code + struct.pack("<IHHIIIIIIII4H", *[0] * 4, 1, 25, 0, len(packets), *[0] * 5, width, height)
    image = struct.pack("<IiiHH4sIiiII", 40, width, height, 1, 24, code, 0, 0, 0, 0, 0)
    lists = _chunk(b"strh", stream) + _chunk(b"strf", image)
    header = b"hdrl" + _chunk(b"avih", main) + _chunk(b"LIST", b"strl" + lists)
    body = b"AVI " + _chunk(b"LIST", header) + _chunk(b"LIST", b"".join(chunks)) + _chunk(b"idx1", index)
    path.write_bytes(_chunk(b"RIFF", body))
    return path


def packed(path: Path, source: Path) -> Path:
    """An AVI file as DivX writes them: a B-frame lies in the packet of the frame before, and an empty one follows."""
    plain, out = packets_of(source), []
    types = [packet[packet.find(b"\0\0\1\xb6") + 4] >> 6 for packet, _ in plain]
    while plain:
        packet, key = plain.pop(0)
        kind = types.pop(0)
        if kind != 2 and types and types[0] == 2:
            types.pop(0)
            out += [(packet + plain.pop(0)[0], key), (b"\0\0\1\xb6\x50\x1f", False)]
        else:
            out.append((packet, key))
    first = out[0][0]
    place = first.find(b"\0\0\1\xb2")  # what the encoder says of itself
    out[0] = first[:place] + b"\0\0\1\xb2DivX503b1393p" + first[first.find(b"\0\0\1\xb6") :], True
    return write_avi(path, out, b"XVID")


def replaced(path: Path, found: bytes, offset: int, new: bytes) -> Path:
    """Writes over what lies some bytes after the beginning of a box's name."""
    content = bytearray(path.read_bytes())
    place = content.find(found) + offset
    content[place : place + len(new)] = new
    path.write_bytes(content)
    return path


def with_matrix(path: Path, a: int, b: int, c: int, d: int) -> Path:
    """An mp4 whose frames are to be turned by a matrix, in 1/65536."""
    return replaced(path, b"tkhd", 44, struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, 1 << 30))


def _chunk(kind: bytes, content: bytes) -> bytes:
    return kind + struct.pack("<I", len(content)) + content + b"\0" * (len(content) % 2)
