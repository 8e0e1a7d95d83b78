"""How fast clips are made: `python benchmarks/data.py [--seconds 1] [--quick] [--out FILE]`, on one thread.

For each set and size: clips per second with the compiled kernel and without, 16 clips per call as in training, and
through the `DataLoader` with collation. Time is the processor's, not the wall clock's, so that a busy machine counts
for less; the columns take turns, `--seconds` each, and the table shows the median of several turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from pathlib import Path
from time import process_time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from rich.console import Console
from rich.table import Table

from slotbench.data.ball_kernel import Kernel
from slotbench.data.base import SlotDataModule
from slotbench.data.blinking_balls import BlinkingBalls
from slotbench.data.bouncing_balls import BouncingBalls
from slotbench.data.moving_mnist import MovingMNIST

BATCH = 16
TURNS = 4


def settings(kernel: Kernel) -> dict[str, SlotDataModule]:
    data: dict[str, SlotDataModule] = {
        f"BouncingBalls T=20 {side}x{side} n=4": BouncingBalls(resolution=side, kernel=kernel) for side in (32, 64)
    }
    sizes = [(3, 6, 32, 1), (4, 6, 32, 4), (4, 6, 64, 4), (4, 11, 32, 4), (4, 11, 64, 4), (4, 11, 64, 16)]
    for balls, frames, side, patches in sizes:
        data[f"BlinkingBalls T={frames} {side}x{side} n={balls} P={patches}"] = BlinkingBalls(
            num_frames=frames, resolution=side, patches_per_side=patches, num_balls=balls, kernel=kernel
        )
    for frames in (20, 100, 300, 1200):
        data[f"MovingMNIST T={frames} 64x64 n=2"] = MovingMNIST(num_frames=frames, kernel=kernel)
    return data


def clips_per_second(data: SlotDataModule, seconds: float, through_loader: bool) -> float:
    dataset = data.dataset("train")
    batches = iter(data.train_dataloader()) if through_loader else None
    begin, clips = process_time(), 0
    while process_time() - begin < seconds:
        if batches is None:
            dataset.__getitems__(list(range(clips, clips + BATCH)))  # type: ignore[attr-defined]
        else:
            next(batches)
        clips += BATCH
    return clips / (process_time() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--quick", action="store_true", help="a few clips of each, to see that it runs")
    parser.add_argument("--out", type=Path, help="write the numbers to this JSON file")
    options = parser.parse_args()
    seconds = 0.005 if options.quick else options.seconds
    torch.set_num_threads(1)
    table = Table("set", "numba clips/s", "numpy clips/s", "ratio", "loader clips/s", f"ms per {BATCH}")
    with_numba, with_numpy = settings("numba"), settings("numpy")
    numbers = {}
    for name, compiled in with_numba.items():
        clips_per_second(compiled, 0.01, False)  # compiles
        turns = [
            (
                clips_per_second(compiled, seconds, False),
                clips_per_second(with_numpy[name], seconds, False),
                clips_per_second(compiled, seconds, True),
            )
            for _ in range(TURNS)
        ]
        fast, slow, loader = (statistics.median(rates) for rates in zip(*turns, strict=True))
        numbers[name] = {"numba": fast, "numpy": slow, "loader": loader, "turns": turns}
        cells = (f"{fast:,.0f}", f"{slow:,.0f}", f"{fast / slow:.1f}", f"{loader:,.0f}", f"{1e3 * BATCH / loader:.1f}")
        table.add_row(name, *cells)
    Console().print(table)
    if options.out is not None:
        options.out.write_text(json.dumps(numbers, indent=1))


if __name__ == "__main__":
    main()
