"""The report of a run on the terminal, and the headlines and speed of a task for other callbacks."""

from __future__ import annotations

import shlex
import sys
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from rich.console import Console
from rich.text import Text

from slotbench.interfaces import Reporter
from slotbench.runs.folder import RunFolder
from slotbench.runs.headlines import score_table

__all__ = ["DataReading", "EndReport", "StepClock", "headline_records"]


def headline_records(module: LightningModule) -> list[dict[str, Any]]:
    """The task's headlines as plain data: metric, label, baselines, oracles, higher_is_better, needs; none is []."""
    return [asdict(headline) for headline in module.headlines()] if isinstance(module, Reporter) else []


class StepClock:
    """Seconds per training step over the last `window` steps, data loading included, validation and saving left out."""

    def __init__(self, window: int = 50) -> None:
        self._intervals: deque[tuple[float, float]] = deque(maxlen=window)
        self._last: float | None = None

    def tick(self, amount: float = 1.0) -> None:
        """Marks the end of a step that processed `amount` of something, e.g. frames."""
        now = time.perf_counter()
        if self._last is not None:
            self._intervals.append((now - self._last, amount))
        self._last = now

    def pause(self) -> None:
        """Leaves out the time until the end of the next step."""
        self._last = None

    @property
    def seconds_per_step(self) -> float | None:
        """Mean over the window; None before the second step."""
        return sum(seconds for seconds, _ in self._intervals) / len(self._intervals) if self._intervals else None

    @property
    def rate(self) -> float | None:
        """Amount per second over the window; None before the second step."""
        seconds = sum(seconds for seconds, _ in self._intervals)
        return sum(amount for _, amount in self._intervals) / seconds if seconds > 0 else None


class EndReport(Callback):
    """Prints at the end, or on interruption, the scores beside baselines, the images, and what to try next.

    A report that cannot be made is a warning: the result of the run is written by then. `again` are options to repeat
    when the run is resumed, such as "--plugin FILE".
    """

    def __init__(self, folder: RunFolder, console: Console | None = None, again: str = "") -> None:
        self._folder, self._console, self._again = folder, console, again

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero:
            self._report(pl_module)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Prints the report after an interruption; a failure has its own message."""
        if trainer.is_global_zero and trainer.state.fn == "fit" and self._folder.state == "interrupted":
            self._report(pl_module)

    def _report(self, module: LightningModule) -> None:
        try:
            self._print(module, self._console or Console())
        except Exception as error:
            print(f"warning: the report of {self._folder.path} cannot be shown: {error!r}", file=sys.stderr)

    def _print(self, module: LightningModule, console: Console) -> None:
        info, run = self._folder.info, self._folder.path
        minutes, seconds = divmod(round(info.get("seconds", 0)), 60)
        took = f"{info['name']} {info['state']} after {info['step']:,} steps in {minutes} min {seconds} s"
        console.print(Text(f"\n{took}", style="bold"))
        # the record's, which has the baselines of a resumed run
        headlines = info.get("headlines") or headline_records(module)
        if headlines and info.get("metrics"):
            console.print(score_table(headlines, info["metrics"]))
            if (step := info.get("metrics_step")) not in (None, info["step"]):
                note = f"Scores of step {step:,}: later weights have not been validated."
                console.print(note, highlight=False, style="dim")
        else:
            console.print("No scores: the run ended before its first validation.", highlight=False)
        patterns = ("*_latest.png", "*_latest.gif", "metrics.png", "loss.png")
        media = self._folder.media
        _section(console, "Look at", (path for pattern in patterns for path in sorted(media.glob(pattern))))
        quoted, options = shlex.quote(str(run)), f" {self._again}" if self._again else ""
        commands = [f"slotbench fit --resume {quoted}{options}"] if info["state"] != "finished" else []
        if self._folder.last_checkpoint() is not None:
            commands.append(f"slotbench test {quoted}{options}")
        if "core" in getattr(module, "parts", {}):
            commands.append(f"slotbench fit --config {quoted}/config.yaml --model.core NAME{options}")
            commands.append("slotbench plugins cores")
        if info.get("wandb_mode") == "offline":
            commands += [f"wandb sync {shlex.quote(str(path))}" for path in sorted(run.glob("wandb/offline-run-*"))]
        _section(console, "Try next", commands)


def _section(console: Console, title: str, lines: Iterable[object]) -> None:
    for number, line in enumerate(lines):
        if not number:
            console.print(f"\n{title}", style="bold")
        # never wrapped: users copy it
        console.print(f"  {line}", highlight=False, soft_wrap=True, markup=False)


class DataReading(Callback):
    """Prints the data's report on its files (`SlotDataModule.reading`): videos found, what was left out and why."""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        reading = getattr(getattr(trainer, "datamodule", None), "reading", None)
        splits = {"fit": ("train", "val"), "validate": ("val",)}.get(stage, ("test",))
        if reading is not None and trainer.is_global_zero and (words := reading(splits)):
            print(words)
