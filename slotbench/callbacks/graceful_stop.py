"""The clean end of a run after Ctrl-C or a scheduler's signal: the step is finished and saved."""

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

from slotbench.callbacks.divergence import DivergedError
from slotbench.callbacks.run_checkpoint import RunCheckpoint
from slotbench.lightning_compat import end_after_this_step

__all__ = ["GracefulStop"]

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
_SIGNALS = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))
_EVERY = 5  # steps after which processes tell one another of signals


class GracefulStop(Callback):
    """Finishes the step, saves, and leaves with exit code 130 for SIGINT and 143 for the other signals.

    A second Ctrl-C stops at once. A validation that is due after the step, or is running, is finished too.

    Lightning itself exits with code 0 after SIGTERM and saves nothing, and stops anywhere after Ctrl-C. Several
    processes stop after the same step, whichever got the signal: every five steps they tell one another.
    """

    def __init__(self, checkpoint: RunCheckpoint) -> None:
        self._checkpoint = checkpoint
        self._previous: dict[int, Any] = {}
        self._signal: int | None = None
        self._interrupts, self._process = 0, os.getpid()
        self._in_training = self._listening = False

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Installs the handlers, before the data loader's workers are forked and inherit them."""
        if threading.current_thread() is threading.main_thread():
            self._process = os.getpid()
            held = {number: signal.getsignal(number) for number in _SIGNALS}  # what nohup ignores stays ignored
            self._previous = {n: held[n] for n in held if held[n] != signal.SIG_IGN or n == signal.SIGINT}
            self._listening = True
            self._listen()

    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Installs the handlers again, in place of Lightning's own."""
        self._listen()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._listen()
        self._in_training = True

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        if (args[-1] + 1) % trainer.accumulate_grad_batches:  # gradients that wait for more batches would be lost
            return
        if (trainer.world_size == 1 or trainer.global_step % _EVERY == 0) and self._agree(trainer):
            end_after_this_step(trainer)
            self._checkpoint.write(trainer)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Lets the step's validation finish, which Lightning would break off."""
        if self._in_training:
            end_after_this_step(trainer, False)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._in_training and not trainer.sanity_checking and self._agree(trainer):
            end_after_this_step(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._listening = False

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # not earlier: Lightning puts back the handlers that it found, ours among them, as it tears down
        for number, handler in self._previous.items():
            if signal.getsignal(number) == self._on_signal:
                signal.signal(number, handler)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Saves after a stop between two steps; no run can resume within a step."""
        if isinstance(exception, SIGTERMException):
            exception.code = self.exit_code
            save = trainer.received_sigterm  # else there was nothing to finish yet
        else:
            # a signal to the whole process group kills the data loader's workers, and the error about them comes first
            batches = trainer.fit_loop.epoch_loop.batch_progress.current
            between = batches.ready == batches.completed and not isinstance(exception, KeyboardInterrupt)
            save = self.told and between and trainer.world_size == 1 and not isinstance(exception, DivergedError)
        if save and trainer.global_step > 0:
            self._checkpoint.save(trainer)
        # no hook comes after Lightning has put our handlers back, so they step aside when called
        self._listening = False

    @property
    def exit_code(self) -> int:
        return 128 + (signal.SIGINT if self._signal == signal.SIGINT else signal.SIGTERM)

    @property
    def told(self) -> bool:
        return self._signal is not None

    def _listen(self) -> None:
        if self._listening:
            for number in self._previous:
                signal.signal(number, self._on_signal)

    def _agree(self, trainer: Trainer) -> bool:
        """Whether any process of the run has received a signal; every process calls it and gets the same answer."""
        if trainer.strategy.reduce_boolean_decision(self.told, all=False):
            self._signal = self._signal or signal.SIGTERM
        return self.told

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            return  # the terminal signals the data loader's workers too, and they are still needed
        if not self._listening:
            signal.signal(number, self._previous[number])
            signal.raise_signal(number)
            return
        self._interrupts += number == signal.SIGINT
        self._signal = self._signal or number
        if self._interrupts > 1 or not self._in_training:
            raise KeyboardInterrupt if number == signal.SIGINT else SIGTERMException
        name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        more = "; Ctrl-C again stops at once" if number == signal.SIGINT else ""
        with contextlib.suppress(RuntimeError):  # the signal may have come in the middle of a write to the same stream
            print(f"\n{name}: stopping after this step{more}.", file=sys.stderr)
