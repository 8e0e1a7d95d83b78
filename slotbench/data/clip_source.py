"""Videos on disk as clips: which video a sample shows, and which of its frames."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from slotbench.data.base import ClipDataset, Split, generator_for
from slotbench.data.files import DataFilesError
from slotbench.interfaces import VideoBatch

__all__ = ["ClipSource", "CutClips"]

_ORDER = 3  # tells the generators of orders from those of samples, whose second number is a split's
_SUBSET_SEED = 0


class ClipSource(ABC):
    """Videos that can be read by index, any frames of them.

    Attributes:
        lengths: frames of each video.
        stride: frames of the file from one frame to the next.
    """

    lengths: np.ndarray
    stride: int = 1

    @abstractmethod
    def read(self, videos: Sequence[int], starts: Sequence[int], num_frames: int) -> VideoBatch:
        """Clips of `num_frames` frames, the i-th from frame `starts[i]` of video `videos[i]` on.

        `time` counts from 0 in each clip; `objects` has "video" and "first_frame", which say where a clip is from.
        """

    def name(self, video: int, start: int) -> str | None:
        """What a person calls the clip of `video` from frame `start` on; None by default."""
        return None

    def video_name(self, video: int) -> str | None:
        """What a person calls a whole video; None by default."""
        return None

    def origin(self, video: int) -> str:
        """Where a video is from: its file, or its number in what holds it."""
        place = getattr(self, "path", None) or getattr(self, "folder", None) or type(self).__name__
        return f"{place}, video {video}"


class CutClips(ClipDataset):
    """The clips of a split, cut out of whole videos.

    In training, pass after pass goes over all videos, each in an order of its own, and a clip of `num_frames` frames is
    cut out of each at random: sample i is video i % n of the order of pass i // n. Both are pure functions of the seed
    and i, so that a run which was stopped goes on with what it had not seen yet. In evaluation the videos come in order
    and whole, or, with `num_frames`, cut into consecutive clips that do not overlap, what is left at the end being
    passed over. Of more clips than `size`, a random subset is taken, the same for every seed.

    Args:
        source: the videos.
        split: "train" draws, the others go through.
        size: samples at most (training goes round until it has as many).
        num_frames: frames of a clip; None, in evaluation only, for whole videos, which must be of one length.
        seed: of orders and cuts.
        chosen: the videos that take part; all if None.

    Raises:
        DataFilesError: no video takes part, or none is long enough, or whole videos differ in length.
    """

    def __init__(
        self,
        source: ClipSource,
        split: Split,
        size: int,
        num_frames: int | None,
        seed: int = 0,
        chosen: np.ndarray | None = None,
    ) -> None:
        self.source = source
        self.split = split
        self.seed = seed
        videos = np.arange(len(source.lengths)) if chosen is None else chosen
        if not len(videos):
            raise DataFilesError(
                f"none of the {len(source.lengths)} videos of the {split} split is left: let more objects pass"
            )
        lengths = source.lengths[videos]
        if num_frames is None:
            if lengths.min() != lengths.max():
                raise DataFilesError(
                    f"the videos have {lengths.min()} to {lengths.max()} frames, and whole videos of different lengths "
                    "do not fit into one batch: set eval_frames to the frames of a clip"
                )
            num_frames = int(lengths[0])
        if num_frames > lengths.max():
            raise DataFilesError(
                f"clips of {num_frames} frames are asked for, and the longest video of the {split} split has "
                f"{lengths.max()}: set num_frames or eval_frames to that or less"
            )
        self.num_frames = num_frames
        long_enough = lengths >= num_frames
        self.videos, self.room = videos[long_enough], lengths[long_enough] - num_frames + 1
        self._order: tuple[int, np.ndarray] | None = None
        if split == "train":
            super().__init__(size)
            return
        counts = lengths[long_enough] // num_frames
        which = np.repeat(np.arange(len(counts)), counts)
        starts = np.concatenate([np.arange(count) * num_frames for count in counts])
        if size < len(which):
            kept = np.sort(np.random.default_rng(_SUBSET_SEED).permutation(len(which))[:size])
            which, starts = which[kept], starts[kept]
        self.places = np.stack([self.videos[which], starts], axis=1)
        super().__init__(len(self.places))

    def clips(self, indices: Sequence[int]) -> VideoBatch:
        """The clips of these indices."""
        places = [self.place(index) for index in indices]
        return self.source.read([video for video, _ in places], [start for _, start in places], self.num_frames)

    def clip_name(self, index: int) -> str | None:
        """What the source calls the clip."""
        return self.source.name(*self.place(index))

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
        if self._order is None or self._order[0] != number:
            generator = np.random.default_rng(np.random.SeedSequence([self.seed, _ORDER, number]))
            self._order = (number, generator.permutation(len(self.videos)))
        which = int(self._order[1][turn])
        start = int(generator_for(self.seed, self.split, index).integers(self.room[which]))
        return int(self.videos[which]), start
