"""`slotbench compare SOURCE...`: runs as one table over seeds, in the terminal, as text, or as a page with curves."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from slotbench.commands.arguments import Parser
from slotbench.errors import UserError, did_you_mean, lines, listing
from slotbench.text import one_line

if TYPE_CHECKING:
    from slotbench.comparison.records import Comparison

__all__ = ["USAGE", "main"]

USAGE = """Usage: slotbench compare SOURCE ... [--metric NAME ...] [--only KEY=VALUE ...] [--by KEY ...] [--html FILE]

Prints one table of runs: the settings in which they differ, their scores, parameters and time per step. Runs that
differ only by their seed are one row, with mean ± standard deviation. The best of a column is marked only if it is
better than every other row by more than the spread (Welch's t-tests, Bonferroni's correction).

SOURCE is a run folder, a folder of runs (RUNS/NAME, or that of a grid), a grid file, wandb:ENTITY/PROJECT, or
wandb-offline:FOLDER; several may be given.

  --metric NAME ...       columns, such as val/loss or 'val/miou/*'; the first one sorts (default: those of the grid
                          file, else the headlines of the runs and val/loss)
  --only KEY=VALUE ...    runs with these settings, values as patterns; of one key any may hold, different keys must all
  --by KEY ...            settings that make a row, such as model.core; runs are averaged over all others
  --sort METRIC           another column first, and sorted by it
  --select last|best      scores of the last validation, or of the one that was best in the first column (default: last)
  --runs                  a row for every run
  --all                   every setting that differs as a column, also what follows from another one
  --format terminal|csv|markdown|latex|json  (default: by the ending of --out, else terminal)
  --json                  the same as --format json: every value in full, for programs
  --out FILE              write the table there: .csv, .md, .tex, .json, or .txt
  --html FILE             write a page with curves, plots, configurations and images; one file that opens offline
  --wandb_report ENTITY/PROJECT     make a W&B report of runs that are in that project; needs a key
  --wandb_workspace ENTITY/PROJECT  the same as a saved view of the project
  --against FILE.csv      end with 1 if a score has changed from an earlier --out FILE.csv by more than its spread
  --title TEXT            heading of the table
  --runs_dir DIR          where the runs of a grid file are (default: runs)

