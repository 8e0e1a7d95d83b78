"""`slotbench score` on folders of masks, against scikit-learn and scipy on the same files, by number of clips.

All clips of a folder are links to ten: what is read and counted is as much as of other ones.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score

from slotbench.bench.contest import Contest, Way
from slotbench.bench.subjects import Subject
from slotbench.metrics.mask_rules import Rules
from slotbench.scoring.clip_files import find_clips
from slotbench.scoring.evaluation import evaluate, match_clips
from slotbench.scoring.record import record_of

__all__ = ["SUBJECT"]

SHAPE, QUICK_SHAPE, OBJECTS, SLOTS, FILES = (24, 128, 128), (3, 16, 16), 10, 11, 10


def contests(quick: bool) -> Iterator[Contest]:
    """Ids, by the number of clips, against scikit-learn and scipy; then soft masks."""
    shape, counts = (QUICK_SHAPE, (2, 4)) if quick else (SHAPE, (25, 250))
    small = partial(_ways, QUICK_SHAPE, 2, "ids")
    for clips in counts:
        make = partial(_ways, shape, clips, "ids")
        yield Contest(
            f"{clips} clips of ids",
            make,
            "score",
            ("score",),
            small,
            float(clips),
            "clips",
            ("scikit-learn, scipy",),
            float(clips),
        )
    make = partial(_ways, shape, counts[-1], "soft")
    small = partial(_ways, QUICK_SHAPE, 2, "soft")
    yield Contest(
        f"{counts[-1]} clips of soft masks", make, "score", ("score",), small, float(counts[-1]), "clips", group="soft"
    )


def _ways(shape: tuple[int, int, int], clips: int, kind: str) -> dict[str, Way]:
    folder = tempfile.TemporaryDirectory()
    root = Path(folder.name)
    _write(root, shape, clips, kind)
    # held by the ways: the folder is removed with the last of them
    ways: dict[str, Way] = {
        "score": lambda _=folder: _score(root, True),  # type: ignore[misc]
        "without baselines": lambda: _score(root, False),
    }
    return ways if kind == "soft" else ways | {"scikit-learn, scipy": lambda: _by_hand(root)}


def _score(root: Path, with_baselines: bool) -> dict[str, Any]:
    matching = match_clips(find_clips(root / "masks", "MASKS"), find_clips(root / "truth", "--truth"))
    (found,) = evaluate(matching, [Rules()], with_baselines=with_baselines)
    return record_of(found, {}, "made up", "")


def _by_hand(root: Path) -> list[float]:
    """FG-ARI, ARI and mIoU per frame and per video, clip by clip: a half of what `score` computes."""
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


def _write(root: Path, shape: tuple[int, int, int], clips: int, kind: str) -> None:
    """Discs that move, slots with noise at their rims, in npy files of bytes or of float32."""
    time, height, width = shape
    rows, columns = np.mgrid[:height, :width]
    for side in ("files", "masks", "truth"):
        (root / side).mkdir()
    for number in range(min(FILES, clips)):
        rng = np.random.default_rng(number)
        true, slots = np.zeros(shape, np.uint8), np.zeros(shape, np.uint8)
        place, speed = rng.uniform(0, 1, (OBJECTS, 2)) * (height, width), rng.uniform(-2, 2, (OBJECTS, 2))
        for frame in range(time):
            for one in range(OBJECTS):
                row, column = place[one] + speed[one] * frame
                away = (rows - row) ** 2 + (columns - column) ** 2
                true[frame][away < (height / 9) ** 2] = one + 1
                slots[frame][away < (height / 8) ** 2] = (one + frame // (time - 1)) % OBJECTS + 1
        masks = slots if kind == "ids" else np.where(np.arange(SLOTS)[:, None, None] == slots[:, None], 0.7, 0.03)
        np.save(root / "files" / f"masks{number}.npy", masks if kind == "ids" else masks.astype(np.float32))
        np.save(root / "files" / f"truth{number}.npy", true)
    for clip in range(clips):
        for side in ("masks", "truth"):
            os.symlink(root / "files" / f"{side}{clip % FILES}.npy", root / side / f"{clip:03d}.npy")


SUBJECT = Subject(f"scoring masks of {SHAPE} pixels, {SLOTS} slots, from files", "input", contests, rounds=3)
