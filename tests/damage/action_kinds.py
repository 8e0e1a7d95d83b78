"""Files of videos with actions: frames and actions in one npz file, actions beside a movie, and a trajectory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from action_files import FRAMES, write_mazes, write_movies, write_npz
from kinds import Kind, fingerprint

from slotbench.data.action_videos.action_videos import ActionVideos
from slotbench.data.action_videos.memory_maze import MemoryMaze


def action_file(write: Callable[..., Path], name: str) -> Callable[[Path], Path]:
    return lambda folder: write(folder / "set", ("test",), videos=1) / name


def read_with(kind: type[ActionVideos]) -> Callable[[Path], str]:
    def read(folder: Path) -> str:
        dataset = kind(str(folder / "set"), resolution=8, video_frames=FRAMES, eval_frames=4).dataset("test")
        return fingerprint([dataset.clips([0])])

    return read


KINDS: dict[str, Kind] = {
    "actions: frames and actions": Kind(action_file(write_npz, "test/0/0.npz"), read_with(ActionVideos), exact=True),
    "actions: beside a movie": Kind(action_file(write_movies, "test/0/0.npz"), read_with(ActionVideos), exact=True),
    "actions: Memory Maze": Kind(action_file(write_mazes, "test/0.npz"), read_with(MemoryMaze), exact=True),
}
