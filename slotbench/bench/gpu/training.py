"""Training at the papers' sizes, one model of each family: steps per second and peak memory in fp32 and bf16-mixed.

The models, batches, resolutions and numbers of frames are those of `experiments/paper`. Where these want data that has
to be downloaded, the frames are simulated at the same size (`ColouredBalls`, digits of noise), so nothing of scores can
be read from these runs: they are timed.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slotbench.bench.gpu.fits import PRECISIONS, START, Fit, experiment, merged
from slotbench.bench.gpu.plan import Settings
from slotbench.bench.gpu.records import Items, OutOfTimeError

__all__ = ["CASES", "Case", "configuration", "run", "small"]

STEPS, QUICK_STEPS = 300, 2
_LEAST = 10.0  # seconds of training at the least: where not all get as much, the last ones are left out
_PAPER = "experiments/paper"
_BALLS = "slotbench.bench.gpu.coloured_balls.ColouredBalls"


@dataclass(frozen=True)
class Case:
    """A family's experiment.

    Attributes:
        family: of models.
        files: the experiment, and what is laid over it.
        stands_in: what is simulated in the place of which data; "" where the experiment's own data is simulated.
    """

    family: str
    files: tuple[str, ...]
    stands_in: str = ""


CASES = (
    Case("SlotSSM", (f"{_PAPER}/blinking_balls_earliest_t6_p4.yaml",)),
    Case("PSB", (f"{_PAPER}/movi_a_psb.yaml",), "coloured balls for MOVi-A"),
    Case("ConvS5", (f"{_PAPER}/moving_mnist_300_convs5.yaml",), "digits of noise for MNIST's, one clip on one device"),
    Case("Slot Attention", (f"{_PAPER}/clevr6_weighted_mean.yaml",), "coloured balls for CLEVR6"),
    Case("RIM", (f"{_PAPER}/bouncing_balls.yaml", "experiments/matched/paper_bouncing_balls/RIM.yaml")),
)


def run(settings: Settings, items: Items) -> str:
    """Trains each case that has no item yet, every family in fp32 first; returns what came of it in a line.

    Raises:
        OutOfTimeError: some could not be begun.
    """
    began = time.monotonic()
    folder = settings.out / "training"
    folder.mkdir(parents=True, exist_ok=True)
    waiting = [
        (case, precision) for precision in PRECISIONS for case in CASES if f"{case.family}, {precision}" not in items
    ]
    for index, (case, precision) in enumerate(waiting):
        left = settings.seconds - (time.monotonic() - began)
        # half of what a start may take, as most take less
        seconds = max(left / (len(waiting) - index) - START / 2, _LEAST)
        if settings.quick:  # two steps, however slow
            seconds = left
        if left < START / 2 + _LEAST:
            break
        steps = QUICK_STEPS if settings.quick else STEPS
        name = f"{case.family}-{precision}".replace(" ", "_")
        config = configuration(case, folder, quick=settings.quick)
        outcome = Fit(config, folder / name, steps, seconds, precision).run(settings)
        shutil.rmtree(folder / name / "checkpoints", ignore_errors=True)  # nobody wants these weights
        items[f"{case.family}, {precision}"] = {
            "family": case.family,
            "precision": precision,
            "files": list(case.files),
            "stands_in": case.stands_in,
            "sizes": _sizes(config),
            **outcome,
        }
    missing = len(CASES) * len(PRECISIONS) - len(items.found)
    if missing:
        raise OutOfTimeError(f"{items.summary('run')}, {missing} not begun")
    return items.summary("run")


def configuration(case: Case, folder: Path, *, quick: bool) -> dict[str, Any]:
    """The case's experiment with data that needs no download.

    Args:
        case: the case.
        folder: where made-up digits are written.
        quick: shrinks frames, clips and batches; the model stays as it is.
    """
    config = experiment(*case.files)
    data = config["data"]
    given = data.get("init_args", {})
    loader = dict(given.get("loader", {}))
    loader["num_workers"] = 0 if quick else min(int(loader.get("num_workers", 0)), _cores())
    # enough for the steps, and made as quickly by every data set
    loader |= {"train_size": 200_000, "val_size": 64, "test_size": 64}
    if data["class_path"] in ("MOVi", "CLEVR"):
        sizes = {"resolution": given["resolution"], "num_frames": given.get("num_frames", 1), "eval_frames": 2}
        data = {"class_path": _BALLS, "init_args": sizes}
    elif data["class_path"] == "MovingMNIST":
        data = merged(data, {"init_args": {"digits": str(_digits(folder))}})
    if quick:
        loader |= {"batch_size": 1, "val_batch_size": 1, "train_size": 64, "val_size": 4, "test_size": 4}
        data = merged(data, {"init_args": small(data["init_args"])})
    return merged(config, {"data": merged(data, {"init_args": {"loader": loader}})})


def small(given: Mapping[str, Any]) -> dict[str, Any]:
    """Smaller frames and shorter clips, as far as the parts of the models take them."""
    smaller = {"resolution": 16, "num_frames": 2, "digit_size": 7, "eval_frames": 3}
    if "patches_per_side" in given:
        smaller |= {"resolution": 32, "num_frames": 3, "patches_per_side": 2}
    return {name: min(value, int(given[name])) for name, value in smaller.items() if given.get(name) is not None}


def _digits(folder: Path) -> Path:
    """A file of 100 images of noise of the size of MNIST's digits."""
    import numpy as np

    path = folder / "digits.npy"
    if not path.is_file():
        np.save(path, np.random.default_rng(0).integers(0, 256, (100, 28, 28), dtype=np.uint8))
    return path


def _sizes(config: Mapping[str, Any]) -> dict[str, Any]:
    given = config["data"]["init_args"]
    kept = ("resolution", "num_frames", "patches_per_side")
    return {"batch": given["loader"].get("batch_size"), **{name: given[name] for name in kept if name in given}}


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
