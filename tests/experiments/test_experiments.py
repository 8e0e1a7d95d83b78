"""Every shipped experiment trains, at tiny size, through the command that its header names."""

import json
from pathlib import Path

import pytest
import yaml
from tiny_experiments import tiny_overrides

from slotbench.cli import run

ROOT = Path(__file__).parents[2]
EXPERIMENTS = sorted(
    path for path in (ROOT / "experiments").rglob("*.yaml") if not {"matched", "grids"} & set(path.parts)
)


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda path: str(path.relative_to(ROOT / "experiments")))
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
    headline = record["headlines"][0]["metric"]
    assert any(headline in row for row in scores)
    assert record["headlines"][0]["baselines"]
    assert (folder / "checkpoints" / "last.ckpt").is_file()
    assert list((folder / "media").glob("*_latest.png"))
