"""The progress bar: step, time left, frames per second, loss, headline metrics."""

from __future__ import annotations

import math
import time
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar, Timer
from lightning.pytorch.trainer.states import TrainerFn
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from slotbench.callbacks.reporting import StepClock, headline_records, short_names
from slotbench.interfaces import Reporter
from slotbench.text import one_line

__all__ = ["ThroughputBar"]

_COMPILED = {"auto", "numba", "triton"}
_DOING = {TrainerFn.VALIDATING: "validating", TrainerFn.TESTING: "testing", TrainerFn.PREDICTING: "predicting"}


class ThroughputBar(ProgressBar):
    """A bar over the whole training, not over one epoch; in a log file or a pipe, a plain line every few seconds.

    Lightning's RichProgressBar starts a new bar every epoch and every validation and counts batches; what one wants to
    know is when the run will be done and how many frames go through in a second, in all processes together. The first
    step, in which kernels are compiled, counts in neither. The bar has a fifth of the terminal's width; of what stands
    beside it metrics go first where it does not fit, then the loss, the frames and the time.

    Args:
        interval: seconds between two plain lines where there is no terminal.
        console: where to write; standard output by default.
    """

    def __init__(self, interval: int | float = 10.0, console: Console | None = None) -> None:
        super().__init__()
        self._interval = interval
        self._console = console
        self._enabled = True
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._bar = BarColumn()
        self._clock = StepClock()
        self._metrics: dict[str, float] = {}
        self._loss: float | None = None
        self._line = ""
        self._shown_at = 0.0
        self._first_step = self._done = 0
        self._compiled: tuple[int, float] | None = None
        self._total: float = math.inf

    @property
    def is_enabled(self) -> bool:
        """Whether progress is shown; Lightning asks before a task prints."""
        return self._enabled

    def enable(self) -> None:
        """Shows progress again."""
        self._enabled = True

    def disable(self) -> None:
        """Shows nothing."""
        self._enabled = False

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Prints above the bar; brackets are no markup."""
        (self._console or Console()).print(*args, **{"markup": False, "highlight": False} | kwargs)

    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Opens the bar: kernels are compiled already where batches are validated before the training."""
        self._wait(trainer, pl_module)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Opens the bar, and says what the first step waits for."""
        self._wait(trainer, pl_module)
        self._first_step, self._compiled = trainer.global_step, None
        self._clock = StepClock()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Counts the step, and updates the bar at intervals."""
        # the clock starts with its first tick
        self._clock.tick(_frames(batch, pl_module) * trainer.world_size)
        if self._compiled is None and trainer.global_step > self._first_step:
            self._compiled = trainer.global_step, time.monotonic()
        if not self._due():
            return
        # reading the loss waits for the device, so only when it is shown
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if loss is not None:
            value = float(loss)
            smooth = self._loss is not None and math.isfinite(self._loss)
            self._loss = 0.8 * self._loss + 0.2 * value if smooth and self._loss is not None else value
        self._show(self._training_words(trainer), trainer.global_step)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stops counting time, or opens a bar for `slotbench validate`."""
        self._clock.pause()
        if trainer.state.fn == TrainerFn.VALIDATING:
            self.on_test_start(trainer, pl_module)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Shows the progress of the validation."""
        if trainer.state.fn == TrainerFn.VALIDATING:
            self.on_test_batch_end(trainer, pl_module, outputs, batch, batch_idx)
        elif not trainer.sanity_checking and self._progress is not None and self._due():
            done = f"validating {batch_idx + 1}{_of(_batches(trainer))}"
            self._show([f"{trainer.global_step}{_of(self._total)}", done], trainer.global_step)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Shows the new metrics."""
        if trainer.sanity_checking:
            return
        if trainer.state.fn == TrainerFn.VALIDATING:
            self._close()
            return
        logged = trainer.callback_metrics
        known = [headline for headline in headline_records(pl_module) if headline["metric"] in logged]
        values = [float(logged[headline["metric"]]) for headline in known]
        self._metrics = dict(zip(short_names(known), values, strict=True))
        self._clock.resume()

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Opens a bar for an evaluation."""
        assert trainer.state.fn is not None
        self._open(_DOING[trainer.state.fn], _batches(trainer))
        self._clock = StepClock()

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Counts the batch."""
        self._clock.tick(_frames(batch, pl_module) * trainer.world_size)
        self._done += 1
        total = _batches(trainer)
        if self._due() or self._done == total:
            rate = [f"{self._clock.rate:,.0f} frames/s"] if self._clock.rate else []
            self._show([f"{self._done}{_of(total)} batches", *rate], self._done)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Closes the bar."""
        self._close()

    on_predict_start, on_predict_batch_end, on_predict_end = on_test_start, on_test_batch_end, on_test_end

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Shows the last state and closes the bar."""
        self._show(self._training_words(trainer), trainer.global_step)
        self._close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Restores the terminal."""
        self._close()

    def _training_words(self, trainer: Trainer) -> list[str]:
        """What is known of the training, the most important first."""
        step = trainer.global_step
        left = math.inf
        if self._compiled is not None and step > self._compiled[0]:
            first, at = self._compiled
            # all time since the first step, so that validation counts
            left = (self._total - step) * (time.monotonic() - at) / (step - first)
        timers = [callback.time_remaining() for callback in trainer.callbacks if isinstance(callback, Timer)]  # type: ignore[attr-defined]
        left = min([left, *(seconds for seconds in timers if seconds is not None)])
        words = [f"{step}{_of(self._total)}"]
        words += [f"{_clock_time(left)} left"] if math.isfinite(left) else []
        words += [f"{self._clock.rate:,.0f} frames/s"] if self._clock.rate else []
        words += [f"loss {self._loss:.3g}"] if self._loss is not None else []
        return words + [f"{name} {value:.3f}" for name, value in self._metrics.items()]

    def _due(self) -> bool:
        return time.monotonic() - self._shown_at >= (0.25 if self._progress is not None else self._interval)

    def _wait(self, trainer: Trainer, module: LightningModule) -> None:
        """Opens the bar of a training unless it is open, and shows what the first step waits for."""
        if self._progress is not None:
            return
        self._total = float(trainer.estimated_stepping_batches)
        self._total = math.inf if self._total < 0 else self._total
        self._open("training", self._total)
        kernels = {part.kernel for part in module.modules() if isinstance(getattr(part, "kernel", None), str)}
        doing = "compiling kernels" if kernels & _COMPILED else "first step"
        self._show([f"{trainer.global_step}{_of(self._total)}", doing], trainer.global_step)
        if self._progress is not None:
            self._progress.refresh()

    def _open(self, what: str, total: float) -> None:
        self._shown_at = time.monotonic()
        self._done = 0
        console = self._console or Console()
        if not self._enabled or not console.is_terminal:
            return
        self._bar.bar_width = _bar_width(console)
        words = (TextColumn(text, markup=False) for text in ("{task.description}", "{task.fields[line]}"))
        self._progress = Progress(next(words), self._bar, next(words), console=console)
        self._task = self._progress.add_task(what, total=total if math.isfinite(total) else None, line="")
        self._progress.start()

    def _show(self, words: list[str], completed: int) -> None:
        self._shown_at = time.monotonic()
        if not self._enabled:
            return
        words = [one_line(word) for word in words]
        line = "  ".join(words)
        if self._progress is not None and self._task is not None:
            self._bar.bar_width = _bar_width(self._progress.console)
            beside = self._bar.bar_width + cell_len(self._progress.tasks[0].description) + 2
            while len(words) > 1 and beside + cell_len(line) > self._progress.console.width:
                line = "  ".join(words := words[:-1])
            self._progress.update(self._task, completed=completed, line=line)
        elif line != self._line:
            self._line = line
            if self._console is not None:
                self._console.print(line, highlight=False, soft_wrap=True, markup=False)
            else:
                print(line, flush=True)

    def _close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def _bar_width(console: Console) -> int:
    return max(8, console.width // 5)


def _frames(batch: Any, module: LightningModule) -> float:
    """Frames in a batch: clips times steps, over the steps that one frame is shown in."""
    spec = module.data_spec if isinstance(module, Reporter) else None
    return len(batch) * batch.num_steps / (spec.input.steps_per_frame if spec is not None else 1)


def _batches(trainer: Trainer) -> float:
    """Number of batches of the running evaluation, or of the validation within a training."""
    numbers = {TrainerFn.TESTING: trainer.num_test_batches, TrainerFn.PREDICTING: trainer.num_predict_batches}
    return float(sum(numbers.get(trainer.state.fn or TrainerFn.VALIDATING, trainer.num_val_batches)))


def _of(total: float) -> str:
    return f"/{total:.0f}" if math.isfinite(total) else ""


def _clock_time(seconds: float) -> str:
    minutes, seconds = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
