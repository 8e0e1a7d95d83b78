"""`slotbench grid status FILE` prints where every point stands; `show` prints one of them, and `point` runs it here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from slotbench.commands.arguments import Parser
from slotbench.commands.grid.opening import OpenGrid, open_grid, text
from slotbench.config.command_line import resolve
from slotbench.errors import UserError, lines
from slotbench.files import dump_json
from slotbench.grids.choosing import choose, find_point
from slotbench.grids.expansion import Point
from slotbench.grids.jobs import fit_arguments, whole_arguments
from slotbench.grids.ledger import PointStatus
from slotbench.grids.protocol import choices
from slotbench.grids.status import status_lines, status_record
from slotbench.text import one_line, printable

__all__ = ["USAGE", "main"]

_STATUS = """Usage: slotbench grid status FILE [--only WHAT ...] [--json]

Prints where every point of a grid stands: done (its result.json is written), running, failed, interrupted (it has
saved, and can be resumed), killed, or waiting. FILE is the grid file, or the folder of the grid. Exit code 0 if all are
done, else 1.

  --only WHAT ...   points whose id is like WHAT (core=RIM*), or KEY=VALUE
  --json            the same for programs
  --runs_dir DIR    folder of all runs (default: runs)
  --name NAME       the grid's folder there (default: the file's name)

Settings that were given to `grid run` for all points are those of the last `grid run`, unless others are given.

Examples:
  slotbench grid status experiments/grids/bouncing_balls_slots.yaml
  slotbench grid status runs/slot_count --only seed=0 --json"""

_SHOW = """Usage: slotbench grid show FILE POINT

Prints the complete configuration of one point of a grid, as `slotbench show` does, and on top of it, as a comment, the
line that runs the point by hand. POINT is its number in `grid status`, or the beginning of its id or of its hash.

Examples:
  slotbench grid show experiments/grids/bouncing_balls_slots.yaml 3
  slotbench grid show experiments/grids/bouncing_balls_slots.yaml num_slots=4 > mine.yaml"""

_POINT = """Usage: slotbench grid point FILE POINT [--threads N]

Runs one point of a grid in this process, in its folder of the grid: what one job of a sweep or of a CI matrix does.
A point that has been interrupted is resumed, and one that is done ends at once. POINT is its number in `grid status`,
or the beginning of its id or of its hash; --point POINT says the same.

Examples:
  slotbench grid point experiments/grids/bouncing_balls_slots.yaml 3
  slotbench grid point experiments/grids/bouncing_balls_slots.yaml --point num_slots=4,seed=0-0123abcd"""

USAGE = {"status": _STATUS, "show": _SHOW, "point": _POINT}


def main(action: str, arguments: list[str]) -> int:
    """Prints all points, prints one, or runs one."""
    if action == "status":
        return _status(arguments)
    parser = Parser(f"slotbench grid {action}")
    parser.add_argument("--point")
    given, rest = parser.parse_known_args(arguments)
    wanted = given.point
    if wanted is None and len(rest) > 1 and not rest[1].startswith("-"):
        wanted = rest.pop(1)
    if wanted is None:
        example = f"slotbench grid {action} {rest[0] if rest else 'experiments/grids/bouncing_balls_slots.yaml'} 1"
        raise UserError(lines(f"grid {action} needs a grid file and a point", example=example))
    opened = open_grid(action, rest)
    point = find_point(opened.grid, wanted)
    return _show(opened, point) if action == "show" else _run(opened, point)


def _status(arguments: list[str]) -> int:
    parser = Parser("slotbench grid status")
    parser.add_argument("--only", action="append", nargs="+", default=[])
    parser.add_argument("--json", action="store_true")
    given, rest = parser.parse_known_args(arguments)
    opened = open_grid("status", rest)
    # of a grid with a protocol these are more than there are as yet
    everything = replace(opened.grid, points=opened.grid.candidates)
    there = {point.id for point in opened.grid.points}
    words = [word for words in given.only for word in words]
    chosen = [point for point in choose(everything, words) if point.id in there]
    found = [opened.folder.point(point.id).status(opened.grid.file.metrics) for point in chosen]
    if given.json:
        record = json.loads(dump_json(status_record(opened.grid, opened.folder, chosen, found)))
        print(json.dumps(record, indent=2, ensure_ascii=False))
    else:
        if opened.remembered:
            print(f"as last run, with {one_line(opened.remembered)}")
        print("\n".join(status_lines(opened.grid, opened.folder, chosen, found)))
    return 0 if _is_done(opened, found) else 1


def _is_done(opened: OpenGrid, found: Sequence[PointStatus]) -> bool:
    """Whether all points are done; a candidate of the protocol may have diverged instead."""
    stages = {point.id: point.stage for point in opened.grid.points}
    states = [status.state for status in found if not (status.state == "diverged" and stages[status.id] == "choose")]
    return set(states) <= {"done"} and all(choice.chosen is not None for choice in choices(opened.grid, opened.folder))


def _show(opened: OpenGrid, point: Point) -> int:
    line = text(["slotbench", "fit", *fit_arguments(point, opened.folder, opened.options)])
    # a setting may hold a line break, which would end the comment
    print("\n".join(f"# {printable(part)}" for whole in (point.id, line) for part in whole.splitlines()))
    print(resolve([*whole_arguments(point, opened.folder), *opened.options]).yaml(), end="")
    return 0


def _run(opened: OpenGrid, point: Point) -> int:
    from slotbench.commands import training

    if point.after and (state := opened.folder.point(point.after).state()) != "done":
        raise UserError(
            lines(
                f"{point.id} starts from {point.after}, which is {state}",
                expected=f"slotbench grid point {opened.grid.file.path} {point.after}, first",
            )
        )
    threads = ["--threads", str(opened.threads)] if opened.threads else []
    arguments = fit_arguments(point, opened.folder, [*opened.options, *threads])
    opened.folder.point(point.id).prepare(point, ["slotbench", "fit", *arguments])
    return training.main("fit", arguments)
