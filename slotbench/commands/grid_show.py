"""`slotbench grid show FILE POINT` prints one point; `slotbench grid point FILE POINT` runs it here."""

from __future__ import annotations

from slotbench.commands.grid_opening import OpenGrid, Parser, find_point, open_grid, text
from slotbench.errors import UserError, lines
from slotbench.grids.expansion import Point
from slotbench.grids.jobs import fit_arguments
from slotbench.text import printable

__all__ = ["main"]

_SHOW = """Usage: slotbench grid show FILE POINT

Prints the complete configuration of one point of a grid, as `slotbench show` does, and on top of it, as a comment, the
line that runs the point by hand. POINT is its number in `grid status`, or the beginning of its id or of its hash.

Examples:
  slotbench grid show experiments/grids/bouncing_balls_slots.yaml 3
  slotbench grid show experiments/grids/bouncing_balls_slots.yaml num_slots=4 > mine.yaml"""

_POINT = """Usage: slotbench grid point FILE POINT [--threads N]

Runs one point of a grid in this process, in its folder of the grid: what one job of a sweep or of a CI matrix does.
A point that has been interrupted goes on, and one that is done ends at once. POINT is its number in `grid status`, or
the beginning of its id or of its hash; --point POINT says the same.

Examples:
  slotbench grid point experiments/grids/bouncing_balls_slots.yaml 3
  slotbench grid point experiments/grids/bouncing_balls_slots.yaml --point num_slots=4,seed=0-0123abcd"""


def main(action: str, arguments: list[str]) -> int:
    """Shows the point, or runs it."""
    if "--help" in arguments or "-h" in arguments:
        print(_SHOW if action == "show" else _POINT)
        return 0
    parser = Parser(action)
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


def _show(opened: OpenGrid, point: Point) -> int:
    line = text(["slotbench", "fit", *fit_arguments(point, opened.folder, opened.options)])
    # a setting may hold a line break, which would end the comment
    print("\n".join(f"# {printable(part)}" for whole in (point.id, line) for part in whole.splitlines()))
    from slotbench.commands import lightning_cli
    from slotbench.commands.quiet import hush
    from slotbench.commands.training import prepare

    hush()
    options, arguments, settings = prepare([*point.arguments, *opened.options])
    print(lightning_cli.resolve("fit", arguments, settings, options), end="")
    return 0


def _run(opened: OpenGrid, point: Point) -> int:
    from slotbench.commands import training

    threads = ["--threads", str(opened.threads)] if opened.threads else []
    arguments = fit_arguments(point, opened.folder, [*opened.options, *threads])
    opened.folder.point(point.id).prepare(point, ["slotbench", "fit", *arguments])
    return training.main("fit", arguments)
