"""Keeps a run's record up to date while it trains."""

from __future__ import annotations

import time
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities.exceptions import SIGTERMException

from slotbench.callbacks.reporting import StepClock, headline_records
from slotbench.nn.parameters import trainable_parameters
from slotbench.ops import chosen_kernels
from slotbench.runs.folder import RunFolder

__all__ = ["RunRecord"]


class RunRecord(Callback):
    """Writes state, step, speed, sizes of parts, kernels, headlines with their floors, and the last and best metrics.

    The state goes from "starting" over "running" to "finished", "interrupted" (Ctrl-C, SIGTERM) or "failed", then with
    the exception's last line under "error".

    Args:
        folder: the run.
        interval: seconds between two updates of the step while training; validation always updates.
    """

    def __init__(self, folder: RunFolder, interval: int | float = 10.0) -> None:
        self._folder = folder
        self._interval = interval
        self._clock = StepClock()
        self._started = self._written = time.monotonic()

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """State "running", and what is known before the first step."""
        self._started = time.monotonic()
        self._write(
            trainer,
            state="running",
            error=None,
            parameters=trainable_parameters(pl_module),
            headlines=headline_records(pl_module),
            accelerator=str(trainer.strategy.root_device),
            precision=str(trainer.precision),
            total_steps=_finite(float(trainer.estimated_stepping_batches)),
        )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Starts the clock."""
        self._clock.resume()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Updates the step and the speed every few seconds."""
        self._clock.tick()
        if time.monotonic() - self._written >= self._interval:
            self._write(trainer)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stops the clock."""
        self._clock.pause()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Records the metrics, and what is best so far of the headlines and of the monitored metric."""
        if trainer.sanity_checking:
            return
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items() if value.numel() == 1}
        headlines = headline_records(pl_module)
        directions = {headline["metric"]: headline["higher_is_better"] for headline in headlines}
        if (monitor := getattr(pl_module, "monitor", None)) is not None:
            directions[monitor[0]] = monitor[1] == "max"
        best = dict(self._folder.info.get("best", {}))
        for name, higher in directions.items():
            value, before = metrics.get(name), best.get(name)
            if value is None or value != value:
                continue
            if before is None or (value > before["value"] if higher else value < before["value"]):
                best[name] = {"value": value, "step": trainer.global_step}
        # floors are computed from the data, so a task may know them only after its first validation
        self._write(trainer, headlines=headlines, metrics=metrics, best=best)
        self._clock.resume()

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """State "finished"."""
        self._write(trainer, state="finished")

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """State "interrupted" or "failed"."""
        if trainer.state.fn != TrainerFn.FITTING:
            return
        # a signal to the whole process group kills the data loader's workers too, and that may be what is reported
        if isinstance(exception, KeyboardInterrupt | SIGTERMException) or trainer.received_sigterm:
            self._write(trainer, state="interrupted")
            return
        lines = [line for line in str(exception).splitlines() if line.strip()]
        self._write(
            trainer, state="failed", error=f"{type(exception).__name__}: {lines[-1] if lines else ''}".strip(": ")
        )

    def _write(self, trainer: Trainer, **fields: Any) -> None:
        self._written = time.monotonic()
        if not trainer.is_global_zero:
            return
        memory = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
        self._folder.update(
            step=trainer.global_step,
            epoch=trainer.current_epoch,
            seconds=round(self._written - self._started, 1),
            seconds_per_step=self._clock.seconds_per_step,
            peak_device_memory=memory,
            kernels=chosen_kernels(),
            **fields,
        )


def _finite(number: float) -> int | None:
    return int(number) if number not in (float("inf"), -1) else None
