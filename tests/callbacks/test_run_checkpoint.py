"""The checkpoints are there, whole, and what they say they are."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from tiny_run import TinyTask, fit, loader, make_trainer

from slotbench.callbacks.collapse import Collapse
from slotbench.callbacks.final_validation import FinalValidation
from slotbench.callbacks.random_state import RandomState
from slotbench.callbacks.run_checkpoint import RunCheckpoint
from slotbench.callbacks.run_record import RunRecord
from slotbench.runs.folder import RunFolder

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers.*")


class Scores(TinyTask):
    """Scores 0.5, 0.9, 0.2 at steps 4, 8, 12."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val/score", {4: 0.5, 8: 0.9, 12: 0.2}.get(self.global_step, 0.0), batch_size=len(batch))


class Unmonitored(TinyTask):
    monitor = None


class Mistaken(TinyTask):
    monitor = ("val/accuracy", "max")


def step_of(path: Path) -> int:
    return torch.load(path, weights_only=True)["global_step"]


def test_last_is_the_end_and_best_is_the_best(folder: RunFolder) -> None:
    fit(folder, Scores(), max_steps=14)
    there = sorted(path.name for path in folder.checkpoints.glob("*.ckpt"))
    assert there == ["best.ckpt", "last.ckpt", "previous.ckpt"]
    assert step_of(folder.checkpoints / "last.ckpt") == 14
    assert step_of(folder.checkpoints / "previous.ckpt") == 12
    assert step_of(folder.checkpoints / "best.ckpt") == 8
    assert folder.last_checkpoint() == folder.checkpoints / "last.ckpt"


def test_every_validation_saves(folder: RunFolder) -> None:
    steps = []

    class Look(Callback):
        def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
            steps.append(step_of(folder.checkpoints / "last.ckpt") if folder.last_checkpoint() else None)

    trainer = make_trainer([], [Look(), RunCheckpoint(folder.checkpoints)], max_steps=6, val_check_interval=2)
    trainer.fit(Unmonitored(), loader(), loader(16))
    assert steps == [None, None, 2, 2, 4, 4]
    assert not (folder.checkpoints / "best.ckpt").exists()


def test_without_validation_time_and_the_end_save(folder: RunFolder) -> None:
    trainer = make_trainer([], [RunCheckpoint(folder.checkpoints, minutes=0)], max_steps=30, limit_val_batches=0)
    saved = []
    save = trainer.save_checkpoint
    trainer.save_checkpoint = lambda *args, **kwargs: (saved.append(trainer.global_step), save(*args, **kwargs))
    trainer.fit(TinyTask(), loader(), loader(16))
    assert saved == [20, 30]


def test_a_monitored_metric_that_is_not_logged_is_said(folder: RunFolder) -> None:
    trainer = make_trainer([], [RunCheckpoint(folder.checkpoints)], max_steps=8, val_check_interval=4)
    with pytest.warns(UserWarning, match="monitors 'val/accuracy', which was not logged"):
        trainer.fit(Mistaken(), loader(), loader(16))
    assert folder.last_checkpoint() is not None


def test_a_save_that_breaks_off_leaves_the_checkpoint_before(folder: RunFolder) -> None:
    checkpoint = RunCheckpoint(folder.checkpoints)

    class Breaks(Callback):
        def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
            if trainer.global_step == 6:

                def half(path: Path, **_: Any) -> None:
                    Path(path).write_bytes(b"half")
                    raise OSError("disk full")

                trainer.save_checkpoint = half

    trainer = make_trainer([], [Breaks(), checkpoint], max_steps=8, val_check_interval=4)
    with pytest.raises(OSError, match="disk full"):
        trainer.fit(Scores(), loader(), loader(16))
    assert step_of(folder.checkpoints / "last.ckpt") == 4
    assert step_of(folder.checkpoints / "best.ckpt") == 4


def test_a_resumed_run_remembers_its_best_score(folder: RunFolder) -> None:
    fit(folder, Scores(), max_steps=8)
    second = RunCheckpoint(folder.checkpoints)
    callbacks = [RunRecord(folder), FinalValidation(), RandomState(), Collapse(), second]
    trainer = make_trainer([], callbacks, max_steps=12, val_check_interval=4)
    trainer.fit(Scores(), loader(), loader(16), ckpt_path=folder.last_checkpoint(), weights_only=True)
    assert (second.best_score, second.best_step) == (pytest.approx(0.9), 8)
    assert step_of(folder.checkpoints / "last.ckpt") == 12
    assert step_of(folder.checkpoints / "best.ckpt") == 8


def test_a_copy_serves_where_there_are_no_hard_links(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError("no links here")

    monkeypatch.setattr("os.link", refuse)
    fit(folder, Scores(), max_steps=12)
    assert step_of(folder.checkpoints / "best.ckpt") == 8


def test_nothing_is_saved_twice_for_one_step(folder: RunFolder) -> None:
    fit(folder, Unmonitored(), max_steps=4)
    written = (folder.checkpoints / "last.ckpt").stat().st_mtime_ns
    assert written < time.time_ns()
    trainer = make_trainer([], [checkpoint := RunCheckpoint(folder.checkpoints)], max_steps=4, limit_val_batches=0)
    trainer.fit(Unmonitored(), loader(), loader(16))
    before = (folder.checkpoints / "last.ckpt").stat().st_mtime_ns
    checkpoint.save(trainer)
    assert (folder.checkpoints / "last.ckpt").stat().st_mtime_ns == before
