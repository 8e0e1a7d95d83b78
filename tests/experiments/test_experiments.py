"""Every shipped experiment trains, at tiny size, through the command that its header names.

The fast suite trains those that bring a task, a data set for it, or a part that no earlier one has; an experiment that
a laptop's grid starts from, and whose task an earlier one has, it leaves to test_grids.py. Of the papers' it trains the
first of each task and data set that no laptop's has.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny_experiments import tiny_overrides

from slotbench.cli import run

ROOT = Path(__file__).parents[2]
EXPERIMENTS = sorted(
    (path for path in (ROOT / "experiments").rglob("*.yaml") if not {"matched", "grids"} & set(path.parts)),
    key=lambda path: (path.parent.name == "paper", path),
)


def classes(config: Any) -> list[str]:
    """The names of all classes, in the order of the file."""
    if not isinstance(config, dict):
        return []
    own = [config["class_path"]] if isinstance(config.get("class_path"), str) else []
    return own + [name for value in config.values() for name in classes(value)]


def bases() -> set[Path]:
    """The experiments that the laptop's grids start from, of each of which test_grids.py trains a point."""
    found = set()
    for path in (ROOT / "experiments" / "grids").glob("*.yaml"):
        base = yaml.safe_load(path.read_text())["base"]
        found |= {(path.parent / name).resolve() for name in ([base] if isinstance(base, str) else base)}
    return found


def cases() -> list[Any]:
    in_grids = bases()
    configs = {path: yaml.safe_load(path.read_text()) for path in EXPERIMENTS}
    parts = {path: (classes(config["model"]), classes(config["data"])) for path, config in configs.items()}
    seen: set[Any] = {(model[0], data[0]) for path, (model, data) in parts.items() if path.resolve() in in_grids}
    found = []
    for path, (model, data) in parts.items():
        pair = (model[0], data[0])
        brings = {pair} if path.parent.name == "paper" else {pair, *model}
        is_left = brings <= seen or (path.resolve() in in_grids and model[0] in seen)
        marks = [pytest.mark.slow] if is_left else []
        found.append(pytest.param(path, marks=marks, id=str(path.relative_to(ROOT / "experiments"))))
        seen |= {pair, *model}
    return found


@pytest.mark.parametrize("experiment", cases())
def test_experiment_trains_two_steps(experiment, tmp_path, monkeypatch):
    monkeypatch.setenv("SLOTBENCH_CACHE", str(tmp_path / "cache"))
    # a quarter of the time, and always the same; the task's own pictures are asked for below
    monkeypatch.setattr("slotbench.callbacks.curves.draw_curves", lambda folder: None)
    overrides = tiny_overrides(yaml.safe_load(experiment.read_text()), tmp_path / "data")
    assert run(["fit", "--config", str(experiment), *overrides, "--runs_dir", str(tmp_path)]) == 0
    (folder,) = (tmp_path / experiment.stem).iterdir()
    record = json.loads((folder / "run.json").read_text())
    assert record["state"] == "finished"
    assert record["step"] == 2
    scores = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    logged = {name for row in scores for name in row}
    if experiment.stem.startswith("cater_pretrain_"):
        # the released videos have no masks, and so no scores and baselines of segmentations
        assert "val/psnr/frame" in logged & {headline["metric"] for headline in record["headlines"]}
    else:
        assert record["headlines"][0]["metric"] in logged
        assert record["headlines"][0]["baselines"]
    assert (folder / "checkpoints" / "last.ckpt").is_file()
    assert list((folder / "media").glob("*_latest.png"))