Examples:
  slotbench compare runs/bouncing_balls
  slotbench compare runs/bouncing_balls-* --metric 'val/rollout_mse/step_0[15]' val/loss --html balls.html
  slotbench compare experiments/grids/bouncing_balls_cores.yaml --by model.core --out table.tex"""

_FORMATS = ("terminal", "csv", "markdown", "latex", "json")
_ENDINGS = {
    ".csv": "csv",
    ".md": "markdown",
    ".markdown": "markdown",
    ".tex": "latex",
    ".json": "json",
    ".txt": "terminal",
}


def main(command: str, arguments: list[str]) -> int:
    """Compares the runs that are named."""
    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = _say  # type: ignore[assignment]
        return _main(command, arguments)


def _say(message: Warning | str, *where: object) -> None:
    """Prints a warning without its place in the code."""
    print(f"warning: {one_line(message)}", file=sys.stderr)


def _main(command: str, arguments: list[str]) -> int:
    given = _parser().parse_intermixed_args(arguments)
    if not given.sources:
        # --metric, --only and --by take everything up to the next option
        before = " before --metric, --only and --by" if given.metric or given.only or given.by else ""
        raise UserError(lines(f"compare needs runs{before}", example="slotbench compare runs/NAME --by model.core"))
    form = _format(given)
    from slotbench.comparison.records import UnknownNameError

    try:
        comparison = _compare(given, shlex.join(["slotbench", command, *arguments]))
    except UnknownNameError as error:
        # a part of a name leads to the names that hold it
        words = [word for word in re.split(r"[\W_]+", error.given.lower()) if len(word) > 1]
        alike = sorted(error.known, key=lambda name: -sum(word in name.lower() for word in words))
        shared = [name for name in alike if any(word in name.lower() for word in words)]
        near = did_you_mean(error.given, error.known) or (f"; did you mean {shared[0]}?" if shared else "")
        raise UserError(lines(f"{error}{near}", **{f"{error.kind}s": listing(alike)})) from error
    except OSError as error:
        raise UserError(f"{error.filename or 'a run'} cannot be read: {error.strerror}") from error
    try:
        _show(comparison, form, given)
        if given.html:
            _write_page(comparison, given.html)
        _send(comparison, given)
        return 0 if given.against is None else _against(comparison, given.against)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise UserError(f"{error.filename or given.out or given.html} cannot be written: {error.strerror}") from error


def _parser() -> argparse.ArgumentParser:
    parser = Parser("slotbench compare")
    parser.add_argument("sources", nargs="*")
    for words in ("--metric", "--only", "--by"):
        parser.add_argument(words, nargs="+", action="extend", default=[])
    parser.add_argument("--select", choices=["last", "best"], default="last")
    parser.add_argument("--format", choices=_FORMATS)
    parser.add_argument("--json", dest="format", action="store_const", const="json")
    for switch in ("--runs", "--all"):
        parser.add_argument(switch, action="store_true")
    for file in ("--out", "--html", "--against"):
        parser.add_argument(file, type=Path)
    for text in ("--sort", "--wandb_report", "--wandb_workspace"):
        parser.add_argument(text)
    parser.add_argument("--title", default="")
    parser.add_argument("--runs_dir", type=Path, default=Path("runs"))
    return parser


def _format(given: argparse.Namespace) -> str:
    if given.out is None:
        return given.format or "terminal"
    if given.out.is_dir():
        raise UserError(f"--out {given.out} is a folder; expected a file, such as {given.out / 'table.md'}")
    if given.format:
        return given.format
    if given.out.suffix.lower() not in _ENDINGS:
        raise UserError(
            f"--out {given.out} does not say which format: end it in {', '.join(_ENDINGS)}, or add --format"
        )
    return _ENDINGS[given.out.suffix.lower()]


def _compare(given: argparse.Namespace, typed: str) -> Comparison:
    from slotbench.comparison.selection import logged_metrics, only_runs
    from slotbench.comparison.sources import open_sources
    from slotbench.comparison.table import compare

    sources = open_sources(given.sources, given.runs_dir)
    runs, notes = only_runs(sources.runs, given.only)
    # a grid's columns need not be those of every part of it
    columns = logged_metrics(sources.metrics, runs) if given.only else sources.metrics
    return compare(
        runs,
        metrics=given.metric or columns or None,
        keys=given.by or None,
        title=given.title or sources.title,
        command=typed,
        select=given.select,
        sort=given.sort,
        everything=given.all,
        apart=given.runs,
        notes=[*notes, *sources.notes],
        protocol=sources.protocol,
        of_grid=sources.grids == len(given.sources),
    )


def _show(comparison: Comparison, form: str, given: argparse.Namespace) -> None:
    if form == "terminal" and given.out is None:
        from rich.console import Console

        from slotbench.comparison.formats.terminal import print_comparison

        print_comparison(comparison, Console())
        return
    text = _text(comparison, form, given.runs)
    if given.out is None:
        print(text, end="")
        return
    from slotbench.files import write_atomically

    _make_folder(given.out)
    write_atomically(given.out, text)
    print(f"wrote {given.out}")


def _write_page(comparison: Comparison, file: Path) -> None:
    from slotbench.comparison.page.page import write_html

    _make_folder(file)
    write_html(comparison, file)
    # standard output may be the table of a program that reads it
    print(f"wrote {file}", file=sys.stderr)


def _send(comparison: Comparison, given: argparse.Namespace) -> None:
    if given.wandb_report or given.wandb_workspace:
        from slotbench.comparison.wandb.workspaces import make_report, make_workspace

        if given.wandb_report:
            print(f"report: {make_report(comparison, given.wandb_report)}", file=sys.stderr)
        if given.wandb_workspace:
            print(f"workspace: {make_workspace(comparison, given.wandb_workspace)}", file=sys.stderr)


def _against(comparison: Comparison, stored: Path) -> int:
    """Names the scores that have changed; 1 if there are any."""
    from slotbench.comparison.stored_table import changed_scores

    found = changed_scores(comparison, stored)
    # standard output may be the table of a program that reads it
    print(
        "\n".join(map(one_line, found)) or f"no score of {stored} has changed by more than its spread", file=sys.stderr
    )
    return int(bool(found))


def _text(comparison: Comparison, form: str, apart: bool) -> str:
    from slotbench.comparison.formats import json_format, terminal, text_formats

    if form == "csv":
        return text_formats.runs_to_csv(comparison) if apart else text_formats.to_csv(comparison)
    if form == "markdown":
        return text_formats.to_markdown(comparison)
    if form == "latex":
        return text_formats.to_latex(comparison)
    if form == "json":
        return json_format.to_json(comparison)
    return terminal.plain_text(comparison)


def _make_folder(file: Path) -> None:
    file.absolute().parent.mkdir(parents=True, exist_ok=True)
