"""The record tells, at any moment, how the run is doing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback
from tiny_run import TinyTask, fit

from slotbench.callbacks.run_record import RunRecord
from slotbench.interfaces import Headline
from slotbench.runs.folder import RunFolder


class Watch(Callback):
    """Reads the record from outside at the end of chosen steps."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.seen: dict[str, dict[str, Any]] = {}

    def on_train_start(self, *_: Any) -> None:
        self.seen["start"] = self.folder.info

    def on_train_epoch_end(self, *_: Any) -> None:
        self.seen["epoch"] = self.folder.info


def run(folder: RunFolder, task: TinyTask, **settings: Any) -> Watch:
    import tiny_run

    watch = Watch(folder)
    loggers, callbacks = tiny_run.run_parts(folder, wandb="off", wandb_project="tests", config={})
    trainer = tiny_run.make_trainer(loggers, [*callbacks, watch], max_steps=8, val_check_interval=4, **settings)
    trainer.fit(task, tiny_run.loader(), tiny_run.loader(16))
    return watch


pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers.*")


def test_state_goes_from_running_to_finished(folder: RunFolder) -> None:
    watch = run(folder, TinyTask())
    assert watch.seen["start"]["state"] == "running"
    assert watch.seen["start"]["total_steps"] == 8
    info = folder.info
    assert (info["state"], info["step"], info["error"]) == ("finished", 8, None)
    assert info["seconds"] > 0
    assert 0 < info["seconds_per_step"] < 10
    assert info["accelerator"] == "cpu"


def test_parameters_are_counted_per_part(folder: RunFolder) -> None:
    fit(folder, TinyTask(width=4), max_steps=1)
    assert folder.info["parameters"] == {"encoder": 48 * 4 + 4, "decoder": 4 * 48 + 48, "total": 196 + 240}


class LeavesOut(TinyTask):
    def headlines(self) -> list[Headline]:
        return [replace(one, note="without 3 of 4") for one in super().headlines()]


def test_headlines_have_the_baselines_that_validation_found(folder: RunFolder) -> None:
    fit(folder, LeavesOut(), max_steps=4)
    fit(folder, TinyTask(), max_steps=1, limit_val_batches=0)  # has none of its own yet
    (headline,) = folder.info["headlines"]
    assert (headline["metric"], headline["note"]) == ("val/score", "without 3 of 4")
    assert headline["baselines"] == {"always grey": 0.9, "always black": 0.7}
    assert headline["higher_is_better"] is True


class GetsWorse(TinyTask):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        score = 0.9 if self.global_step == 4 else 0.2
        self.log("val/score", score, batch_size=len(batch))


def test_last_and_best_metrics_are_kept_apart(folder: RunFolder) -> None:
    fit(folder, GetsWorse(), max_steps=12)
    info = folder.info
    assert info["metrics"]["val/score"] == pytest.approx(0.2)
    assert info["best"]["val/score"]["value"] == pytest.approx(0.9)
    assert info["best"]["val/score"]["step"] == 4


class LowerIsBetter(GetsWorse):
    monitor = ("val/score", "min")

    def headlines(self) -> list:
        return []


class NeverScores(TinyTask):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val/score", float("nan"), batch_size=len(batch))


def test_a_score_that_is_not_a_number_is_never_the_best(folder: RunFolder) -> None:
    fit(folder, NeverScores(), max_steps=4)
    assert folder.info["best"] == {}
    assert folder.info["metrics"]["val/score"] == "NaN"
    assert not (folder.checkpoints / "best.ckpt").exists()


def test_a_failure_is_recorded_with_its_last_line(folder: RunFolder) -> None:
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        fit(folder, TinyTask(fail_at=6))
    info = folder.info
    assert (info["state"], info["step"]) == ("failed", 6)
    assert info["error"] == "RuntimeError: expected 3, got 4"
    assert (folder.media / "loss.png").is_file()


class Impatient(TinyTask):
    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        if self.global_step == 3:
            raise KeyboardInterrupt
        return super().training_step(batch, batch_idx)


def test_an_interruption_within_a_step_is_no_failure_and_saves_no_half_step(folder: RunFolder) -> None:
    with pytest.raises(SystemExit):
        fit(folder, Impatient())
    assert (folder.info["state"], folder.info["error"]) == ("interrupted", None)
    assert folder.last_checkpoint() is None


def test_between_validations_the_step_is_written_every_interval(folder: RunFolder) -> None:
    import tiny_run

    steps = []

    class Look(Callback):
        def on_train_batch_end(self, *_: Any) -> None:
            steps.append(folder.info["step"])

    trainer = tiny_run.make_trainer([], [RunRecord(folder, interval=0), Look()], max_steps=3, limit_val_batches=0)
    trainer.fit(TinyTask(), tiny_run.loader(), tiny_run.loader(16))
    assert steps == [1, 2, 3]
