"""`slotbench grid status FILE`: where every point stands, read off the files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from slotbench.commands.grid_opening import OpenGrid, Parser, choose, open_grid
from slotbench.commands.grid_words import COLOURS, counts, duration, number, points
from slotbench.grids.expansion import Point
from slotbench.grids.ledger import STATES, PointStatus

__all__ = ["count_states", "main", "print_points"]

_USAGE = """Usage: slotbench grid status FILE [--only WHAT ...] [--json]

Prints where every point of a grid stands: done (its result.json is written), running, failed, interrupted (it has
saved, and goes on), killed, or waiting. FILE is the grid file, or the folder of the grid. Exit code 0 if all are done,
else 1.

  --only WHAT ...   points whose id is like WHAT (core=RIM*), or KEY=VALUE
  --json            the same for programs
  --runs_dir DIR    folder of all runs (default: runs)
  --name NAME       the grid's folder there (default: the file's name)

Settings that were given to `grid run` for all points are those of the last `grid run`, unless others are given.

Examples:
  slotbench grid status experiments/grids/slot_count.yaml
  slotbench grid status runs/slot_count --only seed=0 --json"""


def main(action: str, arguments: list[str]) -> int:
    """Prints the table."""
    if "--help" in arguments or "-h" in arguments:
        print(_USAGE)
        return 0
    parser = Parser(action)
    parser.add_argument("--only", action="append", nargs="+", default=[])
    parser.add_argument("--json", action="store_true")
    given, rest = parser.parse_known_args(arguments)
    opened = open_grid(action, rest)
    chosen = choose(opened.grid, [word for words in given.only for word in words])
    found = [opened.folder.point(point.id).status(opened.grid.file.metrics) for point in chosen]
    if given.json:
        _print_json(opened, chosen, found)
    else:
        print_points(opened, chosen, found)
    return 0 if all(status.state == "done" for status in found) else 1


def count_states(found: Sequence[PointStatus]) -> str:
    """How many points are in which state, in words."""
    return counts({state: sum(status.state == state for status in found) for state in STATES})


def print_points(opened: OpenGrid, chosen: Sequence[Point], found: Sequence[PointStatus]) -> None:
    """The table, then the counts."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = opened.grid
    numbers = {point.id: index for index, point in enumerate(grid.points, 1)}
    keys = [key for key in grid.keys if any(key in point.labels for point in chosen)]
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("", justify="right", style="bright_black")
    for key in keys:
        table.add_column(key, overflow="fold")
    table.add_column("state")
    table.add_column("step", justify="right")
    table.add_column("duration", justify="right")
    headlines = {status.headline[0] for status in found if status.headline}
    table.add_column(headlines.pop() if len(headlines) == 1 else "headline", justify="right", overflow="fold")
    for point, status in zip(chosen, found, strict=True):
        headline = ""
        if status.headline:
            name, value = status.headline
            headline = number(value) if not headlines else f"{name} {number(value)}"
        table.add_row(
            str(numbers[point.id]),
            *(Text(point.labels.get(key, "")) for key in keys),
            Text(status.state, style=COLOURS[status.state]),
            _step(status),
            duration(status.seconds),
            Text(headline),
        )
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=max(console.measure(table).maximum, 80))
    if opened.remembered:
        console.print(f"as last run, with {opened.remembered}", markup=False)
    console.print(table)
    for point, status in zip(chosen, found, strict=True):
        if status.error:
            console.print(Text.assemble((f"{numbers[point.id]} failed: ", "red"), status.error), soft_wrap=True)
    console.print(f"{opened.folder.path}: {points(len(found))}, {count_states(found)}", soft_wrap=True, markup=False)
    if strangers := opened.folder.strangers(numbers):
        console.print(
            f"{len(strangers)} more folder{'s' * (len(strangers) != 1)} of an earlier version of the file: "
            + ", ".join(strangers[:3]) + (", …" if len(strangers) > 3 else ""),
            soft_wrap=True,
            markup=False,
        )  # fmt: skip


def _step(status: PointStatus) -> str:
    if status.step is None:
        return ""
    if status.total_steps is None or status.state == "done":
        return str(status.step)
    return f"{status.step}/{status.total_steps}"


def _print_json(opened: OpenGrid, chosen: Sequence[Point], found: Sequence[PointStatus]) -> None:
    rows = []
    for point, status in zip(chosen, found, strict=True):
        row = {**asdict(status), "folder": str(opened.folder.path / point.id), "labels": point.labels}
        row["headline"] = dict([status.headline]) if status.headline else None
        rows.append(row)
    record = {
        "name": opened.grid.name,
        "folder": str(opened.folder.path),
        "counts": {state: sum(status.state == state for status in found) for state in STATES},
        "points": rows,
        "earlier": opened.folder.strangers(point.id for point in opened.grid.points),
    }
    from slotbench.runs.files import dump_json

    print(json.dumps(json.loads(dump_json(record)), indent=2, ensure_ascii=False))
