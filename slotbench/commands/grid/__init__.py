"""`slotbench grid run|show|test|probe|check FILE ...`: many runs from one file. Imports neither torch nor lightning."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NoReturn

from slotbench.errors import UserError, did_you_mean, lines
from slotbench.grids.engines import ENGINES

__all__ = ["ACTIONS", "main"]

ACTIONS = {
    "run": "run what has not been run yet, and resume what was interrupted or killed",
    "show": "print the state of every point, or the complete configuration of one",
    "test": "run `slotbench test`, with these settings, for every reported point that is done and not tested so",
    "probe": "run `slotbench probe`, with these options, for every reported point that is done and not probed so",
    "check": "ask the parser about every point; runs nothing",
}
_EXAMPLES = """examples:
  slotbench grid run experiments/grids/bouncing_balls_slots.yaml --jobs 2
  slotbench grid show experiments/grids/bouncing_balls_slots.yaml
  slotbench compare experiments/grids/bouncing_balls_slots.yaml

`slotbench grid ACTION --help` lists the options of an action; docs/grids.md describes the file."""
_OF_FIT = """Settings are those of fit: --trainer.max_steps 100
makes another grid, whose points lie beside those of the file; show, test and probe then mean the one run last."""
_SETTINGS = {
    "test": "Settings are those of slotbench test: --data.eval_frames 48\nhas the scores test@eval_frames=48/...",
    "probe": "Options are those of slotbench probe: --match position --head linear",
}
_PASSED_ON = (
    *("--group", "--compile", "--plugin", "--allow-import"),
    *("--wandb", "--wandb_project", "--wandb_entity", "--wandb_tags", "--wandb_notes"),
)


def main(command: str, arguments: list[str]) -> int:
    """Runs the action, or prints its help."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        actions = "\n".join(f"  {name:6} {text}" for name, text in ACTIONS.items())
        print(f"usage: slotbench grid ACTION FILE ...\n\nRuns every point of a grid file.\n\n{actions}\n\n{_EXAMPLES}")
        return 0
    action, *rest = arguments
    if action not in ACTIONS:
        near = f"; did you mean slotbench grid run {action}?" if action.endswith((".yaml", ".yml")) else ""
        near = near or did_you_mean(action, ACTIONS, 0.5)
        raise UserError(f"grid has no action {action}{near}: {', '.join(ACTIONS)}")
    parser = _parser(action)
    if {"--help", "-h"} & {*rest}:
        parser.print_help()
        return 0
    if not rest or rest[0].startswith("-"):
        example = f"slotbench grid {action} experiments/grids/bouncing_balls_slots.yaml"
        raise UserError(lines(f"grid {action} needs a grid file", example=example))
    # words before the options; later ones are values of settings
    has_point = action == "show" and len(rest) > 1 and not rest[1].startswith("-")
    given, settings = parser.parse_known_args(rest[1 + has_point :])
    given.file, given.point = Path(rest[0]), rest[1] if has_point else None
    passed_on = {option: getattr(given, option.strip("-").replace("-", "_")) or () for option in _PASSED_ON}
    given.passed_on = [word for option, values in passed_on.items() for value in values for word in (option, value)]
    if action == "run":
        from slotbench.commands.grid.run import run

        return run(given, settings)
    from slotbench.commands.grid import show

    code: int = getattr(show, action)(given, settings)
    return code


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; {self.prog} --help lists the options")


def _parser(action: str) -> argparse.ArgumentParser:
    kind = "options of slotbench probe" if action == "probe" else "settings for all points"
    usage = f"slotbench grid {action} FILE {'[POINT] ' * (action == 'show')}[{kind}] [options]"
    parser = _Parser(
        f"slotbench grid {action}",
        usage,
        f"{ACTIONS[action].capitalize()}. {_SETTINGS.get(action, _OF_FIT)}",
        _EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        add_help=False,
    )
    add = parser.add_argument
    add("--only", action="extend", nargs="+", default=[], help="points of an id like '*core=RIM*', or KEY=VALUE")
    add("--runs_dir", type=Path, default=Path("runs"), metavar="DIR", help="folder of all runs (default: runs)")
    add("--name", help="the grid's folder there (default: the file's name)")
    add("--axis", action="append", default=[], help="KEY+=VALUE adds to an axis; KEY=VALUE,... replaces its values")
    add("--threads", type=int, metavar="N", help="threads of each point (default: cores divided by jobs)")
    for option in _PASSED_ON:
        add(option, action="append", help="as of fit, for every point")
    if action == "run":
        add("--jobs", type=int, metavar="N", help="points that run at the same time (default: 1; slurm, ray: any)")
        add("--minutes", type=float, metavar="M", help="save and stop before so many minutes are over")
        add("--engine", choices=ENGINES, default="local", help="where the points run (default: local)")
        add("--retry-failed", action="store_true", help="run what has failed, too")
        add("--diverged", action="store_true", help="run what has diverged, too, from its last checkpoint")
        parser.epilog = f"--slurm.KEY VALUE asks SLURM for something, such as --slurm.partition gpu.\n\n{_EXAMPLES}"
    return parser
