"""Clips of the simulated data sets: made, through the DataLoader, and read back from a cache."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from slotbench.bench.subjects import Subject
from slotbench.bench.timing import Contest, Way
from slotbench.data.balls.blinking_balls import BlinkingBalls
from slotbench.data.balls.bouncing_balls import BouncingBalls
from slotbench.data.base import SlotDataModule
from slotbench.data.clip_cache import ClipCache
from slotbench.data.mnist.moving_mnist import MovingMNIST
from slotbench.data.movi_like.movi_like import MOViLike
from slotbench.data.movi_like.scenes import simulate
from slotbench.data.sprites.moving_sprites import MovingSprites

__all__ = ["SUBJECTS"]

BATCH = 16
BLINKING = [(3, 6, 32, 1), (4, 6, 32, 4), (4, 6, 64, 4), (4, 11, 32, 4), (4, 11, 64, 4), (4, 11, 64, 16)]
Make = Callable[..., SlotDataModule]


def _simulators(quick: bool) -> Iterator[Contest]:
    """One contest per data set and size."""
    sets: dict[str, Make] = {}
    for side in (32, 64):
        sets[f"BouncingBalls T=20 {side}x{side} n=4"] = partial(BouncingBalls, resolution=side)
    for side in (32, 64):
        sets[f"MovingSprites T=20 {side}x{side} n=3"] = partial(MovingSprites, resolution=side)
    for balls, frames, side, patches in BLINKING:
        sets[f"BlinkingBalls T={frames} {side}x{side} n={balls} P={patches}"] = partial(
            BlinkingBalls, num_frames=frames, resolution=side, patches_per_side=patches, num_balls=balls
        )
    for frames in (20, 100, 300, 1200):
        sets[f"MovingMNIST T={frames} 64x64 n=2"] = partial(MovingMNIST, num_frames=frames)
    for name, make in list(sets.items())[: 2 if quick else None]:
        yield Contest(name, partial(_clip_ways, make), "made", amount=float(BATCH), unit="clips")


def _clip_ways(make: Make) -> dict[str, Way]:
    dataset: Any = make().dataset("train")
    loader, turns = iter(make().train_dataloader()), count()

    def batch() -> Any:
        start = BATCH * next(turns)
        return dataset.__getitems__(list(range(start, start + BATCH)))

    return {"made": batch, "through the loader": partial(next, loader)}


KEPT, QUICK_KEPT = 48, 4
LAPTOP: dict[str, Any] = {"resolution": 32, "num_objects": (3, 6), "video_frames": 12}
LAPTOP |= {"object_sizes": (0.9, 1.3), "spread": 2.7, "zoom": 1.05}


def _movi_like(quick: bool) -> Iterator[Contest]:
    """One contest per size and level."""
    sizes: dict[str, dict[str, Any]] = {f"a, {side}x{side}, 24 frames": {"resolution": side} for side in (32, 64, 128)}
    levels: dict[str, dict[str, Any]] = {f"{level}, 64x64, 24 frames": {"level": level} for level in ("tex", "cam")}
    settings = {"laptop: a, 32x32, 12 frames": LAPTOP, **sizes, **levels}
    for name, arguments in list(settings.items())[: 1 if quick else None]:
        yield Contest(name, partial(_video_ways, arguments, QUICK_KEPT if quick else KEPT), "made", unit="videos")


def _video_ways(arguments: dict[str, Any], kept: int) -> dict[str, Way]:
    """Physics and drawing, the physics alone, and what a cache reads back."""
    data = MOViLike(**arguments, train_videos=1_000_000, val_videos=kept, test_videos=1)
    source: Any = data.simulated("train")
    folder = tempfile.TemporaryDirectory()
    data._write("val", Path(folder.name) / "val", lambda *_: None)
    cache, turns, rng = ClipCache(Path(folder.name) / "val"), count(), np.random.default_rng(0)
    frames = source.num_frames

    def read(_folder: Any) -> None:
        cache.read([int(rng.integers(0, kept))], [0], frames)

    return {
        "made": lambda: source.read([next(turns)], [0], frames),
        "physics alone": lambda: simulate(source.scene(next(turns)), frames),
        # the way keeps the folder alive
        "read back": partial(read, folder),
    }


SUBJECTS = {
    "simulators": Subject(f"simulators, {BATCH} clips a turn", "data set", _simulators, rounds=15),
    "movi_like": Subject("MOViLike, one video a turn", "videos", _movi_like, rounds=15),
}
