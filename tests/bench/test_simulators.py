"""What eight workers feed, beside what a GPU can take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from torch.utils._python_dispatch import TorchDispatchMode

from slotbench import registry
from slotbench.bench.step_flops import experiment_flops
from slotbench.bench.subjects.simulators import EXPERIMENTS, Experiment, feeding, simulators
from slotbench.cli import run
from slotbench.config.command_line import resolve
from slotbench.data.base import SimulatedData
from slotbench.data.movi_like.kept import KeptVideos
from slotbench.errors import FileError
from slotbench.yaml_files import read_yaml

LISTED = [one for several in EXPERIMENTS.values() for one in several]
NOT_RUN = {"detach", "empty", "empty_like", "_unsafe_view"}


class Launches(TorchDispatchMode):
    """Counts operations, views aside."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not func.is_view and func.overloadpacket.__name__ not in NOT_RUN
        return func(*args, **(kwargs or {}))


def test_a_gpu_is_held_up_by_the_operations_of_large_steps():
    # 0.4 s for 20 clips of 54 GFLOP at 27 TFLOP/s is 25 steps/s; a worker makes 1 / 0.1 batches
    found = feeding(0.1, batch=20, gflop=54.0, launches=100)
    assert found == {
        "8 workers, steps/s": pytest.approx(80.0),
        "GPU at most": pytest.approx(25.0),
        "ratio": pytest.approx(3.2),
        "twice": "yes",
    }
    # a GPU that keeps up twice as much takes twice as many
    assert feeding(0.1, 20, 54.0, 100, tflops=54.0)["ratio"] == pytest.approx(1.6)


def test_a_gpu_is_held_up_by_the_launches_of_small_steps():
    # 1,000 launches of 2 microseconds
    found = feeding(0.01, batch=1, gflop=0.001, launches=1000)
    assert found["GPU at most"] == pytest.approx(500.0)
    assert found["ratio"] == pytest.approx(1.6)
    assert found["twice"] == "no"
    assert feeding(0.008, 1, 0.001, 1000)["twice"] == "yes"


def test_every_simulator_is_measured():
    def data_of(one: Experiment) -> str:
        return one.stand_in or read_yaml(one.file)["data"]["class_path"]

    known = {name: registry.load("datasets", name) for name in registry.names("datasets")}
    embedded = {
        n for n, c in known.items() if issubclass(c, SimulatedData | KeptVideos) and c.__module__ < "slotbench_"
    }
    assert {data_of(one) for one in LISTED} == embedded
    assert len({one.file for one in LISTED}) == len(LISTED)


@pytest.mark.slow
def test_operations_are_those_of_the_experiment():
    (one,) = [one for one in LISTED if one.file == "experiments/cater_like_sight.yaml"]
    settings = ["--data.loader.batch_size", "1"]
    assert 1e-9 * experiment_flops(one.file, settings).products == pytest.approx(one.gflop, rel=0.01)
    built = resolve(["--config", one.file, *settings]).instantiate()
    data = built["data"]
    batch = data.on_after_batch_transfer(next(iter(data.train_dataloader())), 0)
    built["model"].training_loss(batch).backward()
    with Launches() as counter:
        built["model"].training_loss(batch).backward()
    assert counter.count == pytest.approx(one.launches, rel=0.05)


def test_the_command_writes_what_is_fed(tmp_path, capsys):
    command = ["bench", "simulators", "--quick", "--only", "bouncing", "--tflops", "54", "--out", str(tmp_path)]
    assert run(command) == 0
    (contest,) = json.loads((tmp_path / "simulators.json").read_text())["contests"]
    way, shared = contest["ways"]
    assert contest["case"] == "bouncing_balls"
    assert way["derived"]["8 workers, steps/s"] == pytest.approx(8 / (1e-3 * way["ms"]["median"]))
    (one,) = [one for one in LISTED if one.file == "experiments/bouncing_balls.yaml"]
    assert way["derived"] == feeding(1e-3 * way["ms"]["median"], 2, one.gflop, one.launches, 54.0)
    page = (tmp_path / "simulators.md").read_text()
    assert "| clips/s | 8 workers, steps/s | GPU at most | ratio | twice |" in page
    assert shared["way"] == "made, in shared memory"
    assert "bouncing_balls" in capsys.readouterr().out


def test_a_batch_lies_in_shared_memory_and_the_next_one_is_another():
    (contest,) = [one for one in simulators(True) if one.label == "bouncing_balls"]
    make, share = contest.ways().values()
    first, second = make(), share()
    assert not first.frames.is_shared()
    assert second.frames.is_shared()
    assert first.index.tolist() == [0, 1]
    assert second.index.tolist() == [2, 3]


def test_without_the_experiments_the_missing_file_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileError, match=r"experiments/paper/blinking_balls_earliest_t6_p4\.yaml"):
        simulators(False)
    (tmp_path / "experiments").mkdir()
    for one in LISTED[-2:]:
        Path(one.file).write_text("data: {class_path: BouncingBalls}\n")
    with pytest.raises(FileError, match=r"\.yaml is no experiment: expected data with loader\.batch_size"):
        simulators(True)
