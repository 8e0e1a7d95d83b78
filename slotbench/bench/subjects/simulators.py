"""Clips of the simulated data sets: made, and through the DataLoader with collation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

from slotbench.bench.contest import Contest, Way
from slotbench.bench.subjects import Subject
from slotbench.data.balls.blinking_balls import BlinkingBalls
from slotbench.data.balls.bouncing_balls import BouncingBalls
from slotbench.data.base import SlotDataModule
from slotbench.data.mnist.moving_mnist import MovingMNIST
from slotbench.data.sprites.moving_sprites import MovingSprites

__all__ = ["SUBJECT"]

BATCH = 16
BLINKING = [(3, 6, 32, 1), (4, 6, 32, 4), (4, 6, 64, 4), (4, 11, 32, 4), (4, 11, 64, 4), (4, 11, 64, 16)]
Make = Callable[..., SlotDataModule]


def contests(quick: bool) -> Iterator[Contest]:
    """One contest per data set and size."""
    sets = _sets()
    for name, make in list(sets.items())[:2] if quick else sets.items():
        yield Contest(name, partial(_ways, make), "made", amount=float(BATCH), unit="clips")


def _sets() -> dict[str, Make]:
    sets: dict[str, Make] = {
        f"BouncingBalls T=20 {side}x{side} n=4": partial(BouncingBalls, resolution=side) for side in (32, 64)
    }
    for side in (32, 64):
        sets[f"MovingSprites T=20 {side}x{side} n=3"] = partial(MovingSprites, resolution=side)
    for balls, frames, side, patches in BLINKING:
        sets[f"BlinkingBalls T={frames} {side}x{side} n={balls} P={patches}"] = partial(
            BlinkingBalls, num_frames=frames, resolution=side, patches_per_side=patches, num_balls=balls
        )
    for frames in (20, 100, 300, 1200):
        sets[f"MovingMNIST T={frames} 64x64 n=2"] = partial(MovingMNIST, num_frames=frames)
    return sets


def _ways(make: Make) -> dict[str, Way]:
    loader = iter(make().train_dataloader())
    return {"made": _batches(make()), "through the loader": lambda: next(loader)}


def _batches(data: SlotDataModule) -> Way:
    dataset: Any = data.dataset("train")
    turns = count()

    def batch() -> Any:
        start = BATCH * next(turns)
        return dataset.__getitems__(list(range(start, start + BATCH)))

    return batch


SUBJECT = Subject(f"simulators, {BATCH} clips a turn", "data set", contests, rounds=15)
