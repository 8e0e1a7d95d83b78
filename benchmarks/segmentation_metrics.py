"""Speed of the object-discovery metrics against scikit-learn: `python benchmarks/segmentation_metrics.py [--quick]`.

Clips of (32, 24, 128, 128) pixels, 10 objects and background, 11 slots, on one thread. The other side is a loop over
samples with `sklearn.metrics.adjusted_rand_score` on the foreground's pixels, labels already at hand as int64 arrays
(for soft masks: `numpy.argmax` per sample first). Time is the processor's, so that a busy machine counts for less; the
two sides take turns; the table shows medians of times and of the ratios of each pair of turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from time import process_time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from slotbench.metrics.object_discovery import (
    ARI,
    FGARI,
    MatchedIoU,
    MeanBestOverlap,
    Scope,
    SegmentationMetric,
    frame_tables,
)

SHAPE, QUICK_SHAPE, OBJECTS, SLOTS = (32, 24, 128, 128), (2, 3, 16, 16), 10, 11
PATCH = 8  # pixels: objects are blocks of so many, as real ones are not noise


def clips(shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Predicted and true labels that agree on nine pixels of ten."""
    generator = torch.Generator().manual_seed(0)
    coarse = (*shape[:-2], shape[-2] // PATCH, shape[-1] // PATCH)
    blocks = torch.randint(0, OBJECTS + 1, coarse, generator=generator)
    true = blocks.repeat_interleave(PATCH, -1).repeat_interleave(PATCH, -2)
    noise = torch.randint(0, SLOTS, shape, generator=generator)
    return torch.where(torch.rand(shape, generator=generator) < 0.9, (7 * true + 3) % SLOTS, noise), true


def soft_masks(labels: Tensor) -> Tensor:
    """Masks whose argmax is `labels`, "batch time slots height width" in float32."""
    masks = torch.full((*labels.shape[:2], SLOTS, *labels.shape[2:]), 0.05)
    return masks.scatter_(2, labels[:, :, None], 0.5)


def ours(metric: SegmentationMetric, predicted: Tensor, true: Tensor) -> float:
    metric.update(predicted, true)
    return metric.compute().item()


def scikit_learn(scope: Scope, predicted: Tensor, true: Tensor) -> float:
    from sklearn.metrics import adjusted_rand_score

    axes = 2 if scope == "frame" else 1
    values = []
    for one, other in zip(predicted.flatten(0, axes - 1).numpy(), true.flatten(0, axes - 1).numpy(), strict=True):
        slots = one.argmax(-3) if predicted.is_floating_point() else one
        front = other > 0
        values.append(adjusted_rand_score(other[front], slots[front]))
    return float(np.mean(values))


def timed(function: Callable[..., float], *arguments: object) -> tuple[float, float]:
    """Milliseconds of processor time, and the value."""
    begin = process_time()
    value = function(*arguments)
    return 1e3 * (process_time() - begin), value


def compare(scope: Scope, given: Tensor, true: Tensor, turns: int) -> dict[str, float]:
    """FGARI beside scikit-learn, if it is installed."""
    with_scikit_learn = find_spec("sklearn") is not None
    times, theirs, gaps = [], [], []
    for _ in range(turns):
        time, value = timed(ours, FGARI(scope), given, true)
        times.append(time)
        if with_scikit_learn:
            arrays = (labels if labels.is_floating_point() else labels.long() for labels in (given, true))
            time, expected = timed(scikit_learn, scope, *arrays)
            theirs.append(time)
            gaps.append(abs(value - expected))
    numbers = {"ms": statistics.median(times)}
    if with_scikit_learn:
        ratios = [other / own for own, other in zip(times, theirs, strict=True)]
        numbers |= {
            "sklearn_ms": statistics.median(theirs),
            "ratio": statistics.median(ratios),
            "lowest_ratio": min(ratios),
            "difference": max(gaps),
        }
    return numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few small clips, to see that it runs")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--soft-clips", type=int, default=8, help="clips as soft masks: 32 of them take 550 MB")
    parser.add_argument("--out", type=Path, help="write the numbers to this JSON file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    predicted, true = clips(QUICK_SHAPE if options.quick else SHAPE)
    soft = soft_masks(predicted[: options.soft_clips])
    kinds = {
        "int64 labels": (predicted, true),
        "uint8 labels": (predicted.byte(), true.byte()),
        f"soft masks, {len(soft)} clips": (soft, true[: len(soft)]),
    }
    console, numbers, scopes = Console(), {}, ("frame", "video")
    console.print(f"clips of {tuple(true.shape)}, {SLOTS} slots; without scikit-learn only our own times")
    table = Table("FGARI of", "scope", "ms", "scikit-learn ms", "ratio", "lowest ratio", "difference")
    for scope, (kind, labels) in product(scopes, kinds.items()):
        row = compare(scope, *labels, turns=options.turns)
        numbers[f"FGARI {scope} {kind}"] = row
        table.add_row(kind, scope, *(f"{number:,.3g}" for number in row.values()))
    console.print(table)

    parts = Table("step", "ms")
    steps = {f"counts of {kind}": partial(frame_tables, *labels) for kind, labels in kinds.items()}
    tables = frame_tables(*kinds["uint8 labels"])
    for scope, metric in product(scopes, (ARI, FGARI, MatchedIoU, MeanBestOverlap)):
        steps[f"{metric.__name__}({scope!r}) from counts"] = partial(metric(scope).update_tables, tables)
    for name, step in steps.items():
        numbers[name] = {"ms": statistics.median(timed(step)[0] for _ in range(options.turns))}
        parts.add_row(name, f"{numbers[name]['ms']:,.1f}")
    console.print(parts)
    if options.out is not None:
        options.out.write_text(json.dumps(numbers, indent=1))


if __name__ == "__main__":
    main()
