"""`slotbench grid status FILE`: where every point stands, read off the files."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict

from slotbench.commands.grid_opening import OpenGrid, Parser, choose, open_grid
from slotbench.commands.grid_words import counts, duration, number, points
from slotbench.grids.expansion import Point
from slotbench.grids.ledger import STATES, PointStatus
from slotbench.runs.files import dump_json
from slotbench.text import one_line

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
  slotbench grid status experiments/grids/bouncing_balls_slots.yaml
  slotbench grid status runs/slot_count --only seed=0 --json"""


_LONGEST = 40
_CODES: Mapping[str, int] = {
    "done": 32,
    "diverged": 31,
    "running": 36,
    "failed": 31,
    "interrupted": 33,
    "killed": 33,
    "waiting": 90,
}


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
    grid = opened.grid
    numbers = {point.id: str(index) for index, point in enumerate(grid.points, 1)}
    keys = [key for key in grid.keys if any(key in point.labels for point in chosen)]
    headlines = {status.headline[0] for status in found if status.headline}
    score = headlines.pop() if len(headlines) == 1 else "headline"
    rows = [["", *keys, "state", "step", "duration", score]]
    for point, status in zip(chosen, found, strict=True):
        labels = [_cut(point.labels.get(key, "")) for key in keys]
        headline = f"{status.headline[0]} " * bool(headlines) + number(status.headline[1]) if status.headline else ""
        rows.append([numbers[point.id], *labels, status.state, _step(status), duration(status.seconds), headline])
    if opened.remembered:
        print(f"as last run, with {one_line(opened.remembered)}")
    rows = [[one_line(cell) for cell in row] for row in rows]
    print("\n".join(_columns(rows, left=range(1, len(keys) + 2), state=len(keys) + 1)))
    for point, status in zip(chosen, found, strict=True):
        if status.error:
            print(f"{numbers[point.id]} {status.state}: {one_line(status.error)}")
    print(f"{one_line(opened.folder.path)}: {points(len(found))}, {count_states(found)}")
    if strangers := opened.folder.strangers(numbers):
        shown = ", ".join(strangers[:3]) + (", …" if len(strangers) > 3 else "")
        folders = f"{len(strangers)} more folder{'s' * (len(strangers) != 1)}"
        print(f"{folders} of an earlier version of the file: {one_line(shown)}")


def _columns(rows: Sequence[Sequence[str]], left: Iterable[int], state: int) -> Iterator[str]:
    """Lines of a table; by hand, as a table of rich's takes seconds for a thousand rows."""
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left = set(left)
    for row_index, row in enumerate(rows):
        cells = [
            cell.ljust(width) if index in left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        if coloured and row_index == 0:
            cells = [f"\033[1m{cell}\033[0m" for cell in cells]
        elif coloured:
            cells[state] = f"\033[{_CODES[row[state]]}m{cells[state]}\033[0m"
        yield "  ".join(cells).rstrip()


def _cut(label: str) -> str:
    return label if len(label) <= _LONGEST else f"{label[: _LONGEST - 1]}…"


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
    print(json.dumps(json.loads(dump_json(record)), indent=2, ensure_ascii=False))
