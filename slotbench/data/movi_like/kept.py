"""Videos that a simulator makes once and the user's cache folder keeps."""

from __future__ import annotations

import hashlib
import json
import sys
from abc import abstractmethod
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from slotbench.data.base import Split, check_counts
from slotbench.data.clip_cache import ClipCache, is_cache
from slotbench.data.clips import ClipSource, StoredVideos
from slotbench.data.movi_like.physics import mujoco_version
from slotbench.data.movi_like.videos import WholeSimulations
from slotbench.data.preparing import Preparable, Report, cache_videos, kept_folder, processes_for
from slotbench.errors import DataFilesError

__all__ = ["KeptVideos"]

_STORED: dict[Split, str] = {"train": "train", "val": "validation", "test": "test"}
_PIECE = 100  # videos that are made and written to a cache at a time


class KeptVideos(StoredVideos, Preparable):
    """Simulated videos: each is made and kept when it is read first, or all are of a cache that `path` names.

    A subclass calls `set_videos` when it is made, makes videos in `simulated`, and names in `_look` the arguments that
    they depend on.

    Attributes:
        path: the folder of a cache that `slotbench prepare` wrote; None for one in the user's cache folder.
        resolution: pixels per side.
        video_frames: frames of a video.
        samples_per_side: rays per pixel are its square.
        depth: whether the distance from the camera is kept.
        scene_seed: of the videos.
        videos: how many there are in each split.
    """

    set_name: ClassVar[str]
    """Name of the set in its caches."""
    timed: ClassVar[Collection[str]]
    """The entries of `objects` that have an axis of frames."""
    video_format: ClassVar[int] = 1
    """To be raised by every change that changes a byte of a video."""
    later: ClassVar[Mapping[str, Any]] = {}
    """Arguments that came later, with the values at which `version` is what it was without them."""
    path: Path | None
    video_frames: int
    samples_per_side: int
    depth: bool
    scene_seed: int
    videos: dict[Split, int]

    def set_videos(
        self,
        path: str | None,
        resolution: int,
        video_frames: int,
        samples_per_side: int,
        depth: bool,
        scene_seed: int,
        videos: tuple[int, int, int],
    ) -> None:
        """Sets the attributes; `videos` are those of training, validation and test."""
        train, val, test = videos
        check_counts(resolution=resolution, samples_per_side=samples_per_side, video_frames=video_frames)
        check_counts(train_videos=train, val_videos=val, test_videos=test)
        for name, frames in {"num_frames": self.num_frames, "eval_frames": self.eval_frames}.items():
            if frames is not None and frames > video_frames:
                raise ValueError(f"{name} is {frames}; expected at most video_frames, which is {video_frames}")
        if scene_seed < 0:
            raise ValueError(f"scene_seed is {scene_seed}; expected 0 or more")
        self.path = None if path is None else Path(path).expanduser()
        self.resolution, self.video_frames, self.samples_per_side = resolution, video_frames, samples_per_side
        self.depth, self.scene_seed = depth, scene_seed
        self.videos = {"train": train, "val": val, "test": test}

    @property
    def version(self) -> str:
        """Hash of the arguments that a video depends on, and of the format that they are simulated in."""
        look = {name: value for name, value in self._look().items() if self.later.get(name) != value}
        return hashlib.sha256(json.dumps({"format": self.video_format, **look}).encode()).hexdigest()[:16]

    @abstractmethod
    def simulations(self, **look: Any) -> WholeSimulations:
        """The videos of a split, of these fields of `WholeSimulations`."""

    def simulated(self, split: Split, threads: int | None = 1, folder: Path | None = None) -> WholeSimulations:
        """The videos of a split, made when they are read, and kept if there is a folder; what a cache is made of."""
        return self.simulations(
            split=split,
            num_videos=self.videos[split],
            num_frames=self.video_frames,
            resolution=self.resolution,
            samples_per_side=self.samples_per_side,
            seed=self.scene_seed,
            depth=self.depth,
            threads=threads,
            folder=folder,
        )

    @abstractmethod
    def _look(self) -> dict[str, Any]:
        """The arguments that a video depends on."""

    def _made_with(self) -> dict[str, Any]:
        """The format of the videos and the versions of the libraries that decide their bytes."""
        return {"format": self.video_format, "mujoco": mujoco_version(), "numpy": np.__version__}

    def max_eval_frames(self, split: Split) -> int | None:
        """No limit for simulated videos; `video_frames` for a cache that `path` names."""
        return self.video_frames if self.path is not None else None

    def overrides_for_length(self, split: Split, frames: int, clips: int) -> dict[str, Any]:
        """Videos of so many frames, and of them as many as are read."""
        videos = {} if self.path is not None else {"video_frames": frames, f"{split}_videos": clips}
        return {"eval_frames": frames, **videos}

    def stored_videos(self, split: Split) -> tuple[ClipSource, np.ndarray | None]:
        """The videos of a split, and those of them that take part."""
        return self.cache(split), np.arange(self.videos[split])

    def cache(self, split: Split) -> ClipSource:
        """The cache of a split that `path` names, or its videos, each made and kept when it is read first."""
        if self.path is not None:
            return self._given(self.path / _STORED[split], split)
        description = self._description(split)
        name = f"{description['level']}-{self.resolution}-{_STORED[split]}"
        folder = kept_folder(self.set_name, name, description)
        if is_cache(folder, complete=True):
            return ClipCache(folder)
        videos = self.simulated(split, None, folder)
        kept, total = len(list(folder.glob("*.safetensors"))), self.videos[split]
        if kept < total:
            if self._place_among_processes()[0] == 0:
                what = f"{self.set_name}: simulating {name} while it is read ({kept:,} of {total:,} videos are there)"
                print(f"{what}; they are kept in {folder}", file=sys.stderr)
            videos.read([0], [0], 1)  # compiles, which not every worker should do
        return videos

    def prepare(self, out: Path, report: Report, jobs: int | None = None) -> None:
        """Writes all splits to caches below `out`."""
        for split, stored in _STORED.items():
            count, source = processes_for(jobs, self.videos[split]), self.simulated(split, None)
            if count > 1:
                source.read([0], [0], 1)  # compiles, which only one process should do
            progress, size = partial(report, stored), max(1, _PIECE // count)
            cache_videos(out / stored, source, self._description(split), self.timed, progress, count, size)

    def _description(self, split: Split) -> dict[str, Any]:
        """All that decides the bytes of a split's cache."""
        held = {"depth": self.depth, "videos": self.videos[split]}
        return {"set": self.set_name, "split": _STORED[split], **self._look(), **held, **self._made_with()}

    def _given(self, folder: Path, split: Split) -> ClipCache:
        cache = ClipCache(folder)
        cache.check({"depth": self.depth}, set=self.set_name, **self._look())
        if len(cache.lengths) < self.videos[split]:
            raise DataFilesError(
                f"the cache {cache.folder} has {len(cache.lengths)} videos and {self.videos[split]} are asked for: set "
                f"{split}_videos to that or less"
            )
        return cache
