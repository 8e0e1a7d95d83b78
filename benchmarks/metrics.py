"""FG-ARI of many clips against scikit-learn: python benchmarks/metrics.py [--quick]."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from sklearn.metrics import adjusted_rand_score
from torch import Tensor
from torch.utils.benchmark import Timer

from slotbench.metrics.segmentation import FGARI, Scope

OBJECTS, SLOTS, BLOCK = 10, 11, 8


def labels(clips: int, frames: int, side: int) -> tuple[Tensor, Tensor]:
    """Predicted and true ids in blocks that agree on nine pixels of ten."""
    generator = torch.Generator().manual_seed(0)
    blocks = torch.randint(0, OBJECTS + 1, (clips, frames, side // BLOCK, side // BLOCK), generator=generator)
    true = blocks.repeat_interleave(BLOCK, -1).repeat_interleave(BLOCK, -2)
    noise = torch.randint(0, SLOTS, true.shape, generator=generator)
    keeps = torch.rand(true.shape, generator=generator) < 0.9
    return torch.where(keeps, (7 * true + 3) % SLOTS, noise), true


def score(scope: Scope, predicted: Tensor, true: Tensor) -> float:
    """By slotbench."""
    return float(FGARI(scope)(predicted, true))


def by_scikit_learn(scope: Scope, predicted: Tensor, true: Tensor) -> float:
    """The mean over frames, or over videos, one after the other."""
    axes = 2 if scope == "frame" else 1
    values = []
    for one, other in zip(predicted.flatten(0, axes - 1).numpy(), true.flatten(0, axes - 1).numpy(), strict=True):
        front = other > 0
        values.append(adjusted_rand_score(other[front], one[front]))
    return float(np.mean(values))


def milliseconds(call: Callable[[], object], seconds: float) -> float:
    """The median of a call."""
    timer = Timer("call()", globals={"call": call}, num_threads=1)
    return 1e3 * timer.blocked_autorange(min_run_time=seconds).median


def main() -> None:
    """Prints a line per scope and kind of labels."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small, to see that it runs")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    predicted, true = labels(2, 3, 16) if quick else labels(32, 24, 128)
    scopes: tuple[Scope, ...] = ("frame", "video")
    for scope in scopes:
        expected = by_scikit_learn(scope, predicted, true)
        theirs = milliseconds(partial(by_scikit_learn, scope, predicted, true), 0.1 if quick else 5)
        for kind, pair in (("int64", (predicted, true)), ("uint8", (predicted.byte(), true.byte()))):
            ours = milliseconds(partial(score, scope, *pair), 0.1 if quick else 5)
            difference = abs(score(scope, *pair) - expected)
            print(f"{kind} per {scope}: {ours:.1f} ms, {theirs / ours:.0f} times faster, differs by {difference:.0e}")


if __name__ == "__main__":
    main()
