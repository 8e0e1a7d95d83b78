"""Trainings of a slice: the papers' sizes on data that needs no download, what came of them, and their profile."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from slotbench.bench.gpu import step_profile, training
from slotbench.bench.gpu.plan import Items, OutOfTimeError, Settings
from slotbench.bench.gpu.step_profile import StepProfile, kernel_times
from slotbench.yaml_files import read_yaml

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch) -> None:
    monkeypatch.chdir(ROOT)


class FakeFit:
    """Stands in for `fit`: a training that takes no time and comes to `outcome`."""

    def __init__(self) -> None:
        self.made: list[SimpleNamespace] = []
        self.outcome: dict = {}

    def __call__(self, settings, items, config, folder, steps, seconds, precision, mode) -> dict:
        made = SimpleNamespace(config=config, steps=steps, seconds=seconds, precision=precision, mode=mode)
        self.made.append(made)
        return {"steps": steps, "steps_per_second": 10.0, "memory_mb": None, **self.outcome}


@pytest.fixture
def fake_fit(monkeypatch) -> FakeFit:
    fake = FakeFit()
    monkeypatch.setattr(training, "fit", fake)
    return fake


@pytest.mark.parametrize("case", training.CASES, ids=lambda case: case.family)
def test_models_batches_and_frames_are_the_papers(case, tmp_path):
    paper, config = read_yaml(case.files[0]), training.case_config(case, tmp_path, quick=False)
    core = read_yaml(case.files[1])["model"]["init_args"]["core"] if len(case.files) > 1 else None
    assert config["model"]["init_args"]["core"] == (core or paper["model"]["init_args"]["core"])
    for part in ("encoder", "decoder", "optimizer"):
        assert config["model"]["init_args"][part] == paper["model"]["init_args"][part]
    theirs, ours = paper["data"]["init_args"], config["data"]["init_args"]
    assert ours["loader"]["batch_size"] == theirs["loader"]["batch_size"]
    assert ours["resolution"] == theirs["resolution"]
    assert ours["num_frames"] == theirs.get("num_frames", 1)
    assert ours["loader"]["batch_size"] * (training.STEPS + 50) <= ours["loader"]["train_size"]
    assert bool(case.stands_in) == (paper["data"]["class_path"] in ("MOVi", "CLEVR", "MovingMNIST"))
    small = training.case_config(case, tmp_path, quick=True)["data"]["init_args"]
    assert small["resolution"] < ours["resolution"]
    assert small["loader"]["batch_size"] == 1


def test_digits_that_stand_in_can_be_read(tmp_path):
    case = next(case for case in training.CASES if case.family == "ConvS5")
    given = training.case_config(case, tmp_path, quick=False)["data"]["init_args"]
    assert np.load(given["digits"]).shape == (100, 28, 28)


FAMILIES = ("SlotSSM", "PSB", "SAVi")


def test_every_family_is_trained_in_fp32_before_any_in_bf16(fake_fit, tmp_path):
    items = Items(tmp_path, "b1", 540)
    assert training.training(Settings(tmp_path), items, FAMILIES) == "6 runs"
    assert [fit.precision for fit in fake_fit.made] == ["fp32"] * 3 + ["bf16"] * 3
    assert {fit.steps for fit in fake_fit.made} == {training.STEPS}
    assert fake_fit.made[0].seconds + training.START / 2 == pytest.approx(90, abs=1)
    # all are there: nothing is left for a second time
    assert training.training(Settings(tmp_path), Items(tmp_path, "b1", 540), FAMILIES) == "6 runs"
    assert len(fake_fit.made) == 6


def test_every_family_is_trained_as_written_before_any_is_compiled(fake_fit, tmp_path):
    items = Items(tmp_path, "b4", 480)
    assert training.compiled(Settings(tmp_path), items, ("SAVi", "RIM")) == "6 runs"
    assert [fit.mode for fit in fake_fit.made] == ["off"] * 2 + ["graphs"] * 2 + ["on"] * 2
    assert {fit.precision for fit in fake_fit.made} == {"fp32"}
    assert list(items) == [
        *("SAVi, fp32", "RIM, fp32", "SAVi, fp32, compile graphs", "RIM, fp32, compile graphs"),
        *("SAVi, fp32, compile on", "RIM, fp32, compile on"),
    ]
    assert [round(fit.seconds + training.START / 2) for fit in fake_fit.made[:3]] == [48, 53, 120]
    assert {item["compile"] for item in items.values()} == {"off", "graphs", "on"}


def test_a_quick_slice_compiles_one_family(fake_fit, tmp_path):
    items = Items(tmp_path, "b4", 480)
    assert training.compiled(Settings(tmp_path, quick=True), items, ("SAVi", "RIM")) == "3 runs"
    assert {item["family"] for item in items.values()} == {"SAVi"}


def test_a_training_that_fails_is_an_item_and_the_next_is_begun(fake_fit, tmp_path):
    fake_fit.outcome = {"problem": "out of memory", "message": "CUDA out of memory"}
    items = Items(tmp_path, "b1", 540)
    assert training.training(Settings(tmp_path), items, FAMILIES) == "6 runs, 6 failed"
    assert items["PSB, bf16"]["message"] == "CUDA out of memory"


def test_trainings_for_which_there_is_no_time_are_left_for_another_run(fake_fit, tmp_path, monkeypatch):
    clock = itertools.count(0, 60)
    items = Items(tmp_path, "b1", 300)
    monkeypatch.setattr(items, "left", lambda: 300.0 - 60 - next(clock))
    with pytest.raises(OutOfTimeError, match="4 runs, 2 not begun"):
        training.training(Settings(tmp_path), items, FAMILIES)
    assert len(fake_fit.made) == 4
    assert min(fit.seconds for fit in fake_fit.made) == 10.0


@pytest.mark.parametrize(
    ("error", "said", "problem"),
    [
        ("OutOfMemoryError: CUDA out of memory. Tried to allocate", [], "out of memory"),
        (None, ["slotbench: no core named X;", "available: Y"], "error"),
        ("ValueError: no", ["Traceback", "ValueError: no"], "error"),
    ],
)
def test_what_a_training_came_to_is_read_from_its_record(error, said, problem):
    record = {"step": 7, "seconds_per_step": 0.25, "peak_device_memory": 5e6, "parameters": {"total": 12}}
    record |= {"error": error}
    fine = training.outcome(record, 0, said)
    assert (fine["steps"], fine["steps_per_second"], fine["memory_mb"], fine["parameters"]) == (7, 4.0, 5.0, 12)
    assert "problem" not in fine
    wrong = training.outcome(record, 1, said)
    assert wrong["problem"] == problem
    assert wrong["message"] == error or wrong["message"] == "slotbench: no core named X; available: Y"


def test_commands_whose_time_is_up_keep_what_they_have(tmp_path, monkeypatch):
    def stopped(command, seconds, log):
        assert command[command.index("--allow-import") + 1] == "slotbench.bench.gpu.step_profile.StepProfile"
        assert command[command.index("--compile") + 1] == "graphs"
        Path(f"{tmp_path / 'run'}.profile").write_text('{"seconds_per_step": 0.25}')
        log.write_text("said\n")

    monkeypatch.setattr(training, "run_command", stopped)
    settings, folder = Settings(tmp_path, "cpu"), tmp_path / "run"
    items, config = Items(tmp_path, "b1", 300.0), {"trainer": {"max_epochs": 1}}
    found = training.fit(settings, items, config, folder, 7, 20.0, "bf16", "graphs")
    assert (found["problem"], found["message"]) == ("out of time", "longer than 80 s with its start")
    late = training.fit(settings, Items(tmp_path, "b1", 50.0), config, folder, 7, 20.0, "bf16", "graphs")
    assert late["message"] == "longer than 50 s with its start", "no later than the slice"
    assert found["steps_per_second"] == 4.0
    trainer = read_yaml(tmp_path / "run.yaml")["trainer"]
    assert (trainer["precision"], trainer["max_steps"], trainer["max_time"]) == ("bf16-mixed", 7, {"seconds": 20})
    assert trainer["max_epochs"] == 1
    monkeypatch.setattr(training, "run_command", lambda command, seconds, log: None)
    with pytest.raises(OutOfTimeError, match="0 points"):
        training.cores(settings, Items(tmp_path, "c1"), ("SlotSSM",))


def test_kernels_that_overlap_count_once_and_the_longest_come_first():
    def event(name, ts, dur, cat="kernel"):
        return {"name": name, "cat": cat, "ts": ts, "dur": dur}

    events = [event("gemm", 0, 400), event("scan", 300, 200), event("copy", 1000, 100, "gpu_memcpy")]
    events += [event("gemm", 2000, 300), event("ProfilerStep#1", 0, 9000, "gpu_user_annotation"), {"name": "a thread"}]
    found = kernel_times(events, ("kernel", "gpu_memcpy", "gpu_memset"), 2)
    assert found["busy_seconds"] == pytest.approx(450e-6)
    assert [(one["name"], one["calls"]) for one in found["longest"]] == [("gemm", 1.0), ("scan", 0.5), ("copy", 0.5)]
    assert found["longest"][0]["seconds"] == pytest.approx(350e-6)
    assert found["longest"][0]["share"] == pytest.approx(0.7)
    assert found["kernels"] == 2.0


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_steps_are_timed_before_they_are_recorded(device, tmp_path, monkeypatch):
    clock = iter([0.0, 10.0, 13.0, 99.0])  # at the start, after the warm-up, the timed and the recorded steps
    monkeypatch.setattr(step_profile, "_now", lambda: next(clock))
    file, module = tmp_path / "profile.json", torch.nn.Linear(8, 8, device=device)
    profiled = StepProfile(str(file), warmup=2, timed=3, recorded=1)
    holder = SimpleNamespace(device=torch.device(device))
    profiled.on_train_start(None, holder)
    for step in range(7):
        assert file.exists() == (step >= 6)
        module(torch.ones(4, 8, device=device)).relu().sum().backward()
        profiled.on_train_batch_end(None, holder, None, None, step)
    found = json.loads(file.read_text())
    assert found["seconds_per_step"] == 1.0
    assert 0 < found["busy_seconds"] < 0.3
    assert sum(one["share"] for one in found["longest"]) <= 1 + 1e-9
    assert found["kernels"] >= len(found["longest"]) >= 3


def test_a_configuration_over_another_keeps_arguments_of_the_same_class_alone():
    below = {"core": {"class_path": "A", "init_args": {"x": 1, "y": 2}}, "z": 3}
    assert training.merged(below, {"core": {"init_args": {"x": 5}}}) == {
        "core": {"class_path": "A", "init_args": {"x": 5, "y": 2}},
        "z": 3,
    }
    assert training.merged(below, {"core": {"class_path": "B", "init_args": {"x": 5}}})["core"] == {
        "class_path": "B",
        "init_args": {"x": 5},
    }
    assert below["core"]["init_args"] == {"x": 1, "y": 2}
