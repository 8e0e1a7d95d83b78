"""The record of a run, `run.json`, kept up to date while it trains."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.exceptions import SIGTERMException

from slotbench.callbacks.divergence import DivergedError
from slotbench.callbacks.graceful_stop import GracefulStop
from slotbench.callbacks.reporting import StepClock, headline_records
from slotbench.interfaces import Reporter
from slotbench.metric_info import infos_as_record, without_stage
from slotbench.nn.parameters import trainable_parameters
from slotbench.ops import chosen_kernels
from slotbench.runs.folder import RunFolder
from slotbench.runs.run_info import BestScore

__all__ = ["RunRecord", "feature_weights"]


class RunRecord(Callback):
    """Writes state, step, speed, sizes of parts, kernels, headlines with baselines, and the last and best metrics.

    The state goes from "starting" over "running" to "finished", "interrupted" (Ctrl-C or another signal), "diverged",
    then with the step under "diverged_at", or "failed", then with the exception's last line under "error". Seconds and
    best metrics of a resumed run count on; its baselines are those of the record until it has its own.

    The step is updated every `interval` seconds, and by each validation. `finish` writes the result at the end.
    """

    def __init__(
        self,
        folder: RunFolder,
        interval: float = 10.0,
        stop: GracefulStop | None = None,
        finish: Callable[[], object] | None = None,
    ) -> None:
        self._folder, self._interval, self._stop, self._finish = folder, interval, stop, finish
        self._clock = StepClock()
        self._started = self._written = time.monotonic()
        self._before: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        info = self._folder.info
        kept = {"metrics": info.get("metrics", {}), "best": info.get("best", {})}
        return {"seconds": round(self._seconds(), 3), "metrics_step": info.get("metrics_step"), **kept}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._before = dict(state_dict)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._started = time.monotonic()
        self._write(
            trainer,
            # the record may be ahead of the checkpoint
            **{key: value for key, value in self._before.items() if key != "seconds"},
            state="running",
            error=None,
            diverged_at=None,
            parameters=trainable_parameters(pl_module),
            features=feature_weights(pl_module, getattr(trainer, "datamodule", None)),
            headlines=self._headlines(pl_module),
            accelerator=str(trainer.strategy.root_device),
            precision=str(trainer.precision),
            total_steps=pl_module.total_steps if isinstance(pl_module, Reporter) else None,
        )

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        self._clock.tick()
        if time.monotonic() - self._written >= self._interval:
            self._write(trainer)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._clock.pause()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking:
            return
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items() if value.numel() == 1}
        headlines = self._headlines(pl_module)
        directions = {headline["metric"]: headline["higher_is_better"] for headline in headlines}
        if isinstance(pl_module, Reporter) and pl_module.monitor is not None:
            directions[pl_module.monitor[0]] = pl_module.monitor[1] == "max"
        best: dict[str, BestScore] = dict(self._folder.info.get("best", {}))
        for name, higher in directions.items():
            value, sign = metrics.get(name, math.nan), 1 if higher else -1
            if not math.isnan(value) and (name not in best or sign * value > sign * float(best[name]["value"])):
                best[name] = {"value": value, "step": trainer.global_step}
        fields = {"metrics": metrics, "metrics_step": trainer.global_step, "best": best, "headlines": headlines}
        self._write(trainer, metric_infos=self._metric_infos(pl_module, metrics), **fields)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Records the state "finished", then the result, before anything that may fail."""
        self._write(trainer, state="finished")
        if self._finish is not None:
            self._finish()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        if trainer.state.fn != "fit":
            return
        # a signal to the group kills the data loader's workers too, and that may be what is reported
        told = self._stop is not None and self._stop.told
        if isinstance(exception, DivergedError):
            self._write(trainer, state="diverged", diverged_at=exception.step, error=str(exception))
        elif isinstance(exception, KeyboardInterrupt | SIGTERMException) or told:
            self._write(trainer, state="interrupted")
        else:
            error = f"{type(exception).__name__}: {''.join(str(exception).strip().splitlines()[-1:])}".strip(": ")
            with contextlib.suppress(OSError):  # the disk may have failed, and that gets reported
                self._write(trainer, state="failed", error=error)

    def _seconds(self) -> float:
        """Seconds of this process, and of those before it up to the checkpoint that it was resumed from."""
        return float(self._before.get("seconds", 0)) + time.monotonic() - self._started

    def _headlines(self, module: LightningModule) -> list[dict[str, Any]]:
        """The task's headlines, with the baselines and notes of the record until the task has computed them anew."""
        before = {headline["metric"]: headline for headline in self._folder.info.get("headlines", [])}
        kept: dict[str, Any] = {"baselines": {}, "oracles": {}, "note": ""}
        return [
            one | {key: one[key] or before.get(one["metric"], kept).get(key, kept[key]) for key in kept}
            for one in headline_records(module)
        ]

    def _metric_infos(self, module: LightningModule, metrics: Iterable[str]) -> dict[str, dict[str, Any]]:
        """What the logged numbers are; those of references that were logged once stay."""
        if not isinstance(module, Reporter):
            return {}
        names = {without_stage(name): None for name in metrics if not name.startswith("train/")}
        names |= {headline.metric.partition("/")[2]: None for headline in module.headlines()}
        return self._folder.info.get("metric_infos", {}) | infos_as_record(module.metric_infos(names))

    def _write(self, trainer: Trainer, **fields: Any) -> None:
        self._written = time.monotonic()
        # the loops are restored last: before that there is no step to tell
        if trainer.global_step > 0 or not self._before:
            fields |= {"step": trainer.global_step, "epoch": trainer.current_epoch}
        if (speed := self._clock.seconds_per_step) is not None:
            fields["seconds_per_step"] = speed
        memory = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
        fields |= {"seconds": round(self._seconds(), 3), "peak_device_memory": memory, "kernels": chosen_kernels()}
        if trainer.is_global_zero:
            self._folder.update(**fields)


def feature_weights(task: Any, data: Any) -> dict[str, str] | None:
    """Name and hash of the network whose features a run reads, computed on the way or read from the data."""
    return next((dict(found) for one in (task, data) if (found := getattr(one, "feature_weights", None))), None)
