"""Two processes stop after the same step when one of them gets a signal, and go on to the same end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml
from tiny_configs import COMPONENTS

from slotbench.runs.folder import RunFolder


def start(folder: Path, run: str, pause: float = 0.0, nan_at: str = "") -> subprocess.Popen[bytes]:
    arguments = ["--config", "c.yaml", "--run_dir", run, "--plugin", str(COMPONENTS)]
    environment = {**os.environ, "PAUSE": str(pause), "NAN_AT": nan_at, "SLOTBENCH_RUN_DIR": "", "OMP_NUM_THREADS": "1"}
    with open(folder / f"{run}.txt", "ab") as output:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
                *("-m", "slotbench", "fit", *arguments),
            ],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def children(process: subprocess.Popen[bytes]) -> list[int]:
    """Processes that a process has started, by their age."""
    task = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return sorted(map(int, task.read_text().split()))


def write_config(folder: Path) -> None:
    """Sixty steps on two processes, a validation every ten."""
    config = {
        "model": {"class_path": "DrawingTask"},
        "data": {"class_path": "NoiseData", "init_args": {"loader": {"batch_size": 1}}},
        "trainer": {
            "accelerator": "cpu",
            "devices": 2,
            "strategy": "ddp",
            "enable_progress_bar": False,
            "max_steps": 60,
            "max_epochs": -1,
            "val_check_interval": 10,
            "check_val_every_n_epoch": None,
            "log_every_n_steps": 1,
        },
    }
    (folder / "c.yaml").write_text(yaml.safe_dump(config))


def rows(folder: Path) -> list[dict]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{key: value for key, value in json.loads(line).items() if key != "seconds"} for line in lines]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc, to find the processes of torchrun")
def test_a_signal_to_one_of_two_processes_stops_both_and_they_go_on(tmp_path: Path) -> None:
    write_config(tmp_path)
    whole = start(tmp_path, "whole")
    assert whole.wait(timeout=300) == 0, (tmp_path / "whole.txt").read_text()

    stopped = start(tmp_path, "stopped", pause=0.2)
    folder = RunFolder(tmp_path / "stopped")
    try:
        while folder.last_checkpoint() is None:
            assert stopped.poll() is None, (tmp_path / "stopped.txt").read_text()
            time.sleep(0.05)
        os.kill(children(stopped)[-1], signal.SIGUSR1)
        assert stopped.wait(timeout=120) != 0
    finally:
        stopped.terminate()
        stopped.wait()
    assert folder.state == "interrupted"
    saved = torch.load(folder.checkpoints / "last.ckpt", weights_only=True)
    assert 10 < saved["global_step"] == folder.info["step"] < 60
    assert len(saved["callbacks"]["RandomState"]["states"]) == 2

    again = start(tmp_path, "stopped")
    assert again.wait(timeout=300) == 0, (tmp_path / "stopped.txt").read_text()
    ours, theirs = (
        torch.load(tmp_path / name / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
        for name in ("stopped", "whole")
    )
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert rows(tmp_path / "stopped") == rows(tmp_path / "whole")


@pytest.mark.slow
def test_a_loss_that_is_not_a_number_in_one_of_two_processes_ends_both(tmp_path: Path) -> None:
    write_config(tmp_path)
    process = start(tmp_path, "diverged", nan_at="12:1")
    assert process.wait(timeout=300) != 0
    said = (tmp_path / "diverged.txt").read_text()
    assert said.count("the training has diverged") == 1
    folder = RunFolder(tmp_path / "diverged")
    assert (folder.state, folder.info["diverged_at"]) == ("diverged", 12)
    assert folder.has_diverged
    assert torch.load(folder.checkpoints / "last.ckpt", weights_only=True)["global_step"] == 10
