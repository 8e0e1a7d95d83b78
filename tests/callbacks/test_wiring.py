"""The parts that the command line plugs in are the right ones for what is asked."""

from __future__ import annotations

import subprocess
import sys

import torch
from lightning.pytorch.callbacks import Checkpoint
from tiny_run import TinyTask, fit, make_trainer

from slotbench.callbacks.graceful_stop import GracefulStop
from slotbench.callbacks.run_checkpoint import RunCheckpoint
from slotbench.callbacks.run_record import RunRecord
from slotbench.callbacks.wiring import run_parts
from slotbench.runs.folder import RunFolder


def test_a_run_without_wandb_never_imports_it(folder: RunFolder) -> None:
    code = (
        "import sys; from slotbench.runs.folder import RunFolder; from slotbench.callbacks.wiring import run_parts; "
        f"run_parts(RunFolder.open({str(folder.path)!r}), wandb='off', wandb_project='p', config={{}}); "
        "print('wandb' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


def test_the_state_is_written_first_and_the_trainer_saves_last(folder: RunFolder) -> None:
    loggers, callbacks = run_parts(folder, wandb="off", wandb_project="p", config={})
    trainer = make_trainer(loggers, callbacks)
    ours = [callback for callback in trainer.callbacks if callback in callbacks]
    assert isinstance(ours[0], RunRecord)
    assert isinstance(ours[1], GracefulStop)
    assert isinstance(trainer.callbacks[-1], RunCheckpoint)
    assert [callback for callback in trainer.callbacks if isinstance(callback, Checkpoint)] == [trainer.callbacks[-1]]
    assert trainer.progress_bar_callback in callbacks


def test_recording_does_not_change_the_training(folder: RunFolder) -> None:
    weights = []
    for recorded in (False, True):
        torch.manual_seed(0)
        task = TinyTask()
        if recorded:
            fit(folder, task, max_steps=6, val_check_interval=2)
        else:
            bare = RunFolder.create(folder.path.parent, "bare")
            fit(bare, task, max_steps=6, limit_val_batches=0)
        weights.append(task.encoder.weight.detach().clone())
    torch.testing.assert_close(weights[0], weights[1], rtol=0, atol=0)
