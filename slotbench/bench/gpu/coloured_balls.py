"""Balls in colour, of any size and number of frames: for training at the sizes of data that would be downloaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.utils.data import Dataset

from slotbench.data.balls.bouncing_balls import BouncingBalls
from slotbench.data.base import ClipDataset, Split
from slotbench.interfaces import DataSpec, VideoBatch, VideoSpec

__all__ = ["ColouredBalls"]

_COLOURS = ((0, 0, 0), (255, 80, 80), (80, 255, 80), (80, 80, 255), (255, 255, 80), (255, 80, 255), (80, 255, 255))


class ColouredBalls(BouncingBalls):
    """`BouncingBalls` with a colour for each ball, so that frames have three channels as those of MOVi and CLEVR.

    Speed and memory of a training step do not depend on what the frames show; scores do, and those on balls say nothing
    of MOVi or CLEVR. The arguments are those of `BouncingBalls`; at most six balls.
    """

    @property
    def spec(self) -> DataSpec:
        """Three channels in, three channels out."""
        frame = VideoSpec(channels=3, height=self.resolution, width=self.resolution)
        return DataSpec(input=frame, target=frame)

    def oracle_predictions(self, batch: VideoBatch, context: int, horizon: int) -> dict[str, Tensor]:
        """None: there is nothing to predict."""
        return {}

    def dataset(self, split: Split) -> Dataset[VideoBatch]:
        """The clips of `BouncingBalls`, painted."""
        clips = super().dataset(split)
        assert isinstance(clips, ClipDataset)
        return _Painted(clips)


class _Painted(ClipDataset):
    def __init__(self, clips: ClipDataset) -> None:
        super().__init__(len(clips))
        self.white = clips

    def clips(self, indices: Sequence[int]) -> VideoBatch:
        batch = self.white.clips(indices)
        assert batch.masks is not None
        frames = torch.tensor(_COLOURS, dtype=torch.uint8)[batch.masks.long()]
        return replace(batch, frames=frames.movedim(-1, 2).contiguous())
