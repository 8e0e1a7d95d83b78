"""Clips of stored videos: cut out of them, in training at random; or whole videos, piece by piece."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import torch

from slotbench.data.augmentation import Augmentation
from slotbench.data.base import (
    ClipDataset,
    LoaderOptions,
    SlotDataModule,
    Split,
    check_counts,
    generator_for,
    join_clips,
)
from slotbench.data.formats.images import sides
from slotbench.errors import DataFilesError
from slotbench.interfaces import DataSpec, Piece, VideoBatch, View, WholeVideos

__all__ = ["ClipReader", "ClipSource", "CutClips", "StoredVideos", "VideoPieces"]
__all__ += ["order_of_pass"]

_ORDER, _CROP = 3, 4  # tell the generators of orders and crops from those of samples, whose second number is a split's
_SUBSET_SEED = 0


class ClipSource(ABC):
    """Videos that can be read by index, any frames of them.

    Attributes:
        lengths: frames of each video.
        stride: frames of the file from one frame to the next.
        beneath: the source that this one shows in another form, which names its videos; None where there is none.
    """

    lengths: np.ndarray
    stride: int = 1
    beneath: ClipSource | None = None

    @abstractmethod
    def read(self, videos: Sequence[int], starts: Sequence[int], num_frames: int) -> VideoBatch:
        """Clips of `num_frames` frames, the i-th from frame `starts[i]` of video `videos[i]` on.

        `time` counts from 0 in each clip; `objects` has "video" and "first_frame", which say where a clip is from.
        """

    def name(self, video: int, start: int) -> str | None:
        """Name of the clip of `video` from frame `start` on, for files about it; None where videos have no names."""
        name = self.video_name(video)
        return None if name is None else f"{name}_frame{start * self.stride:05d}"

    def video_name(self, video: int) -> str | None:
        """Name of a whole video, for files about it; None by default."""
        return None if self.beneath is None else self.beneath.video_name(video)

    def origin(self, video: int) -> str:
        """Where a video is from, for messages: its file, or its number in the file that holds it."""
        if self.beneath is not None:
            return self.beneath.origin(video)
        place = getattr(self, "path", None) or getattr(self, "folder", None) or type(self).__name__
        return f"{place}, video {video}"

    def view(self, video: int) -> View | None:
        """The part of a video's frames that is read; None, by default, if that is not known."""
        return None if self.beneath is None else self.beneath.view(video)


class ClipReader(ClipSource):
    """Videos that are read one clip at a time: a subclass sets `lengths` and writes `clip`."""

    @abstractmethod
    def clip(self, video: int, frames: range) -> Mapping[str, np.ndarray]:
        """The arrays of one clip by name, as `join_clips` takes them.

        Args:
            video: number of the video.
            frames: numbers of the frames in its file, `stride` apart.
        """

    def read(self, videos: Sequence[int], starts: Sequence[int], num_frames: int) -> VideoBatch:
        """Clips, each read by `clip`."""
        step = self.stride
        windows = [range(step * start, step * (start + num_frames), step) for start in starts]
        batch = join_clips(self.clips(videos, windows))
        batch.objects |= {"video": torch.tensor(videos), "first_frame": torch.tensor(starts) * step}
        return batch

    def clips(self, videos: Sequence[int], windows: Sequence[range]) -> list[Mapping[str, np.ndarray]]:
        """The arrays of several clips, one after the other."""
        return [self.clip(video, frames) for video, frames in zip(videos, windows, strict=True)]


@lru_cache(maxsize=4)
def order_of_pass(seed: int, number: int, count: int) -> np.ndarray:
    """The order in which pass `number` over the training split reads its `count` videos."""
    return np.random.default_rng(np.random.SeedSequence([seed, _ORDER, number])).permutation(count)


class _OfSource(ClipDataset):
    """Base class of clips that are cut out of a source."""

    source: ClipSource

    def video_name(self, video: int) -> str | None:
        """That of the source."""
        return self.source.video_name(video)

    def view(self, video: int) -> View | None:
        """That of the source."""
        return self.source.view(video)


