"""Ctrl-C and SIGTERM end a run between two steps, with everything saved."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.trainer.connectors.signal_connector import _SignalConnector
from tiny_run import TinyTask, fit

from slotbench.callbacks.graceful_stop import GracefulStop
from slotbench.callbacks.run_checkpoint import RunCheckpoint
from slotbench.runs.folder import RunFolder


@pytest.fixture(autouse=True)
def signals_are_heard() -> Iterator[None]:
    """A process started in the background ignores SIGINT from birth, one under nohup SIGHUP."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Signalled(TinyTask):
    """Gets signals in the middle of its sixth step."""

    def __init__(self, *signals: int) -> None:
        super().__init__()
        self.signals = signals

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        if self.global_step == 5:
            for number in self.signals:
                signal.raise_signal(number)
        return super().training_step(batch, batch_idx)


def test_nohup_stays_in_force(folder: RunFolder) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    fit(folder, Signalled(signal.SIGHUP), max_steps=8)
    assert (folder.info["state"], folder.info["step"]) == ("finished", 8)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143), (signal.SIGUSR1, 143), (signal.SIGUSR2, 143)],
)
def test_the_step_is_finished_and_saved(
    folder: RunFolder, number: int, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        fit(folder, Signalled(number), val_check_interval=4)
    assert stopped.value.code == code
    assert (folder.info["state"], folder.info["step"]) == ("interrupted", 6)
    assert torch.load(folder.checkpoints / "last.ckpt", weights_only=True)["global_step"] == 6
    assert [row["step"] for row in folder.history() if "train/loss" in row] == list(range(6))
    assert (folder.media / "loss.png").is_file()
    assert "tiny interrupted after 6 steps" in capsys.readouterr().out
    # afterwards Ctrl-C is what it was
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interrupt_stops_at_once_and_keeps_the_checkpoint_before(folder: RunFolder) -> None:
    with pytest.raises(SystemExit):
        fit(folder, Signalled(signal.SIGINT, signal.SIGINT), val_check_interval=4)
    assert (folder.info["state"], folder.info["step"]) == ("interrupted", 5)
    assert torch.load(folder.checkpoints / "last.ckpt", weights_only=True)["global_step"] == 4


def test_a_finished_run_gives_the_handlers_back(folder: RunFolder) -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
    before = [signal.getsignal(number) for number in numbers]
    fit(folder, TinyTask(), max_steps=2)
    assert [signal.getsignal(number) for number in numbers] == before


class SignalledInValidation(TinyTask):
    """Gets SIGTERM in the first of the two batches of its second validation."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        if self.global_step == 8 and batch_idx == 0:
            signal.raise_signal(signal.SIGTERM)
        super().validation_step(batch, batch_idx)


def test_a_validation_is_finished_and_no_step_follows(folder: RunFolder) -> None:
    with pytest.raises(SystemExit) as stopped:
        fit(folder, SignalledInValidation(), val_check_interval=4)
    assert stopped.value.code == 143
    assert (folder.info["state"], folder.info["step"]) == ("interrupted", 8)
    assert [row["step"] for row in folder.history() if "val/score" in row] == [3, 7]
    assert torch.load(folder.checkpoints / "last.ckpt", weights_only=True)["global_step"] == 8


def test_our_handlers_come_before_those_that_lightning_sets_under_slurm(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"NTASKS": "1", "JOB_ID": "7", "PROCID": "0", "LOCALID": "0", "JOB_NAME": "train"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    # it would save beside the run folder and queue the job again
    monkeypatch.setattr(_SignalConnector, "_slurm_sigusr_handler_fn", lambda *_: pytest.fail("Lightning's handler"))
    with pytest.raises(SystemExit) as stopped:
        fit(folder, Signalled(signal.SIGUSR1))
    assert stopped.value.code == 143
    assert (folder.info["state"], folder.info["step"]) == ("interrupted", 6)


def test_a_worker_that_inherited_the_handler_goes_on(folder: RunFolder) -> None:
    stop = GracefulStop(RunCheckpoint(folder.checkpoints))
    stop._process = os.getpid() + 1
    stop._in_training = stop._listening = True
    stop._on_signal(signal.SIGINT, None)
    assert not stop.told


class WorkersDie(Callback):
    """What the trainer sees when a signal goes to the whole process group: first the data loader's workers are gone."""

    def __init__(self, within_step: bool) -> None:
        self.within_step = within_step

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        if self.within_step and trainer.global_step == 6:
            self.die()

    def on_train_epoch_end(self, trainer: Trainer, *_: Any) -> None:
        if not self.within_step:
            self.die()

    def die(self) -> None:
        signal.raise_signal(signal.SIGTERM)
        raise RuntimeError("DataLoader worker is killed by signal: Terminated")


@pytest.mark.parametrize(("within_step", "saved"), [(True, 4), (False, 8)])
def test_with_the_workers_gone_it_is_an_interruption_saved_if_between_steps(
    folder: RunFolder, within_step: bool, saved: int
) -> None:
    task = TinyTask()
    task.configure_callbacks = lambda: [WorkersDie(within_step)]
    with pytest.raises(RuntimeError, match="worker is killed"):
        fit(folder, task, val_check_interval=4)
    assert folder.info["state"] == "interrupted"
    assert torch.load(folder.checkpoints / "last.ckpt", weights_only=True)["global_step"] == saved
