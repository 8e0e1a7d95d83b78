"""What a run came to, on the terminal."""

from __future__ import annotations

import shlex
import sys
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.trainer.states import TrainerFn
from rich.console import Console
from rich.table import Table
from rich.text import Text

from slotbench.callbacks.reporting import headline_records
from slotbench.runs.folder import RunFolder
from slotbench.runs.oracles import ORACLE, split_references
from slotbench.text import one_line, printable

__all__ = ["EndReport", "score_table"]


class EndReport(Callback):
    """Prints at the end, or on interruption, the scores beside trivial answers, the pictures, and what to try next.

    A report that cannot be made is a warning: the result of the run is written by then.

    Args:
        folder: the run.
        console: where to print; standard output by default.
        again: options that are to be given again to go on with the run, such as "--plugin FILE".
    """

    def __init__(self, folder: RunFolder, console: Console | None = None, again: str = "") -> None:
        self._folder = folder
        self._again = again
        self._console = console
        self._has_validated = False

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Remembers that there are scores of this process."""
        self._has_validated = self._has_validated or not trainer.sanity_checking

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Prints the report."""
        if trainer.is_global_zero:
            self._report(pl_module)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Prints the report after an interruption; a failure has its own message."""
        if trainer.is_global_zero and trainer.state.fn == TrainerFn.FITTING and self._folder.state == "interrupted":
            self._report(pl_module)

    def _report(self, module: LightningModule) -> None:
        try:
            self._print(module)
        except Exception as error:
            what = one_line(f"{type(error).__name__}: {error}")
            print(f"warning: the report of {printable(self._folder.path)} cannot be shown: {what}", file=sys.stderr)

    def _print(self, module: LightningModule) -> None:
        console = self._console or Console()
        info, run = self._folder.info, self._folder.path
        seconds = round(info.get("seconds", 0))
        took = f"{info['state']} after {info['step']:,} steps in {seconds // 60} min {seconds % 60} s"
        console.print()
        console.print(Text(one_line(f"{info['name']} {took}"), style="bold"))
        # the record's, which has the baselines of a run that goes on
        headlines = info.get("headlines") or headline_records(module)
        if headlines and info.get("metrics"):
            console.print(score_table(headlines, info["metrics"]))
            if note := self._about_scores(info):
                console.print(note, highlight=False, style="dim")
        else:
            console.print("No scores: the run ended before its first validation.", highlight=False)
        pictures = [
            path for suffix in (".png", ".gif") for path in sorted(self._folder.media.glob(f"*_latest{suffix}"))
        ]
        pictures += [path for name in ("metrics.png", "loss.png") if (path := self._folder.media / name).is_file()]
        _section(console, "Look at", [str(path) for path in pictures])
        quoted = shlex.quote(str(run))
        options = f" {self._again}" if self._again else ""
        commands = [
            f"slotbench fit --config {quoted}/config.yaml --model.core NAME{options}",
            "slotbench plugins cores",
        ]
        if self._folder.last_checkpoint() is not None:
            commands.insert(0, f"slotbench test {quoted}{options}")
        if info["state"] != "finished":
            commands.insert(0, f"slotbench fit --resume {quoted}{options}")
        if info.get("wandb_mode") == "offline":
            commands += [f"wandb sync {shlex.quote(str(path))}" for path in sorted(run.glob("wandb/offline-run-*"))]
        _section(console, "Try next", commands)

    def _about_scores(self, info: dict[str, Any]) -> str:
        """Of which weights the scores are, where that goes without saying."""
        step = info.get("metrics_step")
        if not isinstance(step, int):
            return ""
        if step != info["step"]:
            return f"Scores of step {step:,}: later weights have not been validated."
        return "" if self._has_validated else f"Scores of step {step:,}, measured before the run went on."


def score_table(headlines: list[dict[str, Any]], metrics: dict[str, Any]) -> Table:
    """A row per headline: its score, green if it beats every baseline, and beside it the baselines, a line each.

    Baselines are trivial answers, from best to worst. An oracle, which knows the simulator, stands below them under a
    line that says so, and has no part in the colour. A score that was not measured is a dash, or, if the headline says
    what it needs, "unavailable" with that. Narrow terminals break the names of the scores, and no number.
    """
    table = Table(show_edge=False, pad_edge=False, header_style="dim", collapse_padding=True)
    table.add_column("score", min_width=12)
    table.add_column("this run", justify="right", no_wrap=True)
    table.add_column("baselines", no_wrap=True)
    table.add_column("", justify="right", no_wrap=True, min_width=6)
    for headline in headlines:
        value, higher = _number(metrics.get(headline["metric"])), bool(headline.get("higher_is_better", True))
        floors, oracles = split_references(headline)
        name = Text(one_line(headline.get("label") or headline["metric"]))
        needs = headline.get("needs") if value is None else None
        if needs:
            table.add_row(name, Text("unavailable", style="dim"), Text(f"needs {one_line(needs)}", style="dim"))
            continue
        beaten = value is not None and all(value > floor if higher else value < floor for floor in floors.values())
        style = "bold" if not floors and value is not None else "bold green" if beaten else "bold yellow"
        shown = Text("-" if value is None else _digits(value), style=style)
        beside = [(Text(one_line(floor)), Text(_digits(score))) for floor, score in _best_first(floors, higher)]
        if oracles:
            beside.append((Text(ORACLE, style="dim"), Text()))
            beside += [
                (Text(f"  {one_line(oracle)}", style="dim"), Text(_digits(score), style="dim"))
                for oracle, score in _best_first(oracles, higher)
            ]
        table.add_row(name, shown, *(Text("\n").join(part) for part in (zip(*beside, strict=True) if beside else ())))
    return table


def _best_first(scores: dict[str, float], higher: bool) -> list[tuple[str, float]]:
    return sorted(scores.items(), key=lambda score: score[1], reverse=higher)


def _number(value: Any) -> float | None:
    """A score of the record, which says in words what is no finite number; None where there is none."""
    try:
        return None if value is None else float(value)
    except (TypeError, ValueError):
        return None


def _digits(value: float) -> str:
    """Three decimals, or as many digits where a small error would show as nothing."""
    return f"{value:.3g}" if 0 < abs(value) < 0.0995 else f"{value:.3f}"


def _section(console: Console, title: str, lines: list[str]) -> None:
    if lines:
        console.print(f"\n{title}", style="bold")
        for line in lines:
            # never wrapped: it is to be copied
            console.print(f"  {one_line(line)}", highlight=False, soft_wrap=True, markup=False)
