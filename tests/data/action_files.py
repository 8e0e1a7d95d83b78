"""Files of videos with actions: the layouts of TECO's sets, and of Memory Maze."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from media_files import write_movie

__all__ = ["maze_trajectory", "video_of", "write_mazes", "write_movies", "write_npz"]

FRAMES, SIDE = 9, 8


def video_of(seed: int, frames: int = FRAMES, side: int = SIDE) -> dict[str, np.ndarray]:
    """What DMLab's files hold: frames, and an id for each; frame t is as bright as its number, noise apart."""
    rng = np.random.default_rng(seed)
    video = 20 * np.arange(frames)[:, None, None, None] + rng.integers(0, 10, (frames, side, side, 3))
    return {"video": video.astype(np.uint8), "actions": rng.integers(0, 6, frames)}


def write_npz(folder: Path, splits: tuple[str, ...] = ("train", "val", "test"), videos: int = 3) -> Path:
    """DMLab's layout: an npz file for each video, in folders."""
    for place, split in enumerate(splits):
        for number in range(videos):
            path = folder / split / f"{number % 2}" / f"{number}.npz"
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez_compressed(path, **video_of(10 * place + number))  # type: ignore[arg-type]
    return folder


def write_movies(
    folder: Path, splits: tuple[str, ...] = ("train", "val", "test"), videos: int = 3, side: int = 32
) -> Path:
    """The layout of Minecraft and Habitat: a movie, and an npz file with as many actions, or one more."""
    for place, split in enumerate(splits):
        for number in range(videos):
            content = video_of(10 * place + number, side=side)
            path = folder / split / f"{number % 2}" / f"{number}.mp4"
            write_movie(path, content["video"], between_keys=4, bit_rate=8_000_000)
            actions = np.arange(FRAMES + number % 2) % 4
            np.savez_compressed(path.with_suffix(".npz"), actions=actions)
    return folder


def maze_trajectory(seed: int, frames: int = FRAMES, cells: int = 9) -> dict[str, np.ndarray]:
    """What a file of Memory Maze holds: every array has an entry a frame."""
    rng = np.random.default_rng(seed)
    action = np.eye(6, dtype=np.uint8)[rng.integers(0, 6, frames)]
    action[0] = 0
    log: dict[str, Any] = {
        "agent_pos": (2,), "agent_dir": (2,), "targets_pos": (3, 2), "targets_vec": (3, 2), "target_pos": (2,),
        "target_vec": (2,), "target_color": (3,),
    }  # fmt: skip
    layout = np.repeat(rng.integers(0, 2, (1, cells, cells), dtype=np.uint8), frames, axis=0)
    return {
        "image": video_of(seed, frames)["video"],
        "action": action,
        "reward": np.zeros(frames),
        "maze_layout": layout,
        **{name: rng.normal(size=(frames, *shape)) for name, shape in log.items()},
    }


def write_mazes(folder: Path, splits: tuple[str, ...] = ("train", "val", "eval"), videos: int = 3) -> Path:
    """An npz file for each trajectory."""
    for place, split in enumerate(splits):
        (folder / split).mkdir(parents=True)
        for number in range(videos):
            content = maze_trajectory(10 * place + number)
            np.savez_compressed(folder / split / f"{number}.npz", **content)  # type: ignore[arg-type]
    return folder
