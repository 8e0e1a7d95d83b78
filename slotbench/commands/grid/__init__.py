"""`slotbench grid ACTION ...`: many runs from one file. Imports neither torch nor lightning."""

from __future__ import annotations

import importlib

from slotbench.errors import UserError, did_you_mean, lines
from slotbench.help_text import print_help

__all__ = ["ACTIONS", "main"]

_USAGE = """Usage: slotbench grid ACTION FILE ...

Runs every point of a grid file, each in a folder of its own, as often as it takes until all of them are done.

  run FILE [settings]    run what has not been run yet; --jobs N, --minutes M, --engine local|slurm|ray, --only WHAT
  status FILE            where every point stands
  retry FILE             run what has not been run yet, and what has failed
  test FILE              `slotbench test` for what is done, and reported
  show FILE POINT        one point's complete configuration, and the line that runs it by hand
  check FILE             ask the parser about every point, and run nothing
  point FILE POINT       run one point here, in its folder of the grid
  pack FILE ARCHIVE      the records of what has ended as one small file, without weights
  unpack FILE ARCHIVE    lay such a file into the grid's folder

Examples:
  slotbench grid run experiments/grids/bouncing_balls_slots.yaml --dry-run
  slotbench grid run experiments/grids/bouncing_balls_slots.yaml --jobs 2
  slotbench grid status experiments/grids/bouncing_balls_slots.yaml
  slotbench compare experiments/grids/bouncing_balls_slots.yaml

slotbench grid ACTION --help says more."""

ACTIONS = {
    "run": "run",
    "retry": "run",
    "test": "test",
    "status": "show",
    "show": "show",
    "point": "show",
    "check": "check",
    "pack": "pack",
    "unpack": "pack",
}
"""Action -> module of this package."""


def main(command: str, arguments: list[str]) -> int:
    """Runs the action, or prints its help."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print_help(_USAGE)
        return 0
    action, *rest = arguments
    if action not in ACTIONS:
        near = did_you_mean(action, ACTIONS, 0.5)
        if action.endswith((".yaml", ".yml")):
            near = f"; did you mean slotbench grid run {action}?"
        raise UserError(lines(f"grid has no action {action}{near}", actions=", ".join(ACTIONS)))
    module = importlib.import_module(f"{__name__}.{ACTIONS[action]}")
    if {"--help", "-h"} & {*rest}:
        print_help(module.USAGE if isinstance(module.USAGE, str) else module.USAGE[action])
        return 0
    code: int = module.main(action, rest)
    return code
