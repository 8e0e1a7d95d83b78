"""Movies, read by PyAV, with random access to their frames."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from slotbench.data.folders.video_file import VideoFile
from slotbench.data.formats.images import MOST_PIXELS, check_size, refused_if_damaged
from slotbench.data.formats.movie_packets import FrameLostError, MoviePackets
from slotbench.errors import DataFilesError
from slotbench.files import open_regular

__all__ = ["MovieFile"]

_CONTAINERS = "mov,mp4,m4a,3gp,3g2,mj2,avi,matroska,webm,mpeg,mpegts,mpegvideo"


class MovieFile(VideoFile):
    """A movie, upright: turned and mirrored as its display matrix says. Pixels that are not square stay so.

    Its packets are read once, and not decoded; what a file says about its length is often wrong.

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
        with self._opened(f"{path} cannot be read as a video") as (movie, stream):
            self.packets = MoviePackets(movie.demux(stream), stream.codec_context.name)
        self.length = len(self.packets)
        if not self.length:
            raise DataFilesError(f"{path} has no images in it")
        self._unfit: set[int] = set()
        self._seek = 0  # which of the times to seek leads to a packet that is early enough
        self._size: tuple[int, ...] = ()

    def frames(self, numbers: Sequence[int]) -> Iterator[np.ndarray]:
        """Frames by number, decoded from the last key frame on from which they can be."""
        wanted, reason = list(numbers), ""
        for start in self.packets.starts(wanted[0], self._unfit) if wanted else ():
            fit = False
            try:
                with contextlib.closing(self._decoded(start)) as decoded:
                    for number, frame in self.packets.numbered(decoded, start):
                        fit = True
                        if number == wanted[0]:
                            yield self._upright(frame, number)
                            wanted.pop(0)
                        if not wanted:
                            return
            except FrameLostError as error:
                reason = f" ({error})"
            if not fit and self._learns_leading(start):
                yield from self.frames(wanted)
                return
            if not fit:
                self._unfit.add(start)
        if wanted:
            raise DataFilesError(
                f"frame {wanted[0]} of {self.path} cannot be decoded: the file is damaged or incomplete{reason}; what "
                "can be read of it is written anew by: ffmpeg -i FILE NEW.mp4"
            )

    def _learns_leading(self, start: int) -> bool:
        """Finds out how many frames come before a key frame that are decoded after it, from the key frame before."""
        before, leading = self.packets.key_before(start), 0
        with contextlib.suppress(FrameLostError), contextlib.closing(self._decoded(before)) as decoded:
            for number, _ in decoded if before < start else ():
                if number == start:
                    return self.packets.learn_leading(start, leading)
                leading += number is not None and number > start
        return False

    def _upright(self, frame: Any, number: int) -> np.ndarray:
        """A frame as it is to be shown: "height width 3"."""
        with refused_if_damaged(f"frame {number} of {self.path} cannot be read"):
            check_size(frame.width, frame.height)
            image = _turned(frame.to_ndarray(format="rgb24", threads=1), frame.side_data.get("DISPLAYMATRIX"))
        self._size = self._size or image.shape
        if image.shape != self._size:
            raise DataFilesError(
                f"frame {number} of {self.path} has {image.shape[1]} x {image.shape[0]} pixels, and others "
                f"{self._size[1]} x {self._size[0]}; expected one size: cut the movie where it changes"
            )
        return image

    def _decoded(self, start: int) -> Generator[tuple[int | None, Any], None, None]:
        """Frames from a key frame on, as the decoder gives them, each with the number of its packet."""
        times = [] if start == self.packets.keys[0] else self.packets.seek_times(start)
        for tried, time in enumerate([*times[self._seek :], None], self._seek):
            try:
                with self._opened("it cannot be decoded") as (movie, stream):
                    packets = self._packets(movie, stream, start, time)
                    if packets is None:
                        continue
                    self._seek = tried if time is not None else self._seek
                    for number, packet in packets:
                        if packet.is_corrupt:
                            break
                        # a frame has the time of its packet, by which it is told from others
                        packet.pts = packet.dts = number
                        yield from ((frame.pts, frame) for frame in stream.codec_context.decode(packet))
                    yield from ((frame.pts, frame) for frame in stream.codec_context.decode(None))
                    return
            except DataFilesError as error:
                raise FrameLostError(str(error)) from error

    def _packets(self, movie: Any, stream: Any, start: int, time: int | None) -> Iterator[tuple[int, Any]] | None:
        """Packets from a number on, sought at a time; None if there are only later ones."""
        number = 0
        if time is not None:
            movie.seek(time, stream=stream)
        packets: Iterator[Any] = (packet for packet in movie.demux(stream) if packet.size)
        if time is not None:
            # what comes first may be the rest of a packet
            found = ((self.packets.find(packet), packet) for packet in packets)
            number, packet = next(((place, packet) for place, packet in found if place is not None), (start + 1, None))
            if number > start:
                return None
            packets = itertools.chain([packet], packets)
        return self._from(start, enumerate(packets, number))

    def _from(self, start: int, packets: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
        for number, packet in packets:
            if not self.packets.is_packet(number, packet):
                raise FrameLostError("its packets come in another order after seeking")
            if number >= start:
                yield number, packet

    @contextlib.contextmanager
    def _opened(self, trouble: str) -> Iterator[tuple[Any, Any]]:
        """The movie as PyAV sees it, and its images; opened as bytes, so that it can name no other file."""
        import av

        only = {"format_whitelist": _CONTAINERS}
        refused = refused_if_damaged(trouble, av.FFmpegError)
        with open_regular(self.path) as file, refused, av.open(file, options=only, metadata_errors="ignore") as movie:
            stream: Any = movie.streams.best("video")
            if stream is None:
                raise DataFilesError(f"{self.path} has no images in it")
            check_size(stream.codec_context.width, stream.codec_context.height)
            # one thread, here and for colours: a loader's worker that is forked has none of them, and waits for all
            stream.codec_context.thread_count = 1
            stream.codec_context.options = {"max_pixels": str(MOST_PIXELS)}
            yield movie, stream


def _turned(image: np.ndarray, matrix: Any) -> np.ndarray:
    """An image "height width 3" as a display matrix has it: x to a x + c y, and y to b x + d y.

    Raises:
        ValueError: it is no multiple of 90 degrees.
    """
    if matrix is None:
        return image
    a, b, _, c, d = np.frombuffer(bytes(matrix), np.int32)[:5]
    if a and d and not b and not c:
        across, down = a, d
    elif b and c and not a and not d:
        image, across, down = image.transpose(1, 0, 2), c, b
    else:
        raise ValueError("it is to be turned by an angle that is no multiple of 90 degrees")
    return np.ascontiguousarray(image[:: 1 if down > 0 else -1, :: 1 if across > 0 else -1])
