"""`slotbench compare SOURCE...`: runs as one table over seeds, in the terminal, as text, or as a page with curves."""

from __future__ import annotations

import argparse
import io
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from slotbench.commands.arguments import Parser
from slotbench.errors import UserError, did_you_mean, lines, listing

if TYPE_CHECKING:
    from slotbench.comparison.table import Comparison

__all__ = ["USAGE", "main"]

USAGE = """Usage: slotbench compare SOURCE ... [--metric NAME ...] [--only KEY=VALUE ...] [--by KEY ...] [--html FILE]

Prints one table of runs: the settings in which they differ, their scores, parameters and time per step. Runs that
differ only by their seed are one row, with mean ± standard deviation. The best of a column is marked only if it is
better than every other row by more than the spread (Welch's t-tests, Bonferroni's correction).

SOURCE is a run folder, a folder of runs (RUNS/NAME, or that of a grid), a grid file, a CSV with a line a run, or
wandb:ENTITY/PROJECT; several may be given.

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
  --html FILE             write a page with curves, configurations and images; one file that opens offline
  --title TEXT            heading of the table
  --runs_dir DIR          where the runs of a grid file are (default: runs)

Examples:
  slotbench compare runs/bouncing_balls
  slotbench compare runs/bouncing_balls-* --metric 'val/rollout_mse/step_0[15]' val/loss --html balls.html
  slotbench compare experiments/grids/bouncing_balls_cores.yaml --by model.core --out table.tex"""

_FORMATS = ("terminal", "csv", "markdown", "latex", "json")
_ENDINGS = {".csv": "csv", ".md": "markdown", ".markdown": "markdown", ".tex": "latex", ".json": "json"} | {
    ".txt": "terminal"
}


def main(command: str, arguments: list[str]) -> int:
    """Compares the runs that are named."""
    given = _parser().parse_intermixed_args(arguments)
    if not given.sources:
        # --metric, --only and --by take everything up to the next option
        before = " before --metric, --only and --by" if given.metric or given.only or given.by else ""
        raise UserError(lines(f"compare needs runs{before}", example="slotbench compare runs/NAME --by model.core"))
    form = _format(given)
    from slotbench.comparison.runs import UnknownNameError

    try:
        comparison = _compare(given, shlex.join(["slotbench", command, *arguments]))
    except UnknownNameError as error:
        # a part of a name leads to the names that hold it
        words = [word for word in re.split(r"[\W_]+", error.given.lower()) if len(word) > 1]
        alike = sorted(error.known, key=lambda name: -sum(word in name.lower() for word in words))
        near = did_you_mean(error.given, error.known)
        raise UserError(lines(f"{error}{near}", **{f"{error.kind}s": listing(alike)})) from error
    try:
        _show(comparison, form, given.out)
        if given.html:
            from slotbench.comparison.page import write_html

            write_html(comparison, given.html)
            # standard output may be the table of a program that reads it
            print(f"wrote {given.html}", file=sys.stderr)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UserError(f"{error.filename or given.out or given.html} cannot be written: {error.strerror}") from error
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser("slotbench compare")
    parser.add_argument("sources", nargs="*")
    parser.add_argument("--metric", "--metrics", nargs="+", action="extend", default=[])
    for words in ("--only", "--by"):
        parser.add_argument(words, nargs="+", action="extend", default=[])
    parser.add_argument("--select", choices=["last", "best"], default="last")
    parser.add_argument("--format", choices=_FORMATS)
    parser.add_argument("--json", dest="format", action="store_const", const="json")
    for switch in ("--runs", "--all"):
        parser.add_argument(switch, action="store_true")
    for file in ("--out", "--html"):
        parser.add_argument(file, type=Path)
    parser.add_argument("--sort")
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
    from slotbench.comparison.settings import only_runs
    from slotbench.comparison.sources import read_sources
    from slotbench.comparison.table import compare

    return compare(
        only_runs(read_sources(given.sources, given.runs_dir), given.only),
        metrics=given.metric,
        keys=given.by,
        title=given.title,
        command=typed,
        select=given.select,
        sort=given.sort,
        everything=given.all,
        apart=given.runs,
    )


def _show(comparison: Comparison, form: str, out: Path | None) -> None:
    from rich.console import Console

    from slotbench.comparison import formats
    from slotbench.io import write_atomically

    if form == "terminal":
        console = Console() if out is None else Console(width=200, record=True, file=io.StringIO())
        console.print(formats.terminal_table(comparison, console.width))
        if out is None:
            return
        text = console.export_text()
    else:
        text = getattr(formats, f"to_{form}")(comparison)
    if out is None:
        print(text, end="")
        return
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, text)
    print(f"wrote {out}")