class CutClips(_OfSource):
    """The clips of a split, cut out of whole videos.

    In training, pass after pass goes over all videos, each in an order of its own, and a clip of `num_frames` frames is
    cut out of each at random: sample i is video i % n of the order of pass i // n. Both are pure functions of the seed
    and i, so that a resumed run reads what it had not seen yet. In evaluation the videos come in order
    and whole, or, with `num_frames`, cut into consecutive clips that do not overlap, what is left at the end being
    passed over. Of more clips than `size`, a random subset is taken, the same for every seed.

    Args:
        source: the videos.
        split: "train" draws, the others go through.
        size: samples at most (training goes round until it has as many).
        num_frames: frames of a clip; None, in evaluation only, for whole videos, which must be of one length unless
            they are read `one_by_one`.
        seed: of orders and cuts.
        chosen: the videos that take part; all if None.
        augment: how training clips are changed at random.
        one_by_one: a batch has one clip, so that whole videos may be of any lengths.

    Attributes:
        available: clips of which at most `size` are taken; of the training split its videos.
    """

    def __init__(
        self,
        source: ClipSource,
        split: Split,
        size: int,
        num_frames: int | None,
        seed: int = 0,
        chosen: np.ndarray | None = None,
        augment: Augmentation = Augmentation(),
        one_by_one: bool = False,
    ) -> None:
        self.source = source
        self.augment = augment if split == "train" else Augmentation()
        self.frame_stride = source.stride
        self.split = split
        self.seed = seed
        videos = np.arange(len(source.lengths)) if chosen is None else chosen
        if not len(videos):
            raise DataFilesError(
                f"none of the {len(source.lengths)} videos of the {split} split is left: let more objects pass"
            )
        lengths = source.lengths[videos]
        if num_frames is None:
            if lengths.min() != lengths.max() and not one_by_one:
                raise DataFilesError(
                    f"the videos have {lengths.min()} to {lengths.max()} frames, and whole videos of different lengths "
                    "do not fit into one batch: set eval_frames to the frames of a clip, or loader.val_batch_size to 1"
                )
        elif num_frames > lengths.max():
            raise DataFilesError(
                f"clips of {num_frames} frames are asked for, and the longest video of the {split} split has "
                f"{lengths.max()}: set num_frames or eval_frames to that or less"
            )
        self.num_frames = num_frames
        frames = lengths if num_frames is None else np.full_like(lengths, num_frames)
        long_enough = lengths >= frames
        self.videos, self.room = videos[long_enough], (lengths - frames)[long_enough] + 1
        self.available = len(self.videos)
        if split == "train":
            super().__init__(size)
            return
        counts, each = (lengths // frames)[long_enough], frames[long_enough]
        which = np.repeat(np.arange(len(counts)), counts)
        starts = np.concatenate([np.arange(count) * own for count, own in zip(counts, each, strict=True)])
        self.available = len(which)
        if size < len(which):
            kept = np.sort(np.random.default_rng(_SUBSET_SEED).permutation(len(which))[:size])
            which, starts = which[kept], starts[kept]
        self.places = np.stack([self.videos[which], starts], axis=1)
        super().__init__(len(self.places))

    def clips(self, indices: Sequence[int]) -> VideoBatch:
        """The clips of these indices."""
        places = [self.place(index) for index in indices]
        videos = [video for video, _ in places]
        frames = self.num_frames or int(self.source.lengths[videos[0]])
        batch = self.source.read(videos, [start for _, start in places], frames)
        if self.augment == Augmentation():
            return batch
        parts = []
        for number, index in enumerate(indices):
            rng = np.random.default_rng(np.random.SeedSequence([self.seed, _CROP, index]))
            clip = batch.map(lambda values, number=number: values[number : number + 1])  # type: ignore[misc]
            parts.append(self.augment(clip, rng))
        return VideoBatch.join(parts)

    def clip_name(self, index: int) -> str | None:
        """Name of the clip in its source."""
        return self.source.name(*self.place(index))

    def video_origin(self, video: int) -> str:
        """That of the source."""
        return self.source.origin(video)

    def one_per_video(self) -> ClipDataset:
        """Of every video the first clip."""
        if self.split == "train":
            return self
        first = copy.copy(self)
        _, kept = np.unique(self.places[:, 0], return_index=True)
        first.places = self.places[np.sort(kept)]
        first.size = len(first.places)
        return first

    def place(self, index: int) -> tuple[int, int]:
        """The video that sample `index` shows, and its first frame there."""
        if self.split != "train":
            video, start = self.places[index].tolist()
            return video, start
        number, turn = divmod(index, len(self.videos))
        which = int(order_of_pass(self.seed, number, len(self.videos))[turn])
        start = int(generator_for(self.seed, self.split, index).integers(self.room[which]))
        return int(self.videos[which]), start


class VideoPieces(_OfSource, WholeVideos):
    """The pieces of whole videos in order, one video after the other; process r of w reads every w-th video.

    A piece's `time` counts on from the pieces before it, so that a model knows which piece begins a video. Its `index`
    is the number of the video.
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
        """One piece: pieces differ in length, and those of a video are to be read in order."""
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
        """Name of the files about a video, without their ending."""
        name = self.source.video_name(piece.video)
        return f"video{piece.number:04d}" if name is None else f"video{piece.number:04d}_{name}"

    def origin(self, piece: Piece) -> str:
        """Where the video is from, for messages."""
        return self.source.origin(piece.video)

    def frame_numbers(self, piece: Piece) -> np.ndarray:
        """The numbers of all frames of the piece's video in its file."""
        return self.source.stride * np.arange(piece.length)


class StoredVideos(SlotDataModule):
    """A data set of stored videos: clips cut out of them, and whole videos for `predict`.

    A subclass gives the videos of each split in `stored_videos`, and their size in `channels` and `resolution`, or in
    a `spec` of its own.

    Args:
        loader: batches, workers, sizes, and the seed of the videos' order and of the cuts. Training goes through the
            videos again and again until there are `train_size` clips; `val_size` and `test_size` are upper bounds.
        num_frames: frames of a training clip.
        eval_frames: frames of a validation or test clip; None for whole videos.
        stride: reads every `stride`-th frame.

    Attributes:
        crop: the least share of the image that a random crop of a training clip keeps; 1 for whole images.
        augment: how training clips are changed at random, for sets that take it as an argument; else `crop` says it.
    """

    default_sizes: ClassVar[Mapping[Split, int]] = {"train": 1_000_000, "val": 100_000, "test": 100_000}
    channels: int = 3
    resolution: Any
    """Pixels per side, or height and width where a data set takes both."""
    crop: float = 1.0
    augment: Augmentation | None = None

    def __init__(
        self,
        loader: LoaderOptions = LoaderOptions(),
        num_frames: int = 1,
        eval_frames: int | None = None,
        stride: int = 1,
    ) -> None:
        super().__init__(loader)
        check_counts(num_frames=num_frames, eval_frames=eval_frames, stride=stride)
        self.num_frames = num_frames
        self.eval_frames = eval_frames
        self.stride = stride

    @property
    def spec(self) -> DataSpec:
        """Frames of `resolution` pixels, which are their own target."""
        return DataSpec.of_frames(self.channels, *sides(self.resolution))

    @abstractmethod
    def stored_videos(self, split: Split) -> tuple[ClipSource, np.ndarray | None]:
        """The videos of a split, and those of them that take part; None for all."""

    def max_eval_frames(self, split: Split) -> int | None:
        """The frames of the shortest video."""
        source, chosen = self.stored_videos(split)
        lengths = np.asarray(source.lengths)
        return int((lengths if chosen is None else lengths[chosen]).min())

    def dataset(self, split: Split) -> CutClips:
        """Clips of `num_frames` frames for training, of `eval_frames` frames otherwise."""
        source, chosen = self.stored_videos(split)
        num_frames = self.num_frames if split == "train" else self.eval_frames
        seed, alone = self.loader.seed, self.loader.val_batch_size == 1
        augment = self.augment or Augmentation(self.crop)
        return CutClips(source, split, self.sizes[split], num_frames, seed, chosen, augment, alone)

    def video_pieces(self, split: Split, frames: int, rank: int = 0, processes: int = 1) -> VideoPieces:
        """The whole videos of a split, piece by piece."""
        source, chosen = self.stored_videos(split)
        return VideoPieces(source, frames, chosen, self.sizes[split], rank, processes)
