"""Memory Maze: an agent in a maze with coloured objects. A reader of the released trajectories, or of a cache."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from slotbench.data.action_videos.action_videos import ActionVideos
from slotbench.data.base import LoaderOptions

__all__ = ["MemoryMaze"]


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
        num_frames: frames of a training clip.
        eval_frames: frames of a validation or test clip, cut one after the other; null for whole videos.
        resolution: pixels per side.
        video_frames: frames that are read of each trajectory.
        num_actions: actions to choose from.
        action_offset: see `ActionVideos`; in the released files entry t is the action that led to frame t.
        val_videos: trajectories of `train` that are validated on, where there is no folder `val`.
        loader: see `ActionVideos`.
    """

    timed: ClassVar[Collection[str]] = (
        "agent_pos", "agent_dir", "targets_pos", "targets_vec", "target_pos", "target_vec", "target_color",
        "maze_layout",
    )  # fmt: skip
    frames_name: ClassVar[str] = "image"
    actions_name: ClassVar[str] = "action"

    def __init__(
        self,
        path: str,
        num_frames: int = 300,
        eval_frames: int | None = None,
        resolution: int = 64,
        video_frames: int = 1001,
        num_actions: int = 6,
        action_offset: int = 1,
        val_videos: int = 64,
        loader: LoaderOptions = LoaderOptions(batch_size=4, val_batch_size=4),
    ) -> None:
        super().__init__(
            path, num_frames, eval_frames, resolution, video_frames, num_actions, action_offset, val_videos, loader
        )
