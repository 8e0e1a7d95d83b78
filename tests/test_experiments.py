"""Every shipped experiment trains, at tiny size, through the command that its header names."""

import json
from pathlib import Path

import pytest

from slotbench.cli import run

ROOT = Path(__file__).parents[1]
EXPERIMENTS = sorted(path for path in (ROOT / "experiments").rglob("*.yaml") if "matched" not in path.parts)
TINY = {
    "data": {"batch_size": 1, "val_batch_size": 1, "val_size": 1, "train_size": 4, "num_workers": 0},
    "model.encoder": {"dim": 8},
    "model.core": {"dim": 8, "num_slots": 2, "num_layers": 1, "encoder_layers": 1, "state_dim": 2},
    "model.decoder": {"num_layers": 1},
    "trainer": {"max_steps": 2, "val_check_interval": 2, "accelerator": "cpu"},
}
OVERRIDES = [f"--{part}.{name}={value}" for part, values in TINY.items() for name, value in values.items()]


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda path: str(path.relative_to(ROOT / "experiments")))
def test_experiment_trains_two_steps(experiment, tmp_path):
    assert run(["fit", "--config", str(experiment), *OVERRIDES, "--runs_dir", str(tmp_path)]) == 0
    (folder,) = (tmp_path / experiment.stem).iterdir()
    record = json.loads((folder / "run.json").read_text())
    assert record["state"] == "finished"
    assert record["step"] == 2
    scores = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    headline = record["headlines"][0]["metric"]
    assert any(headline in row for row in scores)
    assert record["headlines"][0]["floors"]
    assert (folder / "checkpoints" / "last.ckpt").is_file()
    assert list((folder / "media").glob("*_latest.png"))
