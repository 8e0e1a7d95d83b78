"""A run of two processes is one run: one folder, written once, and one report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from slotbench.runs.folder import RunFolder

EXPERIMENT = Path(__file__).resolve().parents[2] / "experiments" / "bouncing_balls.yaml"

# data of 5 clips in the validation: 2 and 2, then 1 for the first process alone
SMALL = {
    "data.loader.batch_size": 2,
    "data.loader.val_batch_size": 2,
    "data.loader.val_size": 5,
    "data.num_frames": 4,
    "data.eval_frames": 7,
    "data.resolution": 16,
    "model.rollout.context": 4,
    "model.rollout.horizon": 3,
    "trainer.max_steps": 4,
    "trainer.val_check_interval": 2,
    "trainer.log_every_n_steps": 1,
}


def settings(**more: Any) -> list[str]:
    """What follows `slotbench`: a small run of two processes on the CPU."""
    together = {"trainer.accelerator": "cpu", "trainer.devices": 2, "trainer.strategy": "ddp"}
    values = [(f"--{key}", str(value)) for key, value in (SMALL | together | more).items()]
    return ["fit", "--config", str(EXPERIMENT), "--threads", "1", *(word for pair in values for word in pair)]


def run(folder: Path, command: list[str]) -> str:
    """Everything that a command prints; it succeeds."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_run_has_one_folder_written_once_and_one_report(tmp_path: Path) -> None:
    printed = run(tmp_path, [sys.executable, "-m", "slotbench", *settings()])
    (path,) = tmp_path.glob("runs/*/*")
    folder = RunFolder.open(path)
    assert (folder.state, folder.info["step"]) == ("finished", 4)
    assert {"config.yaml", "metrics.jsonl", "checkpoints"} <= {file.name for file in path.iterdir()}
    for name, count in (("val/loss", 2), ("train/loss", 4)):
        steps = [row["step"] for row in folder.history() if name in row]
        assert len(steps) == len({*steps}) == count, name
    assert {"rollouts_latest.png", "horizon_latest.png", "loss.png"} <= {file.name for file in folder.media.iterdir()}
    with Image.open(folder.media / "rollouts_latest.png") as picture:
        assert picture.size[0] > 100
    for words in ("finished after 4 steps", "media/rollouts_latest.png", "device  CPU x 2"):
        assert printed.count(words) == 1, words
    assert "sync_dist" not in printed
    assert "DistributedSampler" not in printed
    result = json.loads((path / "result.json").read_text())
    assert result["step"] == 4
    assert result["metrics"]["val/rollout_mse"] == folder.info["metrics"]["val/rollout_mse"]


@pytest.mark.slow
def test_torchrun_starts_the_processes_of_a_run_in_a_given_folder(tmp_path: Path) -> None:
    target = tmp_path / "here"
    command = [
        sys.executable,
        *["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "slotbench"],
    ]
    printed = run(tmp_path, [*command, *settings(), "--run_dir", str(target)])
    assert printed.count("finished after 4 steps") == 1
    assert RunFolder.open(target).state == "finished"
    assert (target / "result.json").is_file()
    again = run(tmp_path, [*command, *settings(), "--run_dir", str(target)])
    assert "finished after 4 steps" not in again  # it is done, and says so
    assert [*tmp_path.iterdir()] == [target]
