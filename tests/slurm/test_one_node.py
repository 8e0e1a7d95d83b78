"""A grid of real trainings on a real SLURM of one machine: arrays, a failure, a killed driver, and a preemption.

nox -s slurm        or        pytest -n 0 -m slow tests/slurm
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from one_node_slurm import OneNodeSlurm, why_not

pytest.importorskip("submitit")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not())]

PATIENCE = 240.0
PLUGIN = Path(__file__).with_name("slow_balls.py")

BASE = """
model:
  class_path: VideoPrediction
  init_args:
    encoder: {class_path: PatchEncoder, init_args: {dim: 8, patch_size: 4, hidden_dim: 8}}
    core: {class_path: SlotSSM, init_args: {num_slots: 2, dim: 8, num_layers: 1, num_heads: 2, encoder_layers: 1}}
    decoder: {class_path: TransformerDecoder, init_args: {dim: 8, num_layers: 1, num_heads: 2, patch_size: 4}}
    context: 2
    horizon: 2
data: {class_path: SlowBalls}
trainer: {max_steps: 40, val_check_interval: 20, check_val_every_n_epoch: null, num_sanity_val_steps: 0,
          accelerator: cpu, enable_progress_bar: false, log_every_n_steps: 1}
"""

GRID = """
base: base.yaml
list:
  - {label: slow, data.pause: 0.4}
  - {label: failing, data.needs: MISSING}
  - {label: quick, data.pause: 0.0}
seeds: [0, 1]
exclude:
  - {label: failing, seed_everything: 1}
  - {label: slow, seed_everything: 1}
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[OneNodeSlurm]:
    with OneNodeSlurm(nodes=2, cpus=2) as running:
        yield running


@pytest.fixture
def grid(tmp_path: Path, slurm: OneNodeSlurm) -> Iterator[Grid]:
    grid = Grid(tmp_path, slurm)
    yield grid
    if grid.driver is not None:
        grid.driver.kill()
        grid.driver.wait()


class Grid:
    """The grid's command lines, and what is to be seen of it."""

    def __init__(self, folder: Path, slurm: OneNodeSlurm) -> None:
        self.folder, self.slurm = folder, slurm
        self.driver: subprocess.Popen[str] | None = None
        self.points = folder / "runs" / "grid"
        self.missing = folder / "missing"
        (folder / "base.yaml").write_text(BASE)
        (folder / "grid.yaml").write_text(GRID.replace("MISSING", str(self.missing)))

    def start(self, *more: str) -> None:
        command = [sys.executable, "-m", "slotbench", "grid", "run", "grid.yaml", "--plugin", str(PLUGIN), *more]
        options = ["--engine", "slurm", "--slurm.ask_seconds", "1", "--slurm.time", "20", "--jobs", "3"]
        with open(self.folder / "run.txt", "ab") as output:
            self.driver = subprocess.Popen(
                [*command, *options],
                cwd=self.folder,
                env=self.slurm.environment,
                stdout=output,
                stderr=output,
                text=True,
                start_new_session=True,
            )

    def wait(self) -> int:
        assert self.driver is not None
        return self.driver.wait(PATIENCE)

    def point(self, label: str, seed: int = 0) -> Path:
        (path,) = self.points.glob(f"*{label},seed={seed}-*")
        return path

    def queue(self) -> list[list[str]]:
        """Every job there has been: id and state."""
        command = ["squeue", "--states=all", "--array", "--noheader", "--format=%i %T"]
        answer = subprocess.run(command, env=self.slurm.environment, capture_output=True, text=True, check=True)
        return [line.split() for line in answer.stdout.splitlines()]

    def until(self, condition: Callable[[], object]) -> None:
        assert self.driver is not None
        end = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > end or self.driver.poll() is not None:
                said = [file.read_text()[-3000:] for file in self.folder.glob("*.txt")]
                pytest.fail("\n".join([f"driver: {self.driver.returncode}, queue: {self.queue()}", *said]))
            time.sleep(0.2)


def read(path: Path) -> dict:
    return dict(json.loads(path.read_text()))


def steps(run: Path) -> int:
    path = run / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return max((row["step"] for row in rows), default=0)


def test_a_grid_survives_failure_preemption_and_the_death_of_its_driver(grid: Grid) -> None:
    grid.start()
    grid.until(lambda: list(grid.points.glob("*slow,seed=0-*/metrics.jsonl")))
    slow = grid.point("slow")
    grid.until(lambda: steps(slow) >= 5)

    # the driver is gone, and the next one finds the jobs
    assert grid.driver is not None
    os.killpg(grid.driver.pid, signal.SIGKILL)
    grid.driver.wait()
    grid.start()

    # somebody with more rights wants the node
    where = [attempt for line in (slow / "attempts.jsonl").read_text().splitlines() if (attempt := json.loads(line))]
    job = where[0]["where"].split()[2]
    subprocess.run(["scancel", "--signal=USR2", job], env=grid.slurm.environment, check=True)
    assert grid.wait() == 1, (grid.folder / "run.txt").read_text()

    assert not (grid.point("failing") / "result.json").exists()
    results = {path: path.stat().st_mtime_ns for path in grid.points.glob("*/result.json")}
    assert len(results) == 3
    assert len(grid.queue()) == 4, "each point was submitted once"
    (resumed,) = read(slow / "run.json")["resumed"]
    assert resumed["after"] == "interrupted"
    assert resumed["step"] >= 5
    # the same numbers as if nothing had happened
    metric = "val/rollout_mse"
    undisturbed = read(grid.point("quick") / "result.json")
    assert read(slow / "result.json")["step"] == 40
    assert read(slow / "result.json")["metrics"][metric] == undisturbed["metrics"][metric]
    assert "as the test wants it" in (grid.folder / "run.txt").read_text()

    # what has failed is run again, and nothing else
    grid.missing.touch()
    grid.start("--retry-failed")
    assert grid.wait() == 0, (grid.folder / "run.txt").read_text()
    assert len(grid.queue()) == 5
    assert read(grid.point("failing") / "result.json")["step"] == 40
    assert {path: path.stat().st_mtime_ns for path in results} == results
