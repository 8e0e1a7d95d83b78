"""`slotbench compare` on many long runs that are made up, as a process of its own: 200 runs of 10,000 lines."""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from slotbench.bench.contest import Contest, Way, run_process
from slotbench.bench.subjects import Subject

__all__ = ["SUBJECT"]

SEEDS, SCORES, EVERY = 5, 40, 100
CORES = ("SlotSSM", "RIM", "SlotTransformer", "SplitSSM")
SIZE, QUICK_SIZE = (200, 10_000), (20, 1_000)


def contests(quick: bool) -> Iterator[Contest]:
    """One contest."""
    num_runs, num_rows = QUICK_SIZE if quick else SIZE
    yield Contest(f"{num_runs} runs of {num_rows:,} lines", partial(_ways, num_runs, num_rows), "table")


def _ways(num_runs: int, num_rows: int) -> dict[str, Way]:
    folder = tempfile.TemporaryDirectory()
    root = Path(folder.name)
    _make_runs(root / "runs", num_runs, num_rows)
    command = [sys.executable, "-P", "-m", "slotbench", "compare", str(root / "runs")]
    more = {
        "table": [],
        "table of the best validations": ["--select", "best"],
        "table and page": ["--html", str(root / "page.html")],
    }
    # the folder lives as long as who reads from it
    return {name: lambda words=words, _=folder: run_process([*command, *words]) for name, words in more.items()}  # type: ignore[misc]


def _make_runs(root: Path, num_runs: int, num_rows: int) -> None:
    """Variants of five seeds, 40 scores of validation in every hundredth line, a configuration as `fit` writes it."""
    for index in range(num_runs):
        folder = root / f"variant{index // SEEDS:02d}" / f"20260101-000000-{index:04x}"
        folder.mkdir(parents=True)
        chance = random.Random(index)
        lines: list[str] = []
        last: dict[str, float] = {}
        for row in range(num_rows):
            step = 25 * row + 24
            values = {"train/loss": chance.random()}
            if row % EVERY == EVERY - 1:
                scores = {f"val/score_{k:02d}": chance.random() for k in range(SCORES - 1)}
                values = {"val/loss": chance.random(), **scores}
                last |= values
            lines.append(json.dumps({"step": step, "epoch": 0, "seconds": 0.1 * step, **values}))
        (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
        (folder / "config.yaml").write_text(yaml.safe_dump(_config(index), sort_keys=False))
        (folder / "run.json").write_text(json.dumps(_record(folder.name, index, 25 * num_rows, last), indent=2))


def _config(index: int) -> dict[str, Any]:
    """As many settings as a run on bouncing balls has; core, slots and seed differ."""
    variant = index // SEEDS
    core = {"num_slots": 2 + variant // len(CORES), **{f"argument_{k}": 0.5 * k + 0.25 for k in range(12)}}
    part = {f"argument_{k}": 0.5 * k + 0.25 for k in range(10)}
    return {
        "seed_everything": index % SEEDS,
        "model": {
            "class_path": "VideoPrediction",
            "init_args": {
                "encoder": {"class_path": "PatchEncoder", "init_args": part},
                "core": {"class_path": CORES[variant % len(CORES)], "init_args": core},
                "decoder": {"class_path": "TransformerDecoder", "init_args": part},
                "optimizer": {"class_path": "torch.optim.AdamW", "init_args": part},
            },
        },
        "data": {"class_path": "BouncingBalls", "init_args": {f"argument_{k}": k for k in range(18)}},
        "trainer": {f"argument_{k}": None for k in range(38)},
    }


def _record(run_id: str, index: int, steps: int, metrics: dict[str, float]) -> dict[str, Any]:
    headlines = [
        {"metric": f"val/score_{k:02d}", "label": f"score {k}", "higher_is_better": True, "baselines": {"nothing": 0.1}}
        for k in range(3)
    ]
    return {
        "id": run_id,
        "name": f"variant{index // SEEDS:02d}",
        "state": "finished",
        "step": steps,
        "total_steps": steps,
        "seconds_per_step": 0.1,
        "parameters": {"encoder": 1, "core": 2, "decoder": 3, "total": 6},
        "headlines": headlines,
        "metrics": metrics,
        "best": {name: {"value": value, "step": steps} for name, value in metrics.items()},
    }


SUBJECT = Subject("slotbench compare", "runs", contests, rounds=3)
