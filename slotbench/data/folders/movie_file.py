"""Movies, read by PyAV, with random access to their frames."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from slotbench.data.folders.video_file import VideoFile
from slotbench.data.formats.images import MOST_PIXELS, check_size, refused_if_damaged
from slotbench.errors import DataFilesError
from slotbench.files import open_regular

__all__ = ["MovieFile"]

_CONTAINERS = "mov,mp4,m4a,3gp,3g2,mj2,avi,matroska,webm,mpeg,mpegts,mpegvideo"


class MovieFile(VideoFile):
    """A movie.

    Args:
        path: the file.

    Raises:
        DataFilesError: PyAV is not installed, or the file is no movie.
    """

    def __init__(self, path: Path) -> None:
        if find_spec("av") is None:
            raise DataFilesError(
                f"{path} needs PyAV to be read: pip install 'slotbench[video]'; or give a folder of images, a GIF, "
                "or an npz file"
            )
        self.path = path
        self.times = self._packet_times()
        self.length = len(self.times)

    def frames(self, numbers: Sequence[int]) -> Iterator[np.ndarray]:
        """Frames by number, decoded from the last key frame before them on."""
        wanted = {int(self.times[number]) for number in numbers}
        found = 0
        with self._opened("cannot be decoded") as container:
            stream = container.streams.video[0]
            # to the last key frame before, from which on frames can be decoded
            container.seek(min(wanted), stream=stream)
            for frame in container.decode(stream):
                if frame.pts in wanted:
                    check_size(frame.width, frame.height)
                    found += 1
                    yield frame.to_ndarray(format="rgb24")
                if found == len(wanted):
                    break
        if found < len(wanted):
            raise DataFilesError(f"{self.path} gave {found} of {len(wanted)} frames: it is damaged or incomplete")

    def _packet_times(self) -> np.ndarray:
        """The time stamp of every frame, found without decoding; what a file says about its length is often wrong."""
        with self._opened("cannot be read as a video") as container:
            packets = container.demux(container.streams.video[0])
            times = np.unique(np.array([packet.pts for packet in packets if packet.pts is not None], np.int64))
        if not len(times):
            raise DataFilesError(f"{self.path} has no images in it")
        return times

    @contextlib.contextmanager
    def _opened(self, trouble: str) -> Iterator[Any]:
        """The movie as PyAV sees it; handed over as bytes, and as a movie only, so that it can name no other file."""
        import av

        only = {"format_whitelist": _CONTAINERS}
        refused = refused_if_damaged(f"{self.path} {trouble}", av.FFmpegError)
        with open_regular(self.path) as file, refused, av.open(file, options=only, metadata_errors="ignore") as movie:
            if not movie.streams.video:
                raise DataFilesError(f"{self.path} has no images in it")
            context = movie.streams.video[0].codec_context
            check_size(context.width, context.height)
            context.options = {"max_pixels": str(MOST_PIXELS)}
            yield movie
