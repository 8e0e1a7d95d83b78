"""Run folders with made-up numbers, as `fit` leaves them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from slotbench.comparison.runs import Run, Runs

HEADLINES = [
    {"metric": "val/iou", "label": "where: IoU", "higher_is_better": True, "baselines": {"black": 0.0, "copy": 0.4}},
    {"metric": "val/mse", "label": "error", "higher_is_better": False, "baselines": {"copy": 0.3}},
]


def config(core: str = "SlotSSM", seed: int = 0, **arguments: Any) -> dict[str, Any]:
    """A configuration; `arguments` are those of the core."""
    optimizer = {"class_path": "torch.optim.AdamW", "init_args": {"lr": 0.001}}
    core_of = {"class_path": core, "init_args": arguments}
    return {
        "seed_everything": seed,
        "model": {"class_path": "VideoPrediction", "init_args": {"core": core_of, "optimizer": optimizer}},
        "data": {"class_path": "BouncingBalls", "init_args": {"num_balls": 3, "loader": {"seed": 0}}},
        "trainer": {"max_steps": 100, "devices": "auto"},
        "ckpt_path": None,
    }


def make_run(
    folder: Path,
    settings: Mapping[str, Any] | None = None,
    metrics: Mapping[str, float] | None = None,
    rows: Sequence[Mapping[str, Any]] = (),
    **info: Any,
) -> Path:
    """Writes a run folder; without `metrics` its record has none, as before the first validation."""
    folder.mkdir(parents=True)
    record = {"id": folder.name, "name": folder.parent.name, "state": "finished", "step": 100, "seconds_per_step": 0.1}
    record |= {"parameters": {"core": 1000, "total": 1500}, "headlines": HEADLINES, **info}
    if metrics is not None:
        record["metrics"] = dict(metrics)
    (folder / "run.json").write_text(json.dumps(record))
    (folder / "config.yaml").write_text(yaml.safe_dump(dict(settings or config()), sort_keys=False))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def made_up(name: str, settings: Mapping[str, str], scores: Mapping[str, float], state: str = "finished") -> Run:
    """A run as it is read."""
    facts = {"name": name, "source": f"runs/{name}", "state": state, "parameters": 1500, "seconds_per_step": 0.1}
    return Run(name, facts, dict(settings), dict(scores), headlines=HEADLINES)


def seeds(values: Mapping[str, Sequence[float]], **settings: str) -> Runs:
    """Cores over several seeds, with `val/iou` and a `val/mse` that mirrors it."""
    runs = [
        made_up(
            f"{core}-{seed}",
            {"model.core": core, "seed_everything": str(seed), **settings},
            {"val/iou": value, "val/mse": 1 - value, "val/loss": 2 - value},
        )
        for core, own in values.items()
        for seed, value in enumerate(own)
    ]
    return Runs({run.id: run for run in runs}, title="made up")
