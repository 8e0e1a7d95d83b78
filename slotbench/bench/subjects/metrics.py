"""Object-discovery metrics and `slotbench score` against scikit-learn and scipy."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score
from torch import Tensor

from slotbench.bench.contests import Contest, Way
from slotbench.evaluation.clip_files import find_clips
from slotbench.evaluation.file_scores import evaluate, match_clips
from slotbench.evaluation.score_record import record_of
from slotbench.metrics.contingency import frame_tables
from slotbench.metrics.mask_rules import Rules
from slotbench.metrics.segmentation import ARI, FGARI, MatchedIoU, MeanBestOverlap, Scope

OBJECTS, SLOTS = 10, 11

# --- metrics

BATCH, QUICK_BATCH = (32, 24, 128, 128), (2, 3, 16, 16)
PATCH = 8  # pixels: objects are blocks of so many, as real ones are not noise
SOFT_CLIPS = 8  # 32 of them take 550 MB
SCOPES: tuple[Scope, ...] = ("frame", "video")


def segmentation_metrics(quick: bool) -> Iterator[Contest]:
    """FGARI per scope and kind of labels, at hand as arrays; then every metric from counts that are there."""
    predicted, true = _labels(QUICK_BATCH if quick else BATCH)
    soft = torch.full((min(SOFT_CLIPS, len(true)), true.shape[1], SLOTS, *true.shape[2:]), 0.05)
    soft.scatter_(2, predicted[: len(soft), :, None], 0.5)
    kinds = {
        "int64 labels": (predicted, true),
        "uint8 labels": (predicted.byte(), true.byte()),
        f"soft masks, {len(soft)} clips": (soft, true[: len(soft)]),
    }
    for scope, (kind, labels) in product(SCOPES, kinds.items()):
        yield Contest(f"{kind}, per {scope}", partial(_fg_ari_ways, scope, labels), "FGARI")
    yield Contest("uint8 labels", partial(_from_counts, *kinds["uint8 labels"]), "counts", group="from counts")


def _fg_ari_ways(scope: Scope, labels: tuple[Tensor, Tensor]) -> dict[str, Way]:
    wide = [one if one.is_floating_point() else one.long() for one in labels]
    return {"FGARI": lambda: FGARI(scope)(*labels).item(), "scikit-learn": lambda: _scikit_learn(scope, *wide)}


def _from_counts(predicted: Tensor, true: Tensor) -> dict[str, Way]:
    tables = frame_tables(predicted, true)
    ways: dict[str, Way] = {"counts": lambda: frame_tables(predicted, true)}
    for scope in SCOPES:
        for metric in (ARI(scope), FGARI(scope), MatchedIoU(scope), MeanBestOverlap(scope)):
            ways[f"{type(metric).__name__}({scope!r})"] = partial(metric.update_tables, tables)
    return ways


def _labels(shape: tuple[int, ...], seed: int = 0) -> tuple[Tensor, Tensor]:
    """Predicted and true labels that agree on nine pixels of ten."""
    generator = torch.Generator().manual_seed(seed)
    coarse = (*shape[:-2], shape[-2] // PATCH, shape[-1] // PATCH)
    blocks = torch.randint(0, OBJECTS + 1, coarse, generator=generator)
    true = blocks.repeat_interleave(PATCH, -1).repeat_interleave(PATCH, -2)
    noise = torch.randint(0, SLOTS, shape, generator=generator)
    return torch.where(torch.rand(shape, generator=generator) < 0.9, (7 * true + 3) % SLOTS, noise), true


def _scikit_learn(scope: Scope, predicted: Tensor, true: Tensor) -> float:
    axes = 2 if scope == "frame" else 1
    values = []
    for one, other in zip(predicted.flatten(0, axes - 1).numpy(), true.flatten(0, axes - 1).numpy(), strict=True):
        slots = one.argmax(-3) if predicted.is_floating_point() else one
        front = other > 0
        values.append(adjusted_rand_score(other[front], slots[front]))
    return float(np.mean(values))


# --- folders of masks

CLIP, QUICK_CLIP, FILES = (24, 128, 128), (3, 16, 16), 10


def scoring(quick: bool) -> Iterator[Contest]:
    """Ids, by the number of clips; then soft masks. All clips are links to ten files, which costs the same."""
    shape, counts = (QUICK_CLIP, (2, 4)) if quick else (CLIP, (25, 250))
    for clips, kind in [*((clips, "ids") for clips in counts), (counts[-1], "soft masks")]:
        yield Contest(
            f"{clips} clips of {kind}",
            partial(_scoring_ways, shape, clips, kind),
            "score",
            memory=("score",),
            small=partial(_scoring_ways, QUICK_CLIP, 2, kind),
            amount=float(clips),
            unit="clips",
            rare=("scikit-learn, scipy",),
            size=float(clips) if kind == "ids" else None,
            group="" if kind == "ids" else "soft",
        )


def _scoring_ways(shape: tuple[int, int, int], clips: int, kind: str) -> dict[str, Way]:
    folder = tempfile.TemporaryDirectory()
    root = Path(folder.name)
    _write_clips(root, shape, clips, kind)

    def score(_folder: Any, with_baselines: bool) -> dict[str, Any]:
        matching = match_clips(find_clips(root / "masks", "MASKS"), find_clips(root / "truth", "--truth"))
        (found,) = evaluate(matching, [Rules()], with_baselines=with_baselines)
        return record_of(found, {}, "made up", "")

    # the ways keep the folder alive
    ways: dict[str, Way] = {"score": partial(score, folder, True), "without baselines": partial(score, folder, False)}
    return ways | ({"scikit-learn, scipy": partial(_by_hand, root)} if kind == "ids" else {})


def _by_hand(root: Path) -> list[float]:
    """FG-ARI, ARI and mIoU per frame and per video, clip by clip: half of what `score` computes."""
    values = []
    for path in sorted((root / "truth").iterdir()):
        true, slots = np.load(path), np.load(root / "masks" / path.name)
        for one, other in [(true, slots), *zip(true, slots, strict=True)]:
            front = one > 0
            values.append(float(adjusted_rand_score(one[front], other[front])))
            values.append(float(adjusted_rand_score(one.ravel(), other.ravel())))
            table = np.zeros((OBJECTS + 1, SLOTS), np.int64)
            np.add.at(table, (one.ravel(), other.ravel()), 1)
            iou = (table / (table.sum(1, keepdims=True) + table.sum(0) - table).clip(1))[1:]
            values.append(float(iou[linear_sum_assignment(iou, maximize=True)].mean()))
    return values


def _write_clips(root: Path, shape: tuple[int, int, int], clips: int, kind: str) -> None:
    """Files of bytes or of float32, and links to them for all clips."""
    for side in ("files", "masks", "truth"):
        (root / side).mkdir()
    for number in range(min(FILES, clips)):
        slots, true = (labels[0].numpy().astype(np.uint8) for labels in _labels((1, *shape), number))
        masks = np.where(np.arange(SLOTS)[:, None, None] == slots[:, None], 0.7, 0.03).astype(np.float32)
        np.save(root / "files" / f"masks{number}.npy", slots if kind == "ids" else masks)
        np.save(root / "files" / f"truth{number}.npy", true)
    for clip, side in product(range(clips), ("masks", "truth")):
        os.symlink(root / "files" / f"{side}{clip % FILES}.npy", root / side / f"{clip:03d}.npy")
