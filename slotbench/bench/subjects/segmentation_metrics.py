"""Object-discovery metrics against a loop over samples with scikit-learn, labels already at hand as int64 arrays."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import torch
from sklearn.metrics import adjusted_rand_score
from torch import Tensor

from slotbench.bench.contest import Contest, Way
from slotbench.bench.subjects import Subject
from slotbench.metrics.contingency import frame_tables
from slotbench.metrics.segmentation import ARI, FGARI, MatchedIoU, MeanBestOverlap, Scope

__all__ = ["SUBJECT"]

SHAPE, QUICK_SHAPE, OBJECTS, SLOTS = (32, 24, 128, 128), (2, 3, 16, 16), 10, 11
PATCH = 8  # pixels: objects are blocks of so many, as real ones are not noise
SOFT_CLIPS = 8  # 32 of them take 550 MB
SCOPES: tuple[Scope, ...] = ("frame", "video")


def contests(quick: bool) -> Iterator[Contest]:
    """FGARI per scope and kind of labels; then every metric from counts that are there."""
    predicted, true = _clips(QUICK_SHAPE if quick else SHAPE)
    soft = _soft_masks(predicted[:SOFT_CLIPS])
    kinds = {
        "int64 labels": (predicted, true),
        "uint8 labels": (predicted.byte(), true.byte()),
        f"soft masks, {len(soft)} clips": (soft, true[: len(soft)]),
    }
    for scope, (kind, labels) in product(SCOPES, kinds.items()):
        wide = tuple(one if one.is_floating_point() else one.long() for one in labels)
        ways = {
            "FGARI": lambda scope=scope, labels=labels: FGARI(scope)(*labels).item(),  # type: ignore[misc]
            "scikit-learn": lambda scope=scope, wide=wide: _scikit_learn(scope, *wide),  # type: ignore[misc]
        }
        yield Contest(f"{kind}, per {scope}", lambda ways=ways: ways, "FGARI")  # type: ignore[misc]
    yield Contest("uint8 labels", lambda: _from_counts(*kinds["uint8 labels"]), "counts", group="from counts")


def _from_counts(predicted: Tensor, true: Tensor) -> dict[str, Way]:
    tables = frame_tables(predicted, true)
    ways: dict[str, Way] = {"counts": lambda: frame_tables(predicted, true)}
    for scope in SCOPES:
        for metric in (ARI(scope), FGARI(scope), MatchedIoU(scope), MeanBestOverlap(scope)):
            name = f"{type(metric).__name__}({scope!r})"
            ways[name] = lambda metric=metric: metric.update_tables(tables)  # type: ignore[misc]
    return ways


def _clips(shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Predicted and true labels that agree on nine pixels of ten."""
    generator = torch.Generator().manual_seed(0)
    coarse = (*shape[:-2], shape[-2] // PATCH, shape[-1] // PATCH)
    blocks = torch.randint(0, OBJECTS + 1, coarse, generator=generator)
    true = blocks.repeat_interleave(PATCH, -1).repeat_interleave(PATCH, -2)
    noise = torch.randint(0, SLOTS, shape, generator=generator)
    return torch.where(torch.rand(shape, generator=generator) < 0.9, (7 * true + 3) % SLOTS, noise), true


def _soft_masks(labels: Tensor) -> Tensor:
    """Masks "batch time slots height width" in float32 whose argmax is `labels`."""
    masks = torch.full((*labels.shape[:2], SLOTS, *labels.shape[2:]), 0.05)
    return masks.scatter_(2, labels[:, :, None], 0.5)


def _scikit_learn(scope: Scope, predicted: Tensor, true: Tensor) -> float:
    axes = 2 if scope == "frame" else 1
    values = []
    for one, other in zip(predicted.flatten(0, axes - 1).numpy(), true.flatten(0, axes - 1).numpy(), strict=True):
        slots = one.argmax(-3) if predicted.is_floating_point() else one
        front = other > 0
        values.append(adjusted_rand_score(other[front], slots[front]))
    return float(np.mean(values))


SUBJECT = Subject(
    f"FGARI on clips of {SHAPE} pixels, {SLOTS} slots",
    "input",
    contests,
    rounds=3,
)
