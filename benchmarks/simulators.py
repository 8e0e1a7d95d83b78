"""Milliseconds of a training batch of the embedded simulators: python benchmarks/simulators.py [FILE ...] [--quick].

A batch is made and copied into shared memory, where a worker of the loader puts it, on one core.
"""

from __future__ import annotations

import argparse
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch.utils.benchmark import Timer

from slotbench.data.base import LoaderOptions, collate
from slotbench.io import read_yaml
from slotbench.registry import load

WORKERS = 8
ROOT = Path(__file__).resolve().parents[1] / "experiments"
FILES = [
    *("paper/blinking_balls_earliest_t6_p4", "paper/blinking_balls_most_frequent_t11_p16", "paper/bouncing_balls"),
    *("paper/rim_moving_sprites", "blinking_balls", "bouncing_balls", "moving_sprites"),
]


def main() -> None:
    """Prints a line per experiment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="experiments whose data is a simulator")
    parser.add_argument("--quick", action="store_true", help="two experiments, two clips")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for file in given.files or [ROOT / f"{name}.yaml" for name in (FILES[-2:] if given.quick else FILES)]:
        config = read_yaml(file)["data"]
        arguments: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in config["init_args"].items()
        }
        batch = 2 if given.quick else int(arguments.pop("loader", {}).get("batch_size", 32))
        loader = LoaderOptions(batch_size=batch)
        dataset: Any = load("datasets", config["class_path"])(**{**arguments, "loader": loader}).dataset("train")
        turns = count()

        def make(batch: int = batch, dataset: Any = dataset, turns: Any = turns) -> None:
            start = batch * next(turns)
            collate(dataset.__getitems__(list(range(start, start + batch)))).map(torch.Tensor.share_memory_)

        make()
        timer = Timer("make()", globals={"make": make}, num_threads=1)
        seconds = timer.blocked_autorange(min_run_time=0.1 if given.quick else 5.0).median
        print(f"{file.stem:<42}{batch:5d} clips {1e3 * seconds:10.2f} ms {WORKERS / seconds:10.1f} steps/s", flush=True)


if __name__ == "__main__":
    main()
