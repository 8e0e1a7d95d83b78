"""Whole videos, piece by piece: how `predict` reads a video of any length in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from slotbench.data.base import ClipDataset
from slotbench.data.clip_source import ClipSource
from slotbench.interfaces import VideoBatch

__all__ = ["Piece", "VideoPieces"]


@dataclass(frozen=True)
class Piece:
    """Some frames of one video.

    Attributes:
        video: the video's number in its source.
        number: its number among those that are read.
        start: the first frame.
        stop: one past the last frame.
        length: frames of the video.
    """

    video: int
    number: int
    start: int
    stop: int
    length: int

    @property
    def is_last(self) -> bool:
        """Whether the video ends with it."""
        return self.stop == self.length


class VideoPieces(ClipDataset):
    """The pieces of whole videos in order, one video after the other; process r of w reads every w-th video.

    A piece's `time` counts on from the pieces before it, so that a model knows which piece begins a video. Its `index`
    is the number of the video.

    Args:
        source: the videos.
        frames: of a piece at most.
        chosen: the videos that are read; all if None.
        limit: videos at most.
        rank: number of this process, from 0.
        processes: how many there are.
    """

    def __init__(
        self,
        source: ClipSource,
        frames: int,
        chosen: np.ndarray | None = None,
        limit: int | None = None,
        rank: int = 0,
        processes: int = 1,
    ) -> None:
        self.source = source
        videos = np.arange(len(source.lengths)) if chosen is None else chosen
        self.num_videos = len(videos[:limit])
        mine = list(enumerate(videos[:limit].tolist()))[rank::processes]
        self.pieces = [
            Piece(video, number, start, min(start + frames, length), length)
            for number, video in mine
            for length in [int(source.lengths[video])]
            for start in range(0, length, frames)
        ]
        super().__init__(len(self.pieces))

    def clips(self, indices: Sequence[int]) -> VideoBatch:
        """One piece: pieces differ in length, and those of a video are to be read in order.

        Raises:
            ValueError: several are asked for.
        """
        if len(indices) != 1:
            raise ValueError(f"pieces of videos are read one at a time, and {len(indices)} are asked for")
        piece = self.pieces[indices[0]]
        batch = self.source.read([piece.video], [piece.start], piece.stop - piece.start)
        return replace(batch, time=batch.time + piece.start)

    def __getitems__(self, indices: list[int]) -> list[VideoBatch]:
        """The piece, with the number of its video."""
        (batch,) = super().__getitems__(indices)
        return [replace(batch, index=torch.tensor([self.pieces[index].number for index in indices]))]

    def title(self, piece: Piece) -> str:
        """What the files about a video are called."""
        name = self.source.video_name(piece.video)
        return f"video{piece.number:04d}" if name is None else f"video{piece.number:04d}_{name}"

    def origin(self, piece: Piece) -> str:
        """Where the video is from, in words."""
        return self.source.origin(piece.video)

    def frame_numbers(self, piece: Piece) -> np.ndarray:
        """The numbers of all frames of the piece's video in its file."""
        return self.source.stride * np.arange(piece.length)
