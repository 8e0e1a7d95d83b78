"""Trainings of a GPU run: the papers' sizes on data that needs no download, and how the experiment is chosen."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from slotbench.bench.gpu import training
from slotbench.bench.gpu.plan import Items, OutOfTimeError, Settings
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

    def __call__(self, settings, config, folder, steps, seconds, *, precision="fp32", to_its_end=False) -> dict:
        self.made.append(SimpleNamespace(config=config, steps=steps, seconds=seconds, precision=precision))
        if to_its_end:
            folder.mkdir(parents=True)
            headline = {"metric": "val/iou", "label": "IoU", "baselines": {"copying": 0.5}, "oracles": {}}
            result = {"headlines": [headline], "metrics": {"val/iou": 0.75}}
            (folder / "result.json").write_text(json.dumps(result))
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


def test_every_family_is_trained_in_fp32_before_any_in_bf16(fake_fit, tmp_path):
    items = Items(tmp_path, "training", 600)
    assert training.training(Settings(tmp_path), items) == "10 runs"
    assert [fit.precision for fit in fake_fit.made] == ["fp32"] * 5 + ["bf16"] * 5
    assert {fit.steps for fit in fake_fit.made} == {training.STEPS}
    assert sum(fit.seconds + training.START / 2 for fit in fake_fit.made[:1]) == pytest.approx(60, abs=1)
    # all are there: nothing is left for a second time
    assert training.training(Settings(tmp_path), Items(tmp_path, "training", 600)) == "10 runs"
    assert len(fake_fit.made) == 10


def test_a_training_that_fails_is_an_item_and_the_next_is_begun(fake_fit, tmp_path):
    fake_fit.outcome = {"problem": "out of memory", "message": "CUDA out of memory"}
    items = Items(tmp_path, "training", 600)
    assert training.training(Settings(tmp_path), items) == "10 runs, 10 failed"
    assert items["PSB, bf16"]["message"] == "CUDA out of memory"


def test_trainings_for_which_there_is_no_time_are_left_for_another_run(fake_fit, tmp_path, monkeypatch):
    clock = itertools.count(0, 60)
    items = Items(tmp_path, "training", 480)
    monkeypatch.setattr(items, "left", lambda: 480.0 - 60 - next(clock))
    with pytest.raises(OutOfTimeError, match="7 runs, 3 not begun"):
        training.training(Settings(tmp_path), items)
    assert len(fake_fit.made) == 7
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
    monkeypatch.setattr(training, "run_command", lambda command, seconds, log: log.touch())
    settings, folder = Settings(tmp_path, "cpu"), tmp_path / "run"
    found = training.fit(settings, {"trainer": {"max_epochs": 1}}, folder, 7, 20.0, to_its_end=True)
    assert (found["problem"], found["message"]) == ("out of time", "longer than 80 s with its start")
    trainer = {"accelerator": "cpu", "devices": 1, "precision": "32-true", "max_steps": 7, "max_time": {"seconds": 20}}
    assert read_yaml(tmp_path / "run.yaml") == {"trainer": {"max_epochs": 1, **trainer}}
    with pytest.raises(OutOfTimeError, match="0 points"):
        training.cores(settings, Items(tmp_path, "cores"))


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


def chosen(out: Path, fake_fit, seconds: float, trained: float | None, probed: float | None) -> dict:
    out.mkdir(exist_ok=True)
    if trained is not None:
        Items(out, "training")["SlotSSM, fp32"] = {"steps_per_second": trained}
    fake_fit.outcome = {"problem": "error", "message": "no"} if probed is None else {"steps_per_second": probed}
    items = Items(out, "experiment", seconds)
    training.experiment(Settings(out), items)
    return items["choice"]


def test_the_experiment_is_chosen_by_the_measured_speed(fake_fit, tmp_path):
    own, whole, laptop = training.PLANS
    for index, (trained, probed, plan) in enumerate(
        [(100.0, 1.0, own), (5.0, 20.0, whole), (None, 20.0, whole), (5.0, 0.5, laptop), (None, None, laptop)]
    ):
        choice = chosen(tmp_path / str(index), fake_fit, 660.0, trained, probed)
        assert choice["plan"] == plan
        assert choice["steps"] >= training.PLANS[plan]
    assert training.steps_that_fit(660.0, 10.0) == 4800
    assert training.steps_that_fit(660.0, None) == 0


def test_the_experiment_is_the_papers_in_size_and_has_its_scores(fake_fit, tmp_path):
    assert chosen(tmp_path, fake_fit, 660.0, None, 10.0)["plan"] == list(training.PLANS)[1]
    fit = fake_fit.made[-1]
    paper = read_yaml(training.PAPER)
    for part in ("encoder", "core", "decoder"):
        assert fit.config["model"]["init_args"][part] == paper["model"]["init_args"][part]
    assert fit.config["data"]["init_args"] == {**paper["data"]["init_args"], "patches_per_side": 1}
    assert fit.config["model"]["init_args"]["dense_targets"] is True
    assert fit.config["trainer"]["val_check_interval"] * 4 >= fit.steps
    items = Items(tmp_path, "experiment")
    assert items["run"]["metrics"] == {"val/iou": 0.75}
    assert items["run"]["headlines"][0]["baselines"] == {"copying": 0.5}
    # a second time the choice stands, and nothing is probed
    before = len(fake_fit.made)
    (tmp_path / "experiment" / "run" / "result.json").unlink()
    (tmp_path / "experiment" / "run").rmdir()
    training.experiment(Settings(tmp_path), Items(tmp_path, "experiment", 60.0))
    assert len(fake_fit.made) == before + 1
    assert fake_fit.made[-1].steps == fit.steps
