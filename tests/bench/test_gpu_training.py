"""Trainings of a GPU run: the papers' sizes on data that needs no download, and how the experiment is chosen."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from slotbench.bench.gpu import experiment, fits, training
from slotbench.bench.gpu.coloured_balls import ColouredBalls
from slotbench.bench.gpu.plan import Settings
from slotbench.bench.gpu.records import Items, OutOfTimeError, write_result
from slotbench.data.base import LoaderOptions
from slotbench.yaml_files import read_yaml

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch) -> None:
    monkeypatch.chdir(ROOT)


class FakeFit:
    """A training that takes no time and comes to what is said here."""

    made: list[FakeFit] = []  # noqa: RUF012
    outcome: dict = {}  # noqa: RUF012
    seconds_taken = 0.0

    def __init__(self, config, folder, steps, seconds, precision="fp32", validate=False, resumes=False):
        self.config, self.folder, self.steps, self.seconds = config, folder, steps, seconds
        self.precision, self.validate = precision, validate
        FakeFit.made.append(self)

    def run(self, settings: Settings) -> dict:
        if self.validate:
            self.folder.mkdir(parents=True)
            headline = {"metric": "val/iou", "label": "IoU", "baselines": {"copying": 0.5}, "oracles": {}}
            result = {"headlines": [headline], "metrics": {"val/iou": 0.75}}
            (self.folder / "result.json").write_text(json.dumps(result))
        return {"steps": self.steps, "steps_per_second": 10.0, "memory_mb": None, **FakeFit.outcome}


@pytest.fixture
def fake_fit(monkeypatch) -> type[FakeFit]:
    monkeypatch.setattr(FakeFit, "made", [])
    monkeypatch.setattr(FakeFit, "outcome", {})
    monkeypatch.setattr(training, "Fit", FakeFit)
    monkeypatch.setattr(experiment, "Fit", FakeFit)
    return FakeFit


@pytest.mark.parametrize("case", training.CASES, ids=lambda case: case.family)
def test_models_batches_and_frames_are_the_papers(case, tmp_path):
    paper, config = read_yaml(case.files[0]), training.configuration(case, tmp_path, quick=False)
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
    small = training.configuration(case, tmp_path, quick=True)["data"]["init_args"]
    assert small["resolution"] < ours["resolution"]
    assert small["loader"]["batch_size"] == 1


def test_coloured_balls_show_every_ball_in_its_colour():
    data = ColouredBalls(num_balls=3, num_frames=2, resolution=24, loader=LoaderOptions(batch_size=4, train_size=8))
    assert (data.spec.input.channels, data.spec.target.channels) == (3, 3)
    batch = data.dataset("train").clips([0, 1, 2, 3])
    assert batch.frames.shape == (4, 2, 3, 24, 24)
    assert batch.frames.dtype == torch.uint8
    pixels, owners = batch.frames.movedim(2, -1).reshape(-1, 3), batch.masks.reshape(-1).long()
    colours = [pixels[owners == owner].unique(dim=0) for owner in range(4)]
    assert [len(colour) for colour in colours] == [1, 1, 1, 1]
    assert len(torch.cat(colours).unique(dim=0)) == 4


def test_digits_that_stand_in_can_be_read(tmp_path):
    case = next(case for case in training.CASES if case.family == "ConvS5")
    given = training.configuration(case, tmp_path, quick=False)["data"]["init_args"]
    assert np.load(given["digits"]).shape == (100, 28, 28)


def test_every_family_is_trained_in_fp32_before_any_in_bf16(fake_fit, tmp_path):
    items = Items(tmp_path, "training")
    assert training.run(Settings(tmp_path, seconds=600), items) == "10 runs"
    assert [fit.precision for fit in fake_fit.made] == ["fp32"] * 5 + ["bf16"] * 5
    assert {fit.steps for fit in fake_fit.made} == {training.STEPS}
    assert sum(fit.seconds + fits.START / 2 for fit in fake_fit.made[:1]) == pytest.approx(60, abs=1)
    # all are there: nothing is left for a second time
    assert training.run(Settings(tmp_path, seconds=600), Items(tmp_path, "training")) == "10 runs"
    assert len(fake_fit.made) == 10


def test_a_training_that_fails_is_an_item_and_the_next_is_begun(fake_fit, tmp_path):
    fake_fit.outcome = {"problem": "out of memory", "message": "CUDA out of memory"}
    items = Items(tmp_path, "training")
    assert training.run(Settings(tmp_path, seconds=600), items) == "10 runs, 10 failed"
    assert items["PSB, bf16"]["message"] == "CUDA out of memory"


def test_trainings_for_which_there_is_no_time_are_left_for_another_run(fake_fit, tmp_path, monkeypatch):
    clock = itertools.count(0, 60)
    monkeypatch.setattr(training.time, "monotonic", lambda: float(next(clock)))
    items = Items(tmp_path, "training")
    with pytest.raises(OutOfTimeError, match="7 runs, 3 not begun"):
        training.run(Settings(tmp_path, seconds=480), items)
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
def test_what_a_training_came_to_is_read_from_its_record(tmp_path, error, said, problem):
    folder = tmp_path / "run"
    folder.mkdir()
    record = {"step": 7, "seconds_per_step": 0.25, "peak_device_memory": 5e6, "parameters": {"total": 12}}
    (folder / "run.json").write_text(json.dumps({**record, "error": error}))
    fit = fits.Fit({}, folder, 10, 5.0)
    fine = fit._outcome(0, False, said)
    assert (fine["steps"], fine["steps_per_second"], fine["memory_mb"], fine["parameters"]) == (7, 4.0, 5.0, 12)
    assert "problem" not in fine
    wrong = fit._outcome(1, False, said)
    assert wrong["problem"] == problem
    assert wrong["message"] == error or wrong["message"] == "slotbench: no core named X; available: Y"
    assert fit._outcome(0, True, said)["problem"] == "out of time"


def test_a_configuration_over_another_keeps_arguments_of_the_same_class_alone():
    below = {"core": {"class_path": "A", "init_args": {"x": 1, "y": 2}}, "z": 3}
    assert fits.merged(below, {"core": {"init_args": {"x": 5}}}) == {
        "core": {"class_path": "A", "init_args": {"x": 5, "y": 2}},
        "z": 3,
    }
    assert fits.merged(below, {"core": {"class_path": "B", "init_args": {"x": 5}}})["core"] == {
        "class_path": "B",
        "init_args": {"x": 5},
    }
    assert below["core"]["init_args"] == {"x": 1, "y": 2}


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0.4, "00:00:00:01"), (75.2, "00:00:01:15"), (2 * 86400 + 3661, "02:01:01:01")]
)
def test_durations_are_as_the_trainer_takes_them(seconds, expected):
    assert fits._clock_time(seconds) == expected


def chosen(out: Path, fake_fit, seconds: float, trained: float | None, probed: float | None) -> dict:
    out.mkdir(exist_ok=True)
    if trained is not None:
        items = {"SlotSSM, fp32": {"steps_per_second": trained}}
        write_result(out, "training", {"state": "done", "message": "", "items": items})
    fake_fit.outcome = {"problem": "error", "message": "no"} if probed is None else {"steps_per_second": probed}
    items = Items(out, "experiment")
    experiment.run(Settings(out, seconds=seconds), items)
    return items["choice"]


def test_the_experiment_is_chosen_by_the_measured_speed(fake_fit, tmp_path):
    own, whole, laptop = experiment.PLANS
    for index, (trained, probed, plan) in enumerate(
        [(100.0, 1.0, own), (5.0, 20.0, whole), (None, 20.0, whole), (5.0, 0.5, laptop), (None, None, laptop)]
    ):
        choice = chosen(tmp_path / str(index), fake_fit, 660.0, trained, probed)
        assert choice["plan"] == plan
        assert choice["steps"] >= experiment.PLANS[plan]
    assert experiment.steps_that_fit(660.0, 10.0) == 4800
    assert experiment.steps_that_fit(660.0, None) == 0


def test_the_experiment_is_the_papers_in_size_and_has_its_scores(fake_fit, tmp_path):
    assert chosen(tmp_path, fake_fit, 660.0, None, 10.0)["plan"] == list(experiment.PLANS)[1]
    fit = fake_fit.made[-1]
    paper = read_yaml(experiment.PAPER)
    assert fit.validate
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
    experiment.run(Settings(tmp_path, seconds=60.0), Items(tmp_path, "experiment"))
    assert len(fake_fit.made) == before + 1
    assert fake_fit.made[-1].steps == fit.steps
