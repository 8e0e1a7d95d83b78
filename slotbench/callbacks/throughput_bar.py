"""The progress bar: step, time left, frames per second, loss, headline metrics."""

from __future__ import annotations

import math
import sys
import time
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar
from tqdm import tqdm

from slotbench.callbacks.reporting import StepClock, headline_records
from slotbench.interfaces import Reporter

__all__ = ["ThroughputBar"]


class ThroughputBar(ProgressBar):
    """A bar over the whole training, not over one epoch; in a log file or a pipe, a plain line every few seconds.

    Args:
        interval: seconds between two plain lines where there is no terminal.
    """

    def __init__(self, interval: float = 10.0) -> None:
        super().__init__()
        self._interval, self.is_enabled = interval, True
        self._bar: tqdm[Any] | None = None
        self._clock, self._shown_at = StepClock(), 0.0
        self._metrics: dict[str, float] = {}

    def disable(self) -> None:
        self.is_enabled = False

    def print(self, *args: Any, **kwargs: Any) -> None:
        tqdm.write(" ".join(map(str, args)))

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        steps = pl_module.total_steps if isinstance(pl_module, Reporter) else None
        self._open("training", steps or math.inf, trainer.global_step)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        outputs, batch, _ = args
        self._clock.tick(_frames(batch, pl_module) * trainer.world_size)
        if self._is_due():
            # to read the loss is to wait for the device, so only where it is shown
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            self._show(trainer.global_step, {} if loss is None else {"loss": float(loss)})

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._clock.pause()
        if trainer.state.fn != "fit":
            batches = {"test": trainer.num_test_batches, "predict": trainer.num_predict_batches}
            stage = trainer.state.fn.value  # type: ignore[union-attr]
            self._open(stage, float(sum(batches.get(stage, trainer.num_val_batches))), 0)

    def on_validation_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        if trainer.state.fn != "fit":
            self._clock.tick(_frames(args[1], pl_module) * trainer.world_size)
            if self._is_due():
                self._show(args[2] + 1, {})

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn != "fit":
            self._close()
        elif not trainer.sanity_checking:
            names = [headline["metric"] for headline in headline_records(pl_module)]
            found = {name: trainer.callback_metrics[name] for name in names if name in trainer.callback_metrics}
            self._metrics = {name.partition("/")[2]: float(value) for name, value in found.items()}

    on_test_start = on_predict_start = on_validation_start
    on_test_batch_end = on_predict_batch_end = on_validation_batch_end  # type: ignore[assignment]
    on_test_end = on_predict_end = on_validation_end

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._show(trainer.global_step, {})
        self._close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._close()

    def _is_due(self) -> bool:
        on_terminal = self._bar is not None and not self._bar.disable
        return time.monotonic() - self._shown_at >= (0.25 if on_terminal else self._interval)

    def _open(self, what: str, total: float, done: int) -> None:
        self._close()
        self._clock, self._shown_at = StepClock(), time.monotonic()
        hidden, ends = not self.is_enabled or not sys.stderr.isatty(), math.isfinite(total)
        self._bar = tqdm(desc=what, total=total if ends else None, initial=done, disable=hidden, dynamic_ncols=True)
        self._total = f"/{total:.0f}" if ends else ""

    def _show(self, done: int, values: dict[str, float]) -> None:
        self._shown_at = time.monotonic()
        words = [f"{self._clock.rate:,.0f} frames/s"] if self._clock.rate else []
        words += [f"{name} {value:.3g}" for name, value in (values | self._metrics).items()]
        if self._bar is not None and not self._bar.disable:
            self._bar.n = done
            self._bar.set_postfix_str("  ".join(words))
        elif self.is_enabled:
            print(*[f"{done}{self._total}", *words], sep="  ", flush=True)

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _frames(batch: Any, module: LightningModule) -> float:
    """Frames in a batch: clips times steps, over the steps that one frame is shown in."""
    spec = module.data_spec if isinstance(module, Reporter) else None
    return len(batch) * batch.num_steps / (spec.input.steps_per_frame if spec is not None else 1)
