"""The report of a run on the terminal, and the headlines and speed of a task for other callbacks."""

from __future__ import annotations

import shlex
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar

from lightning.pytorch import Callback, LightningModule, Trainer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from slotbench.interfaces import Reporter
from slotbench.io import real
from slotbench.metric_info import score_text
from slotbench.runs.folder import RunFolder
from slotbench.runs.oracles import ORACLE, split_references
from slotbench.runs.run_info import RunInfo

__all__ = ["DataReading", "EndReport", "StepClock", "headline_records", "score_table", "short_names"]


def headline_records(module: LightningModule) -> list[dict[str, Any]]:
    """The task's headlines as plain data: metric, label, baselines, oracles, higher_is_better, needs; none is []."""
    return [asdict(headline) for headline in module.headlines()] if isinstance(module, Reporter) else []


def short_names(headlines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Metrics' names without the stage, and without what follows the first word where that word tells them apart.

    Example:
        >>> short_names([{"metric": "val/fg_ari/video"}, {"metric": "val/mse/step_1"}, {"metric": "val/mse/step_5"}])
        ['fg ari', 'mse/step 1', 'mse/step 5']
    """
    names = [str(headline["metric"]).partition("/")[2].replace("_", " ") for headline in headlines]
    first = [name.partition("/")[0] for name in names]
    return [short if first.count(short) == 1 else name for short, name in zip(first, names, strict=True)]


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
        """Leaves out the time until `resume`."""
        self._last = None

    def resume(self) -> None:
        """Starts the clock for the next step."""
        self._last = time.perf_counter()

    @property
    def seconds_per_step(self) -> float | None:
        """Mean over the window; None before the first interval."""
        return sum(seconds for seconds, _ in self._intervals) / len(self._intervals) if self._intervals else None

    @property
    def rate(self) -> float | None:
        """Amount per second over the window; None before the first interval."""
        seconds = sum(seconds for seconds, _ in self._intervals)
        return sum(amount for _, amount in self._intervals) / seconds if seconds > 0 else None


class EndReport(Callback):
    """Prints at the end, or on interruption, the scores beside baselines, the images, and what to try next.

    A report that cannot be made is a warning: the result of the run is written by then. `again` are options to repeat
    when the run is resumed, such as "--plugin FILE".
    """

    def __init__(self, folder: RunFolder, console: Console | None = None, again: str = "") -> None:
        self._folder, self._console, self._again = folder, console, again
        self._has_validated = False

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Marks that this process has computed scores."""
        self._has_validated = self._has_validated or not trainer.sanity_checking

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Prints the report."""
        if trainer.is_global_zero:
            self._report(pl_module)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Prints the report after an interruption; a failure has its own message."""
        if trainer.is_global_zero and trainer.state.fn == "fit" and self._folder.state == "interrupted":
            self._report(pl_module)

    def _report(self, module: LightningModule) -> None:
        try:
            self._print(module)
        except Exception as error:
            print(f"warning: the report of {self._folder.path} cannot be shown: {error!r}", file=sys.stderr)

    def _print(self, module: LightningModule) -> None:
        console = self._console or Console()
        info, run = self._folder.info, self._folder.path
        seconds = round(info.get("seconds", 0))
        took = f"{info['state']} after {info['step']:,} steps in {seconds // 60} min {seconds % 60} s"
        console.print()
        console.print(Text(f"{info['name']} {took}", style="bold"))
        # the record's, which has the baselines of a resumed run
        headlines = info.get("headlines") or headline_records(module)
        if headlines and info.get("metrics"):
            console.print(score_table(headlines, info["metrics"]))
            if note := self._about_scores(info):
                console.print(note, highlight=False, style="dim")
        else:
            console.print("No scores: the run ended before its first validation.", highlight=False)
        patterns = ("*_latest.png", "*_latest.gif", "metrics.png", "loss.png")
        pictures = [path for pattern in patterns for path in sorted(self._folder.media.glob(pattern))]
        _section(console, "Look at", [str(path) for path in pictures])
        quoted, options = shlex.quote(str(run)), f" {self._again}" if self._again else ""
        commands = []
        if "core" in getattr(module, "parts", {}):
            commands = [f"slotbench fit --config {quoted}/config.yaml --model.core NAME{options}"]
            commands.append("slotbench plugins cores")
        if self._folder.last_checkpoint() is not None:
            commands.insert(0, f"slotbench test {quoted}{options}")
        if info["state"] != "finished":
            commands.insert(0, f"slotbench fit --resume {quoted}{options}")
        if info.get("wandb_mode") == "offline":
            commands += [f"wandb sync {shlex.quote(str(path))}" for path in sorted(run.glob("wandb/offline-run-*"))]
        _section(console, "Try next", commands)

    def _about_scores(self, info: RunInfo) -> str:
        """A note on the weights of the scores, where they are not the last ones."""
        step = info.get("metrics_step")
        if step is None:
            return ""
        if step != info["step"]:
            return f"Scores of step {step:,}: later weights have not been validated."
        return "" if self._has_validated else f"Scores of step {step:,}, measured before the run was resumed."


def score_table(headlines: Sequence[Mapping[str, Any]], metrics: dict[str, Any]) -> Table:
    """A row per headline: its score, green if it beats every baseline, and beside it the baselines, best first.

    An oracle, which knows the simulator, has no part in the colour. A score that was not measured is a dash, or
    "unavailable" with what it needs.
    """
    table = Table(show_edge=False, pad_edge=False, header_style="dim", collapse_padding=True)
    table.add_column("score", min_width=12)
    table.add_column("this run", justify="right", no_wrap=True)
    table.add_column("baselines", no_wrap=True)
    table.add_column("", justify="right", no_wrap=True, min_width=6)
    for headline in headlines:
        value, higher = real(metrics.get(headline["metric"])), bool(headline.get("higher_is_better", True))
        baselines, oracles = split_references(headline)
        name = Text(headline.get("label") or headline["metric"])
        if value is None and headline.get("needs"):
            table.add_row(name, Text("unavailable", style="dim"), Text(f"needs {headline['needs']}", style="dim"))
            continue
        beaten = value is not None and all(value > other if higher else value < other for other in baselines.values())
        style = "bold" if not baselines and value is not None else "bold green" if beaten else "bold yellow"
        shown = Text("-" if value is None else score_text(value), style=style)
        beside = [(Text(name), Text(score_text(score))) for name, score in _best_first(baselines, higher)]
        if oracles:
            beside.append((Text(ORACLE, style="dim"), Text()))
            for oracle, score in _best_first(oracles, higher):
                beside.append((Text(f"  {oracle}", style="dim"), Text(score_text(score), style="dim")))
        table.add_row(name, shown, *(Text("\n").join(part) for part in (zip(*beside, strict=True) if beside else ())))
    return table


def _best_first(scores: dict[str, float], higher: bool) -> list[tuple[str, float]]:
    return sorted(scores.items(), key=lambda score: score[1], reverse=higher)


def _section(console: Console, title: str, lines: list[str]) -> None:
    if lines:
        console.print(f"\n{title}", style="bold")
        for line in lines:
            # never wrapped: users copy it
            console.print(f"  {line}", highlight=False, soft_wrap=True, markup=False)


class DataReading(Callback):
    """Prints the data's report on its files (`SlotDataModule.reading`): videos found, what was left out and why."""

    _SPLITS: ClassVar = {"fit": ("train", "val"), "validate": ("val",), "test": ("test",), "predict": ("test",)}

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Prints, once in a run."""
        reading = getattr(getattr(trainer, "datamodule", None), "reading", None)
        said, self._said = getattr(self, "_said", False), True
        if reading is not None and trainer.is_global_zero and not said and (words := reading(self._SPLITS[stage])):
            print(words)
