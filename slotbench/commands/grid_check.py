"""`slotbench grid check FILE`: what the parser says to every point."""

from __future__ import annotations

from collections.abc import Sequence

from slotbench.commands.grid_opening import Parser, choose, open_grid
from slotbench.commands.grid_words import points
from slotbench.errors import UserError
from slotbench.grids.expansion import Point
from slotbench.registry import RegistryError

__all__ = ["main", "problems"]

_USAGE = """Usage: slotbench grid check FILE [--only WHAT ...] [settings for all points]

Asks the parser about every point of a grid, as `slotbench show` does, and says what is wrong with which. Runs nothing.
Exit code 2 if a point cannot be run.

  --only WHAT ...   points whose id is like WHAT (core=RIM*), or KEY=VALUE

Example:
  slotbench grid check experiments/grids/bouncing_balls_slots.yaml"""


def main(action: str, arguments: list[str]) -> int:
    """Checks the points; 0 if all of them can be run."""
    if "--help" in arguments or "-h" in arguments:
        print(_USAGE)
        return 0
    parser = Parser(action)
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
    said = [f"{points(len(found))} of {len(chosen)} in {opened.grid.file.path} cannot be run"]
    by_message: dict[str, list[Point]] = {}
    for point, message in found:
        by_message.setdefault(message, []).append(point)
    for message, same in by_message.items():
        more = f" and {len(same) - 1} more" if len(same) > 1 else ""
        said += [f"{same[0].id}{more}:", *(f"  {line}" for line in message.splitlines())]
    raise UserError("\n".join(said))


def problems(chosen: Sequence[Point], options: Sequence[str]) -> list[tuple[Point, str]]:
    """The points that the parser refuses, with what it says."""
    from slotbench.commands import lightning_cli
    from slotbench.commands.quiet import hush
    from slotbench.commands.training import prepare

    hush()
    found = []
    for point in chosen:
        try:
            run_options, arguments, settings = prepare([*point.arguments, *options])
            lightning_cli.config_only_cli("fit", arguments, settings, run_options)
        except (UserError, RegistryError) as error:
            found.append((point, str(error)))
    return found
