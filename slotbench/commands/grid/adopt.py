"""`slotbench grid adopt FILE RUN ...`: runs made by hand become points of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from slotbench.commands.arguments import Parser
from slotbench.commands.grid.opening import OpenGrid, open_grid
from slotbench.comparison.settings import flat_settings
from slotbench.config.command_line import resolve
from slotbench.errors import FileError, UserError, lines
from slotbench.grids.adoption import copy_in, likely_points
from slotbench.grids.expansion import Point
from slotbench.grids.jobs import fit_arguments
from slotbench.runs.differences import Difference, configuration_differences
from slotbench.runs.folder import RunFolder

__all__ = ["USAGE", "main"]

USAGE = """Usage: slotbench grid adopt FILE RUN ... [--allow-difference KEY ...]

Takes finished runs that were made by hand into a grid: a run whose complete configuration is that of a point is copied
into the point's folder, and the point is done. A run that fits no point is refused, and what differs is named. Where
and how it was run (devices, loggers, folders) is no difference. The run itself stays where it is.

  --allow-difference KEY   take a run in although KEY, or something below it, differs; may be repeated

Examples:
  slotbench grid adopt experiments/grids/bouncing_balls_slots.yaml runs/blinking_balls/*
  slotbench grid adopt experiments/grids/bouncing_balls_slots.yaml RUN --allow-difference trainer.log_every_n_steps"""


def main(action: str, arguments: list[str]) -> int:
    """Copies in what fits; 2 if a run fits no point."""
    parser = Parser(f"slotbench grid {action}")
    parser.add_argument("--allow-difference", action="append", default=[], metavar="KEY")
    given, rest = parser.parse_known_args(arguments)
    named = [index for index, word in enumerate(rest) if not word.startswith("-")]
    last = next((index for index, word in enumerate(rest) if word.startswith("-")), len(rest))
    runs = rest[1:last]
    if not named or named[0] != 0 or not runs:
        example = "slotbench grid adopt experiments/grids/bouncing_balls_slots.yaml runs/NAME/ID"
        raise UserError(lines("grid adopt needs a grid file and runs", example=example))
    opened = open_grid(action, [rest[0], *rest[last:]])
    folders = [_finished(run) for run in runs]
    refused = []
    with opened.folder.driven():
        opened.write()
        for folder in folders:
            try:
                own = resolve(["--config", str(folder.path / "config.yaml"), *opened.options]).yaml()
                point, differences = _match(opened, folder, yaml.safe_load(own), given.allow_difference)
                command = ["slotbench", "fit", *fit_arguments(point, opened.folder, opened.options)]
                target = copy_in(opened.folder, point, folder, command, own)
            except (UserError, FileError) as error:
                refused.append(str(error))
                continue
            note = f"  (although {'; '.join(map(str, differences))})" if differences else ""
            print(f"{folder.path} is {target.path} now{note}")
    if refused:
        raise UserError("\n".join(refused))
    return 0


def _finished(run: str) -> RunFolder:
    folder = RunFolder.open(run)
    if folder.state != "finished":
        raise UserError(
            lines(
                f"{run} is {folder.state}: only a run that has reached its end can be a point",
                expected=f"slotbench fit --resume {run}, first",
            )
        )
    return folder


def _match(
    opened: OpenGrid, run: RunFolder, own: dict[str, Any], allowed: Sequence[str]
) -> tuple[Point, list[Difference]]:
    """The point that the run of this configuration is, with the differences that are allowed.

    Raises:
        UserError: it is none; says how it differs from the nearest.
    """
    nearest: tuple[Point, list[Difference]] | None = None
    fitting: list[tuple[Point, list[Difference]]] = []
    for point in likely_points(opened.grid.points, flat_settings(own)):
        of_point = yaml.safe_load(resolve([*point.arguments, *opened.options]).yaml())
        differences = configuration_differences(own, of_point)
        wrong = [difference for difference in differences if not _is_allowed(difference.key, allowed)]
        if not differences:
            return point, differences
        if not wrong:
            fitting.append((point, differences))
        elif nearest is None or len(wrong) < len(nearest[1]):
            nearest = point, wrong
    if fitting:
        return _only(fitting, run, opened)
    if nearest is None:
        raise UserError(f"{opened.grid.file.path} has no points")
    point, wrong = nearest
    raise UserError(
        lines(
            f"{run.path} is no point of {opened.grid.file.path}",
            nearest=point.id,
            differs=_listed(wrong),
            **{"to take it all the same": " ".join(f"--allow-difference {one.key}" for one in wrong[:4])},
        )
    )


def _only(
    fitting: Sequence[tuple[Point, list[Difference]]], run: RunFolder, opened: OpenGrid
) -> tuple[Point, list[Difference]]:
    """The point that fits with the fewest allowed differences, if there is only one.

    Raises:
        UserError: several fit equally well, as where a key is allowed that tells the points apart.
    """
    fewest = min(len(differences) for _, differences in fitting)
    best = [(point, differences) for point, differences in fitting if len(differences) == fewest]
    if len(best) == 1:
        return best[0]
    raise UserError(
        lines(
            f"{run.path} fits {len(best)} points of {opened.grid.file.path} equally well, and is not taken in",
            points="\n".join(f"{point.id}: {_listed(differences)}" for point, differences in best[:6]),
            expected="--allow-difference for keys alone that do not tell the points apart",
        )
    )


def _listed(differences: Sequence[Difference]) -> str:
    shown = [str(difference).replace(" now", " in the point") for difference in differences[:12]]
    more = f"\n… and {len(differences) - 12} more" if len(differences) > 12 else ""
    return "\n".join(shown) + more


def _is_allowed(key: str, allowed: Sequence[str]) -> bool:
    return any(key == prefix or key.startswith(f"{prefix}.") for prefix in allowed)
