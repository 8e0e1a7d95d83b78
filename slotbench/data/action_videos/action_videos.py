"""Videos of an agent with its actions: readers of the sets of TECO and of Memory Maze, or of a cache."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from slotbench.data.action_videos.recordings import Recordings, find_recordings
from slotbench.data.base import LoaderOptions, Split, check_counts
from slotbench.data.clip_cache import ClipCache, is_cache
from slotbench.data.clips import ClipSource
from slotbench.data.preparing import PreparableVideos
from slotbench.errors import DataFilesError, MissingSplitError
from slotbench.interfaces import DataSpec, VideoSpec

__all__ = ["ActionVideos", "MemoryMaze"]

_OTHER_NAMES = {"val": "validation", "test": "eval"}


class ActionVideos(PreparableVideos):
    """Videos of an agent with an action for each step: DMLab, Minecraft and Habitat, in the files of TECO's authors.

    A recording is an npz file with `video`, uint8 of shape (time, height, width, 3), and `actions`, ids of shape
    (time); or a movie (PyAV, `slotbench[video]`) with an npz file of the same name that has the `actions`. Recordings
    lie in the folders `train`, `val` and `test`, or in folders in these. Where there is no `val`, the last `val_videos`
    of `train` are validated on, and not trained on.

    `VideoBatch.actions` are one-hot vectors: the one of frame t is taken in it and leads to frame t + 1; zeros, in the
    last frame of a video, where a file has none. `objects` has "video", the number of the recording, and "first_frame".

    Source: Yan et al., "Temporally Consistent Transformers for Video Generation", ICML 2023; Smith et al.,
    "Convolutional State Space Models for Long-Range Spatiotemporal Modeling", NeurIPS 2023, appendix E.

    Args:
        path: the folder of the splits, or a cache.
        video_frames: frames that are read of each video; one that has fewer is refused when it is read.
        num_actions: actions to choose from; the tables of the papers have 6 for each set.
        action_offset: the entry of a file's actions that is taken in frame 0: 1 where entry t led to frame t, as TECO
            reads all of its sets; 0 where entry t is taken in frame t. With n frames a file has n or n - 1 entries from
            there on.
        val_videos: videos of `train` that are validated on, where there is no folder `val`.
    """

    stored: ClassVar = {"train": "train", "val": "val", "test": "test"}
    timed: ClassVar[Collection[str]] = ()
    piece: ClassVar[int] = 4
    prepare_arguments: ClassVar[tuple[str, ...]] = (
        "path", "resolution", "video_frames", "num_actions", "action_offset"
    )  # fmt: skip
    frames_name: ClassVar[str] = "video"
    """The array of the frames in an npz file."""
    actions_name: ClassVar[str] = "actions"
    """The array of the actions."""

    def __init__(
        self,
        path: str,
        num_frames: int = 300,
        eval_frames: int | None = None,
        resolution: int = 64,
        video_frames: int = 300,
        num_actions: int = 6,
        action_offset: Literal[0, 1] = 1,
        val_videos: int = 64,
        loader: LoaderOptions = LoaderOptions(batch_size=4, val_batch_size=4),
    ) -> None:
        super().__init__(loader, num_frames, eval_frames)
        check_counts(resolution=resolution, video_frames=video_frames, num_actions=num_actions, val_videos=val_videos)
        self.path = Path(path).expanduser()
        self.resolution = resolution
        self.video_frames = video_frames
        self.num_actions = num_actions
        self.action_offset = action_offset
        self.val_videos = val_videos
        self._files: dict[str, list[Path]] = {}

    @property
    def spec(self) -> DataSpec:
        """Frames of `resolution` x `resolution` pixels, which are their own target, actions, and codes of a cache."""
        frame = VideoSpec(self.channels, self.resolution, self.resolution, self.num_actions)
        return self.with_codes(DataSpec(frame, frame))

    def stored_videos(self, split: Split) -> tuple[ClipSource, np.ndarray | None]:
        """The videos of a split, and those of them that take part if not all do."""
        if split == "test" or self.has("val") or is_cache(self.path / "val"):
            return self.source(split), None
        source = self.source("train")
        total = len(source.lengths)
        if total <= self.val_videos:
            raise DataFilesError(
                f"{self.path} has no folder val, and train has {total} videos, of which the last {self.val_videos} are "
                "validated on: set data.val_videos to fewer, or give a folder val"
            )
        videos, first = np.arange(total), total - self.val_videos
        return source, videos[:first] if split == "train" else videos[first:]

    def has(self, stored: str) -> bool:
        """Whether there is a folder of this split."""
        return self._folder(stored) is not None

    def released(self, stored: str, keep: bool = True) -> Recordings:
        """The recordings of a split."""
        folder = self._folder(stored)
        if folder is None:
            what = f"has no folder {stored}" if self.path.is_dir() else "does not exist"
            raise MissingSplitError(
                f"no {stored} split: the folder {self.path} {what}; expected {{train,test}}/*/NAME.npz with "
                f"`{self.frames_name}` and `{self.actions_name}`, or NAME.mp4 with NAME.npz beside it"
            )
        if stored not in self._files:
            self._files[stored] = find_recordings(folder)
        look = (self.video_frames, self.resolution, self.num_actions, self.action_offset)
        return Recordings(self._files[stored], *look, self.frames_name, self.actions_name, self.timed, keep)

    def describe(self, stored: str, source: Recordings | None = None) -> dict[str, Any]:
        """The set, the split, and the arguments that frames and actions depend on."""
        names = ("resolution", "video_frames", "num_actions", "action_offset")
        return {"set": type(self).__name__, "split": stored, **{name: getattr(self, name) for name in names}}

    def opened(self, stored: str) -> ClipCache:
        """The cache of a split, of frames and actions in this form."""
        cache = ClipCache(self.path / stored)
        cache.check(**self.describe(stored))
        return cache

    def _folder(self, stored: str) -> Path | None:
        names = [stored, _OTHER_NAMES.get(stored, stored)]
        return next((self.path / name for name in names if (self.path / name).is_dir()), None)


class MemoryMaze(ActionVideos):
    """Memory Maze: trajectories of 1,001 frames of 64 x 64 pixels of an agent in a maze of 9 x 9 or 15 x 15 cells.

    The released sets have an npz file for each trajectory, with `image` in the place of `video` and `action`, one-hot,
    in the place of `actions`; they are read as `ActionVideos` reads its own. Six actions: none, forward, left, right,
    forward and left, forward and right.

    `objects` has what the files know of the state, in single precision and in the units of the maze: "agent_pos" and
    "agent_dir" (batch time 2; a unit vector), "targets_pos" and "targets_vec" (batch time objects 2; where the objects
    are in the maze, and as the agent sees them), "target_pos", "target_vec" (batch time 2) and "target_color" (batch
    time 3) of the object that is looked for, and "maze_layout" (batch time rows columns; 0 and 1); and "video" and
    "first_frame".

    Source: Pasukonis, Lillicrap and Hafner, "Evaluating Long-Term Memory in 3D Mazes", ICLR 2023.

    Args:
        path: the folder of the splits, or a cache.
        video_frames: frames that are read of each trajectory.
        options: see `ActionVideos`; in the released files entry t is the action that led to frame t.
    """

    timed: ClassVar[Collection[str]] = (
        "agent_pos", "agent_dir", "targets_pos", "targets_vec", "target_pos", "target_vec", "target_color",
        "maze_layout",
    )  # fmt: skip
    frames_name: ClassVar[str] = "image"
    actions_name: ClassVar[str] = "action"

    def __init__(self, path: str, video_frames: int = 1001, **options: Any) -> None:
        super().__init__(path, video_frames=video_frames, **options)
