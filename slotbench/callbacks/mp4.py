"""Videos as MP4: smaller than a GIF, in all colours, and players can stop and step. PyAV writes them, where it is."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import numpy as np
from jaxtyping import UInt8

__all__ = ["can_encode_mp4", "encode_mp4", "write_mp4"]

_CODEC, _SMALLEST = "libx264", 256


@cache
def can_encode_mp4() -> bool:
    """Whether PyAV is installed (`slotbench[video]`) and was built with an encoder for H.264."""
    if find_spec("av") is None:
        return False
    import av

    return _CODEC in av.codecs_available


def encode_mp4(video: UInt8[np.ndarray, "time height width 3"], frames_per_second: int = 10) -> bytes:
    """The MP4 of `write_mp4`, in memory.

    Args:
        video: red, green and blue in 0..255.
        frames_per_second: how fast it plays.
    """
    out = io.BytesIO()
    _encode(out, video, frames_per_second)
    return out.getvalue()


def write_mp4(path: Path, frames: Iterable[np.ndarray], frames_per_second: int = 10) -> None:
    """An MP4 in H.264 that every browser plays, enlarged by whole pixels until its shorter side has at least 256.

    The last row or column is repeated where a side would be odd, which the format cannot hold. Brightness is kept
    closely; colours of neighbouring pixels run into one another, as they have half the resolution. Frames are taken and
    written one by one; the file gets its name once it is whole.

    Args:
        path: where to.
        frames: each "height width 3" in bytes, all of one size.
        frames_per_second: how fast it plays.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            _encode(file, frames, frames_per_second)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _encode(out: IO[bytes] | io.BytesIO, frames: Iterable[np.ndarray], frames_per_second: int) -> None:
    import av

    factor = 1
    with av.open(out, "w", format="mp4") as container:
        stream = container.add_stream(_CODEC, rate=frames_per_second, options={"crf": "18"})
        assert isinstance(stream, av.VideoStream)
        for index, frame in enumerate(frames):
            if index == 0:
                factor = math.ceil(_SMALLEST / min(frame.shape[:2]))
            large = frame.repeat(factor, axis=0).repeat(factor, axis=1)
            even = np.pad(large, ((0, large.shape[0] % 2), (0, large.shape[1] % 2), (0, 0)), mode="edge")
            if index == 0:
                stream.height, stream.width = even.shape[:2]
                stream.pix_fmt = "yuv420p"
            container.mux(stream.encode(av.VideoFrame.from_ndarray(even, format="rgb24")))
        container.mux(stream.encode())
