"""What the sets of real videos share: which videos of the lists are scored, of any size and length, and an account."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import numpy as np

from slotbench.data.base import LoaderOptions, Split, check_counts
from slotbench.data.clips import StoredVideos
from slotbench.data.folders.video_folder import FolderClips
from slotbench.data.formats.images import Fit, Fitting, Resolution, sides
from slotbench.errors import DataFilesError, MissingSplitError, listing

__all__ = ["ListedVideos"]


class ListedVideos(StoredVideos):
    """Videos that the lists of a release name; a subclass opens those of a split in `listed`, and has its arguments."""

    def __init__(
        self,
        path: str,
        num_frames: int,
        eval_frames: int | None,
        resolution: Resolution,
        fit: Fitting,
        stride: int,
        first_videos: int | None,
        loader: LoaderOptions,
    ) -> None:
        super().__init__(loader, num_frames, eval_frames, stride)
        check_counts(first_videos=first_videos)
        self.path = Path(path).expanduser()
        self.resolution, self.first_videos = resolution, first_videos
        self.fit = Fit(*sides(resolution), mode=fit)
        self._opened: dict[Split, FolderClips] = {}

    @abstractmethod
    def listed(self, split: Split) -> FolderClips:
        """All videos of a split."""

    def stored_videos(self, split: Split) -> tuple[FolderClips, np.ndarray | None]:
        """The videos of a split, opened once, and the first of them where no more are scored."""
        if split not in self._opened:
            self._opened[split] = self.listed(split)
        source = self._opened[split]
        few = split != "train" and self.first_videos is not None
        return source, np.arange(len(source.lengths))[: self.first_videos] if few else None

    def reading(self, splits: Sequence[Split] = get_args(Split)) -> str:
        """Two lines: the clips and videos of these splits that are read, of how many; what is left out, and why."""
        read, left_out = [], []
        for split in splits:
            dataset, (source, chosen) = self.dataset(split), self.stored_videos(split)
            lengths = source.lengths if chosen is None else source.lengths[chosen]
            frames = dataset.num_frames
            videos = f"{len(dataset.videos):,} of {len(source.lengths):,} videos"
            clips = f"clips of {frames} frames" if frames else "whole videos"
            read.append(
                f"{split}: {videos}" if split == "train" else f"{split}: {len(dataset):,} {clips}, from {videos}"
            )
            short = [source.video_name(video) or "" for video in set(range(len(lengths))) - {*dataset.videos.tolist()}]
            if short:
                left_out.append(f"{split} {listing(sorted(short), 6)} (shorter than a clip of {frames} frames)")
            if after := len(source.lengths) - len(lengths):
                left_out.append(f"{split} {after:,} videos after the first {len(lengths):,} (first_videos)")
            if split != "train" and len(dataset) < dataset.available:
                left_out.append(f"{split} {dataset.available - len(dataset):,} clips (loader.{split}_size)")
            if split != "train" and frames and (ends := int((lengths[dataset.videos] % frames).sum())):
                left_out.append(f"{split} {ends:,} frames at the ends of videos")
        return f"{self.path}: {'; '.join(read)}\nleft out: {'; '.join(left_out) or 'nothing'}"

    def missing(self, place: Path, expected: str, release: str, lists: bool = False) -> DataFilesError:
        """That something is not there, the layout that was expected, and where the release is had.

        A split whose list is missing is left out where all splits are prepared; one that lacks anything else is not.
        """
        told = f"there is nothing at {place}; expected {expected}. {release}; nothing is downloaded"
        return MissingSplitError(told) if lists else DataFilesError(told)
