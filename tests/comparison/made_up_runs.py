"""Run folders with made-up numbers, as `fit` leaves them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from slotbench.comparison.records import RunRecord

HEADLINES = [
    {"metric": "val/iou", "label": "where: IoU", "higher_is_better": True, "baselines": {"black": 0.0, "copy": 0.4}},
    {"metric": "val/mse", "label": "error", "higher_is_better": False, "baselines": {"copy": 0.3}},
]


def config(core: str = "SlotSSM", seed: int = 0, **changed: Any) -> dict[str, Any]:
    """A configuration; `changed` are arguments of the core, or of the data where they begin with `data_`."""
    data = {key.removeprefix("data_"): value for key, value in changed.items() if key.startswith("data_")}
    loader = {"seed": 0} | {key: data.pop(key) for key in ("seed", "num_workers") if key in data}
    arguments = {key: value for key, value in changed.items() if not key.startswith("data_")}
    return {
        "seed_everything": seed,
        "model": {
            "class_path": "VideoPrediction",
            "init_args": {
                "core": {"class_path": core, "init_args": arguments},
                "optimizer": {"class_path": "torch.optim.AdamW", "init_args": {"lr": 0.001}},
            },
        },
        "data": {"class_path": "BouncingBalls", "init_args": {"num_balls": 3, "loader": loader, **data}},
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
    record = {
        "id": folder.name,
        "name": folder.parent.name,
        "group": None,
        "state": "finished",
        "step": 100,
        "total_steps": 100,
        "parameters": {"core": 1000, "total": 1500},
        "seconds_per_step": 0.1,
        "headlines": HEADLINES,
        **info,
    }
    if metrics is not None:
        record["metrics"] = dict(metrics)
    (folder / "run.json").write_text(json.dumps(record))
    (folder / "config.yaml").write_text(yaml.safe_dump(dict(settings or config()), sort_keys=False))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def record(
    name: str, settings: Mapping[str, Any], summary: Mapping[str, float], state: str = "finished", **info: Any
) -> RunRecord:
    """A run as it is read; `settings` are flat."""
    known = {"headlines": HEADLINES, "parameters": {"total": 1500}, "seconds_per_step": 0.1, **info}
    return RunRecord(name, name, f"runs/{name}", state, dict(settings), dict(summary), info=known)


def seeds(core: str, values: Sequence[float], **settings: Any) -> list[RunRecord]:
    """A core over several seeds, with `val/iou` and a `val/mse` that mirrors it."""
    return [
        record(
            f"{core}-{'-'.join(map(str, settings.values()))}-{seed}",
            {"model.core": core, "seed_everything": seed, **settings},
            {"val/iou": value, "val/mse": 1 - value, "val/loss": 2 - value},
        )
        for seed, value in enumerate(values)
    ]
