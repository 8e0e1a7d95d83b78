"""How fast MOViLike's videos are made and read: `python benchmarks/movi_like.py [--seconds 1] [--quick] [--out FILE]`.

On one thread, by the processor's time, so that a busy machine counts for less: videos per second end to end, of which
physics and drawing, and whole videos read back from the cache in batches of 16. The parts take turns; the table shows
the median of several turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from time import process_time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from slotbench.data.movi_like import MOViLike
from slotbench.data.movi_like_scenes import simulate
from slotbench.runs.provenance import processor

BATCH = 16
TURNS = 3
LAPTOP = {"resolution": 32, "num_objects": (3, 6), "video_frames": 12}
LAPTOP |= {"object_sizes": (0.9, 1.3), "spread": 2.7, "zoom": 1.05}


def settings() -> dict[str, dict[str, object]]:
    sizes = {f"a, {side}x{side}, 24 frames": {"resolution": side} for side in (32, 64, 128)}
    levels = {f"{level}, 64x64, 24 frames": {"level": level} for level in ("tex", "cam")}
    return {**sizes, **levels, "laptop: a, 32x32, 12 frames": LAPTOP}


def rate(step: Callable[[int], int], seconds: float) -> float:
    """What `step` says it has done, per second."""
    begin, done = process_time(), 0
    for turn in count():
        done += step(turn)
        if process_time() - begin >= seconds:
            return done / (process_time() - begin)
    raise AssertionError("unreachable")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="per part and turn")
    parser.add_argument("--quick", action="store_true", help="a few videos of each, to see that it runs")
    parser.add_argument("--out", type=Path, help="write the numbers to this JSON file")
    options = parser.parse_args()
    seconds, kept, turns = (0.001, 4, 1) if options.quick else (options.seconds, 48, TURNS)
    torch.set_num_threads(1)
    table = Table("set", "made, videos/s", "physics alone", "read, videos/s", "ms per video", title=processor())
    numbers: dict[str, object] = {"processor": processor()}
    for name, arguments in settings().items():
        data = MOViLike(**arguments, train_videos=1_000_000, val_size=kept, test_size=1)  # type: ignore[arg-type]
        source = data.simulated("train")
        source.read([0], [0], 1)  # compiles
        with tempfile.TemporaryDirectory() as folder:
            data._write("val", Path(folder) / "val", lambda *_: None)
            rates = turns_of(source, data, Path(folder) / "val", seconds, turns)
        made, physics, read = (statistics.median(values) for values in zip(*rates, strict=True))
        numbers[name] = {"made": made, "physics": physics, "read": read, "turns": rates}
        table.add_row(name, f"{made:,.1f}", f"{physics:,.0f}", f"{read:,.0f}", f"{1e3 / made:,.0f}")
    Console(width=110).print(table)
    if options.out is not None:
        options.out.write_text(json.dumps(numbers, indent=1))


def turns_of(source, data, folder: Path, seconds: float, turns: int) -> list[tuple[float, float, float]]:  # type: ignore[no-untyped-def]
    from slotbench.data.clip_cache import ClipCache

    cache = ClipCache(folder)
    frames, videos = source.num_frames, len(cache.lengths)
    rng = np.random.default_rng(0)

    def make(turn: int) -> int:
        source.read([turn], [0], frames)
        return 1

    def move(turn: int) -> int:
        simulate(source.scene(turn), frames)
        return 1

    def read(turn: int) -> int:
        cache.read(rng.integers(0, videos, BATCH).tolist(), [0] * BATCH, frames)
        return BATCH

    return [(rate(make, seconds), rate(move, seconds / 4), rate(read, seconds / 4)) for _ in range(turns)]


if __name__ == "__main__":
    main()
