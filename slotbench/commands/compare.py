"""`slotbench compare SOURCE...`: runs as one table over seeds, in the terminal, as text, or as a page with curves."""

from __future__ import annotations

import argparse
import io
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slotbench.commands.arguments import Parser
from slotbench.errors import UserError, did_you_mean, lines, listing

if TYPE_CHECKING:
    from slotbench.comparison.table import Comparison

__all__ = ["main"]

_DESCRIPTION = """Prints one table of runs: the settings in which they differ, scores, parameters and time per step.
Runs that differ only by their seed are one row, with mean ± standard deviation. The best of a column is marked only if
it is better than every other row by more than the spread (Welch's t-tests, Bonferroni's correction)."""
_EXAMPLES = """examples:
  slotbench compare runs/bouncing_balls-* --metric 'val/rollout_mse/step_0[15]' val/loss --html balls.html
  slotbench compare experiments/grids/bouncing_balls_cores.yaml --by model.core --out table.tex"""
_ENDINGS = {".txt": "terminal", ".csv": "csv", ".md": "markdown", ".tex": "latex", ".json": "json"}
_ENDINGS[".markdown"] = "markdown"


def main(command: str, arguments: list[str]) -> int:
    """Compares the runs that are named."""
    given = _parser().parse_intermixed_args(arguments)
    if not given.sources:
        # --metric, --only and --by take everything up to the next option
        before = " before --metric, --only and --by" if given.metric or given.only or given.by else ""
        raise UserError(lines(f"compare needs runs{before}", example="slotbench compare runs/NAME --by model.core"))
    form = _format(given)
    from slotbench.comparison.runs import UnknownNameError
    from slotbench.comparison.settings import only_runs
    from slotbench.comparison.sources import read_sources
    from slotbench.comparison.table import compare

    try:
        comparison = compare(
            only_runs(read_sources(given.sources, given.runs_dir), given.only),
            metrics=given.metric,
            keys=given.by,
            title=given.title,
            command=shlex.join(["slotbench", command, *arguments]),
            select=given.select,
            sort=given.sort,
            everything=given.all,
            apart=given.runs,
        )
    except UnknownNameError as error:
        # a part of a name leads to the names that hold it
        words = [word for word in re.split(r"[\W_]+", error.given.lower()) if len(word) > 1]
        alike = sorted(error.known, key=lambda name: -sum(word in name.lower() for word in words))
        near = did_you_mean(error.given, error.known)
        raise UserError(lines(f"{error}{near}", **{f"{error.kind}s": listing(alike)})) from error
    _show(comparison, form, given.out)
    if given.html:
        from slotbench.comparison.page import write_html

        write_html(comparison, given.html)
        # standard output may be the table of a program that reads it
        print(f"wrote {given.html}", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    shape = argparse.RawDescriptionHelpFormatter
    parser = Parser("slotbench compare", _DESCRIPTION, epilog=_EXAMPLES, formatter_class=shape)
    add = parser.add_argument
    sources = "a run, a folder of runs or of a grid, a grid file, a CSV with a line a run, or wandb:ENTITY/PROJECT"
    add("sources", nargs="*", metavar="SOURCE", help=sources)
    several: dict[str, Any] = {"nargs": "+", "action": "extend", "default": []}
    add("--metric", "--metrics", **several, help="columns, such as 'val/miou/*'; the first one sorts")
    add("--only", **several, metavar="KEY=VALUE", help="runs with these settings, values as patterns")
    add("--by", **several, metavar="KEY", help="settings that make a row; runs are averaged over all others")
    add("--sort", metavar="METRIC", help="another column first, and sorted by it")
    selects = "scores of the last validation, or of the best one of the first column (default: last)"
    add("--select", choices=["last", "best"], default="last", help=selects)
    add("--runs", action="store_true", help="a row for every run")
    add("--all", action="store_true", help="every setting that differs, also what follows from another one")
    add("--format", choices=list(dict.fromkeys(_ENDINGS.values())), help="default: by the ending of --out")
    add("--json", dest="format", action="store_const", const="json", help="the same as --format json")
    add("--out", type=Path, metavar="FILE", help=f"write the table there: {', '.join(_ENDINGS)}")
    add("--html", type=Path, metavar="FILE", help="write a page with curves, configurations and images")
    add("--title", default="", help="heading of the table")
    add("--runs_dir", type=Path, default=Path("runs"), help="where the runs of a grid file are (default: runs)")
    return parser


def _format(given: argparse.Namespace) -> str:
    if given.out is not None and given.out.is_dir():
        raise UserError(f"--out {given.out} is a folder; expected a file, such as {given.out / 'table.md'}")
    if given.format or given.out is None:
        return given.format or "terminal"
    if given.out.suffix.lower() not in _ENDINGS:
        raise UserError(f"--out {given.out} does not say which format: end it in one of {', '.join(_ENDINGS)}")
    return _ENDINGS[given.out.suffix.lower()]


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
