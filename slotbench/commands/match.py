"""`slotbench match`: the width at which a core has as many parameters as a budget, or as another core, allows."""

from __future__ import annotations

import argparse
from pathlib import Path

from slotbench import registry
from slotbench.commands.arguments import Parser, split_and_load
from slotbench.errors import UserError, lines, listing
from slotbench.grids.match_arguments import CoreSettings

__all__ = ["USAGE", "main"]

USAGE = """Usage: slotbench match --config FILE [NAME ... | --all] (--parameters N | --like CORE_OR_FILE) [settings]

Finds, for each core, the width at which the experiment has as many trainable parameters as the budget, and prints what
to type for it. Nothing is trained. Exit code 1 if a core cannot be matched within the tolerance.

  NAME ...                     the cores, also as --model.core NAME; the experiment's own if none is named
  --all                        every core that is registered
  --parameters N               the budget
  --like CORE_OR_FILE          the parameters of the experiment with this core, or of another experiment, are the budget
  --part model|core            what is counted: encoder, core and decoder (default), or the core alone
  --argument [CORE=]ARGUMENT   what to vary in place of dim, for every core or for one; may be repeated
  --tolerance SHARE            how far from the budget a match may be (default: 0.1)
  --write DIR                  one DIR/CORE.yaml per match, to be given after the experiment's own --config

Settings are those of fit. --model.core.ARGUMENT VALUE goes to those of the cores that have the argument.
dim goes up by num_heads where the core has heads, any other argument by 1; what the core refuses is passed over.

Examples:
  slotbench match --config experiments/bouncing_balls.yaml RIM --model.core.num_slots 6 --parameters 600000
  slotbench match --config experiments/bouncing_balls.yaml --like SlotSSM --all --argument SplitSSM=stack_dim \\
    --write experiments/matched
  slotbench fit --config experiments/bouncing_balls.yaml --config experiments/matched/RIM.yaml"""


def main(command: str, arguments: list[str]) -> int:
    """Matches the cores and prints table and flags; 1 if one of them cannot be matched."""
    given, rest = _parser().parse_known_args(arguments)
    options, rest = split_and_load(rest)
    line = CoreSettings(rest, options)
    cores = line.cores(everything=given.all)
    variable = _arguments(given.argument, cores)
    _check(given)
    # everything above answers before torch is imported
    import torch

    from slotbench.grids.match_table import print_matches, write_matches
    from slotbench.grids.match_width import Match, budget_of, match

    torch.set_num_threads(options.threads or 1)
    line.check_core_settings(cores)
    budget = budget_of(line, given.parameters, given.like, given.part, given.tolerance)
    matches = []
    for core in cores:
        try:
            matches.append(match(core, variable.get(core, variable[""]), line, budget))
        except (UserError, registry.RegistryError) as error:
            if len(cores) == 1:
                raise
            matches.append(Match(core, problem=str(error).splitlines()[0]))
    print_matches(matches, budget)
    if given.write is not None:
        write_matches(given.write, matches, budget, line.files, arguments)
    return 0 if all(found.flags for found in matches) else 1


def _parser() -> argparse.ArgumentParser:
    parser = Parser("slotbench match")
    parser.add_argument("--all", action="store_true")
    budget = parser.add_mutually_exclusive_group(required=True)
    budget.add_argument("--parameters", type=int)
    budget.add_argument("--like")
    parser.add_argument("--argument", action="append", default=[])
    parser.add_argument("--part", choices=["model", "core"], default="model")
    parser.add_argument("--tolerance", type=float, default=0.1)
    parser.add_argument("--write", type=Path)
    return parser


def _check(given: argparse.Namespace) -> None:
    if given.tolerance < 0:
        raise UserError(f"--tolerance is {given.tolerance}; expected a share such as 0.1 for 10 %")
    if given.parameters is not None and given.parameters < 1:
        raise UserError(f"--parameters is {given.parameters}; expected 1 or more")


def _arguments(given: list[str], cores: list[str]) -> dict[str, str]:
    """Core -> the argument to vary, and "" -> that of all others."""
    variable = {"": "dim"}
    for text in given:
        core, _, argument = text.rpartition("=")
        if core and core not in cores:
            raise UserError(
                lines(f"{core} is not one of the cores to match", given=f"--argument {text}", cores=listing(cores))
            )
        variable[core] = argument
    return variable
