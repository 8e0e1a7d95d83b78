"""How a training ends: with its final weights scored, diverged, damaged on the way, or with a report that fails."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from ended_runs import copy, fit, interrupt_before_the_result, validated

from slotbench.callbacks import reporting
from slotbench.cli import run
from slotbench.runs.folder import RunFolder

pytestmark = [pytest.mark.filterwarnings("ignore:.*does not have many workers.*"), pytest.mark.usefixtures("here")]


@pytest.fixture(scope="module", autouse=True)
def no_curves() -> None:
    """These trainings draw their curves."""


def test_the_final_weights_are_scored_and_saved_with_their_scores(whole: str) -> None:
    assert validated(whole) == [4, 6]
    folder = RunFolder.open(whole)
    assert folder.info["metrics_step"] == 6
    assert folder.result is not None
    last_row = [row for row in folder.history() if "val/loss" in row][-1]
    assert folder.result["metrics"]["val/loss"] == last_row["val/loss"]
    last = torch.load(folder.checkpoints / "last.ckpt", weights_only=True)
    assert last["global_step"] == 6
    assert last["callbacks"]["RunRecord"]["metrics_step"] == 6
    assert last["callbacks"]["RunRecord"]["metrics"]["val/loss"] == last_row["val/loss"]
    best = torch.load(folder.checkpoints / "best.ckpt", weights_only=True)
    assert best["global_step"] == folder.result["best"]["val/loss"]["step"]


def test_a_last_step_that_is_validated_anyway_is_not_validated_twice(place: Path) -> None:
    assert fit("even", "--trainer.max_steps", "8") == 0
    assert validated("even") == [4, 8]


def test_the_final_validation_can_be_left_out_and_the_report_says_so(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit("without", "--no-final-validation") == 0
    assert validated("without") == [4]
    assert "Scores of step 4: later weights have not been validated." in capsys.readouterr().out
    interrupt_before_the_result("without")
    assert run(["fit", "--resume", "without"]) == 0  # what was said once holds
    assert validated("without") == [4]


def test_a_run_killed_before_its_result_ends_like_another(whole: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = RunFolder.open(whole).result
    name = copy(whole, "cut")
    interrupt_before_the_result(name)
    capsys.readouterr()
    assert run(["fit", "--resume", name]) == 0
    out = capsys.readouterr().out
    assert "always grey" in out
    folder = RunFolder.open(name)
    result = folder.result
    assert before is not None
    assert result is not None
    for key in ("metrics", "best", "headlines", "seconds_per_step", "step"):
        assert result[key] == before[key], key
    assert result["headlines"][0]["baselines"] == {"always grey": 0.25}
    assert result["seconds_per_step"] > 0
    assert sorted(path.name for path in folder.media.glob("*.png")) == ["loss.png", "metrics.png"]
    assert validated(name) == [4, 6]


@pytest.mark.parametrize("lost", ["loss.png", "metrics.png"])
def test_a_picture_that_a_kill_after_the_result_has_lost_is_drawn_again(whole: str, lost: str) -> None:
    name = copy(whole, f"without_{lost}")
    picture = RunFolder.open(name).media / lost
    picture.unlink()
    assert run(["fit", "--resume", name]) == 0
    assert picture.stat().st_size > 1000
    assert validated(name) == validated(whole)


def test_a_finished_run_that_is_trained_longer_goes_on_within_its_epoch(place: Path) -> None:
    """Six steps are an epoch of five and one more."""
    assert fit("longer") == 0
    assert run(["fit", "--resume", "longer", "--allow-changes", "--trainer.max_steps", "11"]) == 0
    trained = [row for row in RunFolder(Path("longer")).history() if "train/loss" in row]
    assert [row["step"] for row in trained] == list(range(11))
    assert [row["epoch"] for row in trained] == [0] * 5 + [1] * 5 + [2]


def test_baselines_of_other_clips_are_not_taken_over(whole: str) -> None:
    name = copy(whole, "other_data")
    assert run(["fit", "--resume", name, "--allow-changes", "--data.loader.batch_size", "1"]) == 0
    assert RunFolder.open(name).info["headlines"][0]["baselines"] == {}


# --- divergence ------------------------------------------------------------------------------------------------------


def test_a_diverging_run_stops_at_once_with_a_sentence_and_keeps_its_last_checkpoint(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("NAN_AT", "5")
        assert fit("diverged") == 1
    error = " ".join(capsys.readouterr().err.split())
    assert "the training has diverged: the training loss is not finite in step 6, at a" in error
    for word in ("learning rate of", "--model.optimizer.lr", "--trainer.gradient_clip_val", "--allow-changes"):
        assert word in error
    assert "Traceback" not in error
    folder = RunFolder.open("diverged")
    assert (folder.state, folder.info["diverged_at"], folder.info["step"]) == ("diverged", 5, 5)
    result = json.loads((folder.path / "result.json").read_text())
    assert (result["state"], result["diverged_at"]) == ("diverged", 5)
    assert folder.has_diverged
    assert not folder.is_done
    last = torch.load(folder.checkpoints / "last.ckpt", weights_only=True)
    assert last["global_step"] == 4
    assert all(weight.isfinite().all() for weight in last["state_dict"].values())

    # the same settings are not tried again by themselves
    assert fit("diverged") == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "diverged is not resumed: the training has diverged" in error
    assert "slotbench fit --resume diverged --allow-changes --model.optimizer.lr VALUE" in error
    more = ["--allow-changes", "--trainer.gradient_clip_val", "1.0"]
    assert run(["fit", "--resume", "diverged", *more]) == 0
    assert (folder.state, folder.info["diverged_at"], folder.is_done) == ("finished", None, True)
    assert json.loads((folder.path / "result.1.json").read_text())["state"] == "diverged"


def test_a_score_that_is_not_a_number_is_no_divergence(whole: str) -> None:
    folder = RunFolder.open(whole)
    assert folder.state == "finished"
    assert math.isnan(float(folder.info["metrics"]["val/undefined"]))


# --- Lightning's callbacks -------------------------------------------------------------------------------------------


def test_averaged_weights_are_what_is_scored_and_kept_and_a_resumed_run_ends_the_same(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ["--trainer.callbacks+", "EMAWeightAveraging", "--trainer.callbacks.decay", "0.5"]
    assert fit("averaged", *more) == 0
    with monkeypatch.context() as patch:
        patch.setenv("SIGNAL_AT", "2:15")
        assert fit("averaged_stopped", *more) == 143
    assert run(["fit", "--resume", "averaged_stopped"]) == 0
    ends = [torch.load(f"{name}/checkpoints/last.ckpt", weights_only=True) for name in ("averaged", "averaged_stopped")]
    torch.testing.assert_close(ends[0]["state_dict"], ends[1]["state_dict"], rtol=0, atol=0)
    assert not torch.equal(*(ends[0][key]["core.linear.weight"] for key in ("state_dict", "current_model_state")))
    assert run(["test", "averaged"]) == 0


# --- reports ---------------------------------------------------------------------------------------------------------


def test_a_report_that_fails_is_a_warning_and_the_result_is_written_before_it(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = []

    def broken(*_: object) -> None:
        seen.append(RunFolder.open("reported").is_done)
        raise KeyError("no such metric")

    monkeypatch.setattr(reporting, "score_table", broken)
    assert fit("reported") == 0
    assert seen == [True]
    assert "warning: the report of reported cannot be shown: KeyError" in capsys.readouterr().err
