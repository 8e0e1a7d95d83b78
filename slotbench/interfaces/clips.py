"""Names, origins and views of the clips and videos of a data set, for the files that are written about them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

__all__ = ["DescribedClips", "Piece", "View", "WholeVideos"]


@dataclass(frozen=True)
class View:
    """The part of a video's frames that arrays about it show: a box (top, left, height, width) in pixels of them.

    A letterbox reaches beyond them, and begins before 0.
    """

    frame: tuple[int, int]
    box: tuple[int, int, int, int]

    @classmethod
    def whole(cls, height: int, width: int) -> View:
        """All of frames of this size, which may have been stretched."""
        return cls((height, width), (0, 0, height, width))

    @classmethod
    def middle(cls, height: int, width: int, rows: int, columns: int) -> View:
        """The box of so many pixels in the middle of frames of this size, between bars where it is larger."""
        return cls((height, width), ((height - rows) // 2, (width - columns) // 2, rows, columns))

    def cut(self, images: np.ndarray, fill: int = 0) -> np.ndarray:
        """What it shows of arrays "... height width" about such frames; `fill` outside of them."""
        top, left, rows, columns = self.box
        inside = images[..., max(top, 0) : top + rows, max(left, 0) : left + columns]
        above, before = max(-top, 0), max(-left, 0)
        below, after = rows - above - inside.shape[-2], columns - before - inside.shape[-1]
        bars = [*[(0, 0)] * (images.ndim - 2), (above, below), (before, after)]
        return np.pad(inside, bars, constant_values=fill) if np.any(bars) else inside


class DescribedClips:
    """A data set of clips. Every member has a default, which describes nothing."""

    frame_stride: int = 1
    """Frames of the source that one step is away from the next."""

    def clip_name(self, index: int) -> str | None:
        """Readable name of clip `index`, for the names of files about it; None if it has only a number."""
        return None

    def video_origin(self, video: int) -> str | None:
        """Origin of a video of the source, in words; None if clips are simulated, not read."""
        return None

    def video_name(self, video: int) -> str | None:
        """Name of the files about a video of the source, its masks among them; None if it has no name."""
        return None

    def view(self, video: int) -> View | None:
        """The part of a video's frames that its clips show; None if that is not known."""
        return None


@dataclass(frozen=True)
class Piece:
    """Frames `start` to `stop` (exclusive) of `length` of a video, number `video` of its source."""

    video: int
    number: int
    start: int
    stop: int
    length: int

    @property
    def is_last(self) -> bool:
        """Whether the video ends with it."""
        return self.stop == self.length


class WholeVideos(ABC):
    """A data set of the pieces of whole videos, in order."""

    pieces: list[Piece]

    @abstractmethod
    def title(self, piece: Piece) -> str:
        """What the files about a piece's video are called."""

    @abstractmethod
    def origin(self, piece: Piece) -> str:
        """Where the video is from, in words."""

    @abstractmethod
    def frame_numbers(self, piece: Piece) -> np.ndarray:
        """The numbers of all frames of the piece's video in its file."""
