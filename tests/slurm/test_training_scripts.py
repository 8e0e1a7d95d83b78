"""The scripts of docs/cluster.md: one training in two processes on two pretended nodes, preempted once."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from one_node_slurm import OneNodeSlurm, why_not
from slow_grid import BASE, PLUGIN

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not())]

SCRIPTS = Path(__file__).parents[2] / "docs" / "scripts"
PATIENCE = 300.0


@pytest.fixture(scope="module")
def slurm() -> Iterator[OneNodeSlurm]:
    with OneNodeSlurm(nodes=2, cpus=2) as running:
        yield running


class Training:
    """A script of the docs on two nodes of this machine, which have no GPUs."""

    def __init__(self, folder: Path, slurm: OneNodeSlurm, script: str) -> None:
        self.folder, self.run, self.slurm = folder, folder / "run", slurm
        (folder / "base.yaml").write_text(BASE)
        lines = (SCRIPTS / script).read_text().splitlines(keepends=True)
        (folder / script).write_text("".join(line for line in lines if "--gpus-per-node" not in line))
        python = f"PATH={Path(sys.executable).parent}:{slurm.environment['PATH']}"
        here = f"ALL,{python},MASTER_ADDR=127.0.0.1,PROCESSES_PER_NODE=1,OMP_NUM_THREADS=1"
        options = ["--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=1", f"--export={here}", "--parsable"]
        settings = ["--plugin", str(PLUGIN), "--data.pause", "0.4"]
        command = ["sbatch", *options, script, "base.yaml", str(self.run), *settings]
        self.job = self.call(*command).strip()

    def call(self, *command: str) -> str:
        done = subprocess.run(
            command, env=self.slurm.environment, cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def state(self) -> str:
        return self.call("squeue", "--states=all", "--noheader", "--format=%T", f"--jobs={self.job}").strip()

    def steps(self) -> int:
        path = self.run / "metrics.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return max((row["step"] for row in rows), default=0)

    def record(self) -> dict:
        return dict(json.loads((self.run / "run.json").read_text()))

    def until(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > end or self.state() in ("FAILED", "CANCELLED", "TIMEOUT"):
                said = [file.read_text()[-6000:] for file in self.folder.glob("slotbench-*.log")]
                pytest.fail("\n".join([f"job {self.job}: {self.state()}, step {self.steps()}", *said]))
            time.sleep(0.3)


@pytest.mark.parametrize(
    ("script", "warning"),
    [
        ("train_srun.sbatch", ["scancel", "--signal=USR2"]),
        ("train_torchrun.sbatch", ["scancel", "--batch", "--signal=USR2"]),
    ],
)
def test_two_processes_are_preempted_once_and_finish(
    tmp_path: Path, slurm: OneNodeSlurm, script: str, warning: list[str]
) -> None:
    training = Training(tmp_path, slurm, script)
    training.until(lambda: training.steps() >= 3)
    (log,) = tmp_path.glob("slotbench-*.log")
    assert "CPU x 2" in log.read_text()
    training.call(*warning, training.job)
    training.until(lambda: training.state() == "COMPLETED")
    (resumed,) = training.record()["resumed"]
    assert resumed["after"] == "interrupted"
    assert resumed["step"] >= 3
    assert json.loads((training.run / "result.json").read_text())["step"] == 40
    steps = [
        row["step"] for line in (training.run / "metrics.jsonl").read_text().splitlines() if (row := json.loads(line))
    ]
    assert len([step for step in steps if step == 39]) >= 1
    assert not list(training.run.glob("checkpoints/hpc_*"))


def test_a_cancelled_training_saves_and_is_not_queued_again(tmp_path: Path, slurm: OneNodeSlurm) -> None:
    training = Training(tmp_path, slurm, "train_srun.sbatch")
    training.until(lambda: training.steps() >= 3)
    training.call("scancel", training.job)
    end = time.monotonic() + PATIENCE
    while training.record()["state"] != "interrupted" or training.state() != "CANCELLED":
        assert time.monotonic() < end, (training.state(), training.record()["state"])
        time.sleep(0.3)
    assert training.record()["step"] >= 3
    assert "queued again" not in "".join(file.read_text() for file in tmp_path.glob("slotbench-*.log"))
