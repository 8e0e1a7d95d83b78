"""Movies: decoded once, in order, by PyAV, and kept resized in the user's cache folder; nothing seeks."""

from __future__ import annotations

import hashlib
import math
import os
import sys
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from slotbench.data.formats.images import Fit, refused_if_damaged
from slotbench.data.formats.npy import GrowingNpy
from slotbench.errors import DataFilesError
from slotbench.io import cache_home, lock, map_npy, open_file

__all__ = ["MovieFile", "VideoFile", "decoded", "keep_movies"]

_CONTAINERS = "mov,mp4,m4a,3gp,3g2,mj2,avi,matroska,webm,mpeg,mpegts,mpegvideo"


def decoded(path: Path) -> Iterator[np.ndarray]:
    """The frames of a movie in order, "height width 3" in bytes, upright as its display matrix says."""
    if find_spec("av") is None:
        raise DataFilesError(f"{path} needs PyAV: pip install 'slotbench[video]'; or give a folder of images")
    import av

    size: tuple[int, ...] = ()
    with (
        open_file(path) as file,
        refused_if_damaged(f"{path} cannot be read as a video", av.FFmpegError),
        # of these containers alone: a playlist would name other files
        av.open(file, "r", options={"format_whitelist": _CONTAINERS}, metadata_errors="ignore") as movie,
    ):
        stream: Any = movie.streams.best("video")
        if stream is None:
            return
        stream.thread_type = "AUTO"
        for number, frame in enumerate(movie.decode(stream)):
            if frame.is_corrupt:
                raise DataFilesError(f"frame {number} of {path} is damaged: write it anew by ffmpeg -i FILE NEW.mp4")
            image = _turned(frame.to_ndarray(format="rgb24"), frame.side_data.get("DISPLAYMATRIX"))
            size = size or image.shape
            if image.shape != size:
                raise DataFilesError(f"frame {number} of {path} has another size than those before it: cut it there")
            yield image


class VideoFile(ABC):
    """A video whose frames are read by number.

    Attributes:
        path: the file or folder.
        length: frames.
        numbers: of the frames, in the names of their files; None where they have none.
    """

    path: Path
    length: int
    numbers: list[float] | None = None

    @abstractmethod
    def frames(self, numbers: Sequence[int]) -> Iterator[np.ndarray]:
        """Frames of these ascending numbers, each "height width 3" in bytes."""

    @cached_property
    def size(self) -> tuple[int, int]:
        """Height and width in the file."""
        height, width, _ = next(iter(self.frames([0]))).shape
        return height, width

    def fitted(self, numbers: Sequence[int], fit: Fit) -> np.ndarray:
        """Frames of these numbers as `fit` makes them, "time channels height width"."""
        return np.stack([fit(frame) for frame in self.frames(numbers)])


class MovieFile(VideoFile):
    """A movie.

    Args:
        path: the file.
        fit: keeps all frames, made by it, in the cache folder at first use; None decodes again whenever they are read.
    """

    def __init__(self, path: Path, fit: Fit | None = None) -> None:
        self.path, self.fit = path, fit

    @cached_property
    def length(self) -> int:  # type: ignore[override]
        """Frames, counted: what a file says about its length is often wrong."""
        return sum(1 for _ in decoded(self.path)) if self.fit is None else len(self.kept())

    def frames(self, numbers: Sequence[int]) -> Iterator[np.ndarray]:
        """Frames of these ascending numbers, decoded from the beginning on."""
        wanted, last = set(numbers), max(numbers, default=-1)
        return (frame for number, frame in enumerate(islice(decoded(self.path), last + 1)) if number in wanted)

    def fitted(self, numbers: Sequence[int], fit: Fit) -> np.ndarray:
        """Frames of these numbers, as far as there are any, as `fit` makes them; kept ones if they are made so."""
        if self.fit == fit:
            kept = self.kept()
            return kept[[number for number in numbers if number < len(kept)]]
        wanted, shown, count = set(numbers), [], 0
        for count, frame in enumerate(decoded(self.path), 1):
            if count - 1 in wanted:
                shown.append(fit(frame))
        self.length = count
        return np.array(shown)

    def kept(self) -> np.ndarray:
        """All frames, mapped into memory."""
        if not self.place.is_file():
            keep_movies([self])
        return map_npy(self.place)

    @cached_property
    def place(self) -> Path:
        """Where the decoded frames are kept; another one once the file has changed."""
        open_file(self.path).close()
        about = self.path.stat()
        what = f"{self.path.resolve()} {about.st_size} {about.st_mtime_ns} {self.fit}"
        digest = hashlib.sha256(what.encode()).hexdigest()[:16]
        return cache_home() / "movies" / f"{self.path.stem[:80]}-{digest}.npy"


def keep_movies(videos: Iterable[VideoFile]) -> None:
    """Decodes the movies among these videos that have a `fit` and are not in the cache yet, with a bar."""
    missing = [video for video in videos if isinstance(video, MovieFile) and video.fit and not video.place.is_file()]
    if not missing:
        return
    from rich.console import Console
    from rich.progress import Progress

    folder = missing[0].place.parent
    folder.mkdir(parents=True, exist_ok=True)
    written = 0
    # one process decodes, and those that wait find the files
    with lock(folder / ".lock", timeout=math.inf), Progress(console=Console(stderr=True)) as progress:
        for video in progress.track(missing, description="decoding movies"):
            if not video.place.is_file():
                written += _keep(video)
    if written:
        print(f"{len(missing)} decoded movies ({written / 1e6:,.0f} MB) are kept in {folder}", file=sys.stderr)


def _keep(video: MovieFile) -> int:
    assert video.fit is not None
    partial = video.place.with_name(f".{uuid.uuid4().hex}.partial")
    try:
        with GrowingNpy(partial) as out:
            for image in decoded(video.path):
                out.append(video.fit(image)[None])
            if not out.count:
                out.append(np.empty((0, video.fit.channels, video.fit.height, video.fit.width), np.uint8))
        os.replace(partial, video.place)
    except OSError as error:
        raise DataFilesError(f"{video.place.parent} cannot be written ({error.strerror or error})") from error
    finally:
        partial.unlink(missing_ok=True)
    return video.place.stat().st_size


def _turned(image: np.ndarray, matrix: Any) -> np.ndarray:
    """An image "height width 3" as a display matrix has it: x to a x + c y, and y to b x + d y."""
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
