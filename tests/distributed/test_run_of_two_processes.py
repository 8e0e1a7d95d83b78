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
    "model.context": 4,
    "model.horizon": 3,
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


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, str]:
    """The run and everything that was printed."""
    folder = tmp_path_factory.mktemp("run")
    printed = run(folder, [sys.executable, "-m", "slotbench", *settings()])
    (path,) = folder.glob("runs/*/*/run.json")
    return RunFolder.open(path.parent), printed


def test_the_run_has_one_folder_and_it_is_finished(finished: tuple[RunFolder, str]) -> None:
    folder, _ = finished
    assert folder.state == "finished"
    assert folder.info["step"] == 4
    assert len([*folder.path.parent.iterdir()]) == 1
    assert {"config.yaml", "run.json", "metrics.jsonl", "checkpoints", "media"} <= {
        p.name for p in folder.path.iterdir()
    }


def test_no_row_of_the_metrics_is_there_twice(finished: tuple[RunFolder, str]) -> None:
    folder, _ = finished
    rows = folder.history()
    validations = [row["step"] for row in rows if "val/loss" in row]
    trainings = [row["step"] for row in rows if "train/loss" in row]
    assert len(validations) == len({*validations}) == 2
    assert len(trainings) == len({*trainings}) == 4


def test_pictures_are_drawn_and_readable(finished: tuple[RunFolder, str]) -> None:
    folder, _ = finished
    assert {"rollouts_latest.png", "horizon_latest.png", "loss.png"} <= {path.name for path in folder.media.iterdir()}
    assert not [path.name for path in folder.media.iterdir() if path.name.endswith(".partial")]
    with Image.open(folder.media / "rollouts_latest.png") as picture:
        assert picture.size[0] > 100


def test_the_end_is_reported_once_and_nobody_is_warned(finished: tuple[RunFolder, str]) -> None:
    _, printed = finished
    assert printed.count("finished after 4 steps") == 1
    assert printed.count("media/rollouts_latest.png") == 1
    assert printed.count("device  CPU x 2") == 1
    assert "sync_dist" not in printed
    assert "DistributedSampler" not in printed


def test_the_result_says_what_the_record_says(finished: tuple[RunFolder, str]) -> None:
    folder, _ = finished
    result = json.loads((folder.path / "result.json").read_text())
    assert result["step"] == 4
    assert result["metrics"]["val/rollout_mse"] == folder.info["metrics"]["val/rollout_mse"]


@pytest.mark.slow
def test_torchrun_starts_the_processes_of_a_run_in_a_given_folder(tmp_path: Path) -> None:
    target = tmp_path / "here"
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node",
        "2",
        "-m",
        "slotbench",
    ]
    printed = run(tmp_path, [*command, *settings(), "--run_dir", str(target)])
    assert printed.count("finished after 4 steps") == 1
    assert RunFolder.open(target).state == "finished"
    assert (target / "result.json").is_file()
    again = run(tmp_path, [*command, *settings(), "--run_dir", str(target)])
    assert "finished after 4 steps" not in again  # it is done, and says so
    assert [*tmp_path.iterdir()] == [target]
