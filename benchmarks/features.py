"""Clips a second that are read from a cache of features: python benchmarks/features.py [--quick].

A made cache, as `slotbench prepare NAME --features WEIGHTS` writes it, and `FeatureFile` over it in training, one clip
of each video at random, on one core: through a loader as a training has them, and out of the files alone. The files lie
in the memory of the system; processor time is counted, or with `--wall` the time that passes.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from slotbench.data.base import LoaderOptions
from slotbench.data.clip_cache import write_cache
from slotbench.data.features import FeatureFile
from slotbench.interfaces import VideoBatch


def videos(count: int, frames: int, side: int, dim: int, grid: int) -> Iterator[VideoBatch]:
    """Noise, a video at a time."""
    for _ in range(count):
        yield VideoBatch(
            torch.randint(0, 256, (1, frames, 3, side, side), dtype=torch.uint8),
            masks=torch.randint(0, 8, (1, frames, side, side), dtype=torch.uint8),
            features=torch.randn(1, frames, dim, grid, grid).half(),
        )


def rates(data: FeatureFile, passes: int, videos_of_pass: int, wall: bool) -> dict[str, list[float]]:
    """Clips a second of each pass, by what is timed."""
    found: dict[str, list[float]] = {"loader": [], "files": []}
    clips, loader = data.dataset("train"), iter(data.train_dataloader())
    size, start, clock = data.loader.batch_size, 0, time.perf_counter if wall else time.process_time
    next(loader)
    for _ in range(passes):
        for name in found:
            began = clock()
            for _ in range(videos_of_pass // size):
                if name == "loader":
                    data.on_after_batch_transfer(next(loader), 0)
                else:
                    clips.__getitems__(list(range(start, start + size)))  # type: ignore[attr-defined]
                    start += size
            found[name].append(videos_of_pass / (clock() - began))
    return found


def main() -> None:
    """Prints the median and the range of some passes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small, to see that it runs")
    parser.add_argument("--wall", action="store_true", help="count the time that passes")
    parser.add_argument("--batch", type=int, default=8, help="clips of a batch (default: 8)")
    given = parser.parse_args()
    torch.set_num_threads(1)
    count, frames, side, dim, grid, passes = (16, 4, 32, 16, 4, 2) if given.quick else (64, 36, 224, 384, 16, 7)
    clip = frames if given.quick else 24
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_cache(folder / "train", lambda first: videos(count - first, frames, side, dim, grid), {})
        loader = LoaderOptions(batch_size=given.batch, num_workers=0)
        data = FeatureFile(name, num_frames=clip, loader=loader)
        for what, found in rates(data, passes, count, given.wall).items():
            low, middle, high = min(found), statistics.median(found), max(found)
            print(f"{what}: {middle:.1f} clips/s of {clip} frames, {dim} x {grid} x {grid} ({low:.1f} to {high:.1f})")


if __name__ == "__main__":
    main()
