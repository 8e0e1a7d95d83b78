"""Turns Ctrl-C and SIGTERM into a clean end of the run."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.exceptions import SIGTERMException

from slotbench.callbacks.run_checkpoint import RunCheckpoint

__all__ = ["GracefulStop"]


class GracefulStop(Callback):
    """Finishes the step, saves, and leaves with the signal's exit code; a second Ctrl-C stops at once.

    Lightning already leaves a SIGTERM for the end of the batch, but exits with code 0 and saves nothing; and Ctrl-C
    interrupts it anywhere, in the middle of an optimiser step if need be, so that what could be saved then is no state
    that training ever was in. Here Ctrl-C takes the way of SIGTERM.

    Args:
        checkpoint: saves the last state when the run is stopped between two steps.
    """

    def __init__(self, checkpoint: RunCheckpoint) -> None:
        self._checkpoint = checkpoint
        self._previous: Any = None
        self._signal: int = signal.SIGTERM
        self._process = os.getpid()
        self._in_training = self._listening = False

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Listens to Ctrl-C from here on; before the data loader's workers are forked, which inherit it."""
        # several processes would stop at different steps and wait for one another; there Lightning's own handling stays
        if trainer.world_size == 1 and threading.current_thread() is threading.main_thread():
            self._process = os.getpid()
            self._previous = signal.signal(signal.SIGINT, self._on_interrupt)
            self._listening = True

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """From here on there are steps to finish."""
        self._in_training = True

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """There are no more steps to finish."""
        self._listening = False

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Gives Ctrl-C back."""
        # not earlier: Lightning puts back the handlers that it found, ours among them, as it tears down
        if signal.getsignal(signal.SIGINT) == self._on_interrupt:
            signal.signal(signal.SIGINT, self._previous)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Saves after a stop between two steps; a state from within a step is none to continue from."""
        self._listening = False  # no hook comes after Lightning has put our handler back, so it steps aside when called
        if isinstance(exception, SIGTERMException):
            exception.code = 128 + self._signal
        # a signal to the whole process group kills the data loader's workers, and the error about them comes first
        batches = trainer.fit_loop.epoch_loop.batch_progress.current
        between = isinstance(exception, SIGTERMException) or batches.ready == batches.completed
        if trainer.received_sigterm and between and trainer.global_step > 0:
            self._checkpoint.save(trainer)

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            return  # the terminal signals the data loader's workers too, and they are still needed
        if not self._listening:
            signal.signal(signal.SIGINT, self._previous)
            signal.raise_signal(number)
            return
        if self._signal == signal.SIGINT or not self._in_training:
            raise KeyboardInterrupt
        self._signal = signal.SIGINT
        with contextlib.suppress(RuntimeError):  # the signal may have come in the middle of a write to the same stream
            print("\nStopping after this step; Ctrl-C again stops at once.", file=sys.stderr)
        signal.raise_signal(signal.SIGTERM)
