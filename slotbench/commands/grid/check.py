"""`slotbench grid check FILE`: asks the parser about every point."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from slotbench.commands.arguments import Parser
from slotbench.commands.grid.opening import OpenGrid, open_grid
from slotbench.config.command_line import resolve
from slotbench.errors import UserError
from slotbench.grids.choosing import choose, covering
from slotbench.grids.expansion import Point
from slotbench.grids.status import points
from slotbench.registry import RegistryError

__all__ = ["USAGE", "check_before_start", "main", "problems"]

USAGE = """Usage: slotbench grid check FILE [--only WHAT ...] [settings for all points]

Asks the parser about every point of a grid, as `slotbench show` does, and says what is wrong with which. Runs nothing.
Exit code 2 if a point cannot be run.

  --only WHAT ...   points whose id is like WHAT (core=RIM*), or KEY=VALUE

Example:
  slotbench grid check experiments/grids/bouncing_balls_slots.yaml"""


def main(action: str, arguments: list[str]) -> int:
    """Checks the points; 0 if all of them can be run."""
    parser = Parser(f"slotbench grid {action}")
    parser.add_argument("--only", action="append", nargs="+", default=[])
    parser.add_argument("--points", nargs="+", default=[])
    given, rest = parser.parse_known_args(arguments)
    opened = open_grid(action, rest, remember=False)
    chosen = choose(opened.grid, [word for words in given.only for word in words])
    if given.points:
        chosen = [point for point in chosen if point.id in given.points]
    found = problems(chosen, opened.options)
    if not found:
        print(f"{opened.grid.file.path}: {points(len(chosen))}, and the parser takes all of them")
        return 0
    report = [f"{points(len(found))} of {len(chosen)} in {opened.grid.file.path} cannot be run"]
    by_message: dict[str, list[Point]] = {}
    for point, message in found:
        by_message.setdefault(message, []).append(point)
    for message, same in by_message.items():
        more = f" and {len(same) - 1} more" if len(same) > 1 else ""
        report += [f"{same[0].id}{more}:", *(f"  {line}" for line in message.splitlines())]
    raise UserError("\n".join(report))


def problems(chosen: Sequence[Point], options: Sequence[str]) -> list[tuple[Point, str]]:
    """The points that the parser refuses, with its messages."""
    found = []
    for point in chosen:
        try:
            resolve([*point.arguments, *options])
        except (UserError, RegistryError) as error:
            found.append((point, str(error)))
    return found


def check_before_start(opened: OpenGrid, unchecked: Sequence[Point]) -> None:
    """Checks a covering set of points and notes that they have been checked.

    Raises:
        UserError: the parser refuses some; names them, with the reasons.
    """
    some = covering(unchecked)
    print(f"asking the parser about {points(len(some))} with every value of every axis ...", flush=True)
    command = [sys.executable, "-P", "-m", "slotbench", "grid", "check", str(opened.grid.file.path)]
    command += ["--points", *(point.id for point in some), *opened.options, *opened.changes]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        message = (done.stdout + done.stderr).strip().removeprefix("slotbench: ")
        raise UserError(f"nothing has been started: {message}")
    # what differs in nothing but the seed has been seen with it
    opened.folder.note_checked([*unchecked, *opened.grid.candidates])
