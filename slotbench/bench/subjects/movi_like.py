"""Videos of MOViLike: made (physics and drawing), the physics alone, and read back from the cache."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from slotbench.bench.contest import Contest, Way
from slotbench.bench.subjects import Subject
from slotbench.data.clip_cache import ClipCache
from slotbench.data.movi_like.movi_like import MOViLike
from slotbench.data.movi_like.scenes import simulate

__all__ = ["SUBJECT"]

KEPT, QUICK_KEPT = 48, 4
LAPTOP: dict[str, Any] = {"resolution": 32, "num_objects": (3, 6), "video_frames": 12}
LAPTOP |= {"object_sizes": (0.9, 1.3), "spread": 2.7, "zoom": 1.05}


def contests(quick: bool) -> Iterator[Contest]:
    """One contest per size and level."""
    sizes: dict[str, dict[str, Any]] = {f"a, {side}x{side}, 24 frames": {"resolution": side} for side in (32, 64, 128)}
    levels: dict[str, dict[str, Any]] = {f"{level}, 64x64, 24 frames": {"level": level} for level in ("tex", "cam")}
    settings = {"laptop: a, 32x32, 12 frames": LAPTOP, **sizes, **levels}
    for name, arguments in list(settings.items())[:1] if quick else settings.items():
        yield Contest(name, partial(_ways, arguments, QUICK_KEPT if quick else KEPT), "made", unit="videos")


def _ways(arguments: dict[str, Any], kept: int) -> dict[str, Way]:
    data = MOViLike(**arguments, train_videos=1_000_000, val_videos=kept, test_videos=1)
    source: Any = data.simulated("train")
    folder = tempfile.TemporaryDirectory()
    data._write("val", Path(folder.name) / "val", lambda *_: None)
    cache, frames, turns, rng = (
        ClipCache(Path(folder.name) / "val"),
        source.num_frames,
        count(),
        np.random.default_rng(0),
    )

    def read() -> None:
        cache.read([int(rng.integers(0, kept))], [0], frames)

    return {
        "made": lambda: source.read([next(turns)], [0], frames),
        "physics alone": lambda: simulate(source.scene(next(turns)), frames),
        # the folder lives as long as who reads from it
        "read back": lambda folder=folder: read(),  # type: ignore[misc]
    }


SUBJECT = Subject("MOViLike, one video a turn", "videos", contests, rounds=15)
