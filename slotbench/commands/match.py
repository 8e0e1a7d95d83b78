"""`slotbench match`: the width at which a core has as many parameters as a budget, or as another core, allows."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from slotbench import registry
from slotbench.commands.arguments import Parser, expect, positive
from slotbench.errors import UserError, did_you_mean, listing

__all__ = ["main"]

_DESCRIPTION = """Finds, for each core, the width at which the experiment has as many trainable parameters as the
budget, and prints what to type for it. Nothing is trained. Exit code 1 if a core cannot be matched.
Settings are those of fit; --model.core.ARGUMENT VALUE goes to those of the cores that have the argument.
dim goes up by num_heads where the core has heads, any other argument by 1; what the core refuses is
passed over."""
_EXAMPLES = """examples:
  slotbench match --config experiments/bouncing_balls.yaml RIM --model.core.num_slots 6 --parameters 600000
  slotbench match --config experiments/bouncing_balls.yaml --like SlotSSM --all --write experiments/matched"""


def main(command: str, arguments: list[str]) -> int:
    """Matches the cores and prints table and flags; 1 if one of them cannot be matched."""
    given, rest = _parser().parse_known_args(arguments)
    for file in given.plugin:
        registry.load_file(file)
    named, of_core, others = _sorted(rest)
    others += [word for file in given.plugin for word in ("--plugin", str(file))]
    known = registry.names("cores")
    expect("core", [*named, *([given.like] if given.like and not _is_file(given.like) else [])], known)
    # everything above answers before torch is imported
    from slotbench.grids.match import Budget, Match, Model, RefusedError, match, print_matches, write_matches

    cores = known if given.all else named or [Model(others).core["class_path"]]
    models = {core: Model([*others, "--model.core", core]) for core in cores}
    arguments_of = {core: set(model.core.get("init_args", {})) for core, model in models.items()}
    for key in of_core:
        if not any(key in names for names in arguments_of.values()):
            every = sorted(set().union(*arguments_of.values()))
            raise UserError(f"no argument {key} of {listing(cores)}{did_you_mean(key, every)}")
    variable = dict(text.rpartition("=")[::2] for text in given.argument)
    if strange := variable.keys() - {"", *cores}:
        raise UserError(f"{strange.pop()} of --argument is not one of the cores to match: {listing(cores)}")
    budget = Budget(given.parameters or 1, given.part, given.tolerance)
    if given.like:
        like = ["--config", given.like] if _is_file(given.like) else [*others, "--model.core", given.like]
        try:
            counts = Model(like).counts()
        except RefusedError as error:
            raise UserError(str(error)) from error
        budget = Budget(budget.of(counts), given.part, given.tolerance, f", as {given.like} has ({counts.terms})")
    matches = []
    for core, model in models.items():
        settings = [
            word for key in of_core if key in arguments_of[core] for word in (f"--model.core.{key}", of_core[key])
        ]
        try:
            if settings:
                model = Model([*others, "--model.core", core, *settings])
            matches.append(match(core, variable.get(core) or variable.get("") or "dim", model, settings, budget))
        except UserError as error:
            if len(cores) == 1:
                raise
            matches.append(Match(core, problem=str(error).splitlines()[0]))
    print_matches(matches, budget)
    if given.write is not None:
        files = [file for option, file in pairwise(others) if option == "--config"]
        write_matches(given.write, matches, budget, files, arguments)
    return 0 if all(found.flags for found in matches) else 1


def _sorted(arguments: Sequence[str]) -> tuple[list[str], dict[str, str], list[str]]:
    """Names of cores, settings of cores by argument, and all other settings."""
    named, others = list[str](), list[str]()
    of_core: dict[str, str] = {}
    words = iter(arguments)
    for word in words:
        if not word.startswith("--"):
            named.append(word)
            continue
        key, equals, value = word.partition("=")
        value = value if equals else next(words, "")
        if key == "--model.core":
            named.append(value)
        elif key.startswith("--model.core."):
            of_core[key.removeprefix("--model.core.").removeprefix("init_args.")] = value
        else:
            others += [key, value]
    return list(dict.fromkeys(named)), of_core, others


def _is_file(text: str) -> bool:
    return Path(text).suffix in (".yaml", ".yml")


def _parser() -> argparse.ArgumentParser:
    usage = "slotbench match --config FILE [NAME ... | --all] (--parameters N | --like CORE_OR_FILE) [settings]"
    shape = argparse.RawDescriptionHelpFormatter
    parser = Parser("slotbench match", _DESCRIPTION, usage=usage, epilog=_EXAMPLES, formatter_class=shape)
    parser.add_argument("--all", action="store_true", help="every core that is registered")
    budget = parser.add_mutually_exclusive_group(required=True)
    budget.add_argument("--parameters", type=positive, metavar="N", help="the budget")
    budget.add_argument("--like", metavar="CORE_OR_FILE", help="a core or an experiment that has the budget's number")
    varied = "[CORE=]ARGUMENT"
    parser.add_argument("--argument", action="append", default=[], metavar=varied, help="what to vary in place of dim")
    parser.add_argument("--part", choices=["model", "core"], default="model", help="what is counted")
    parser.add_argument("--tolerance", type=float, default=0.1, metavar="SHARE", help="how far a match may be off")
    parser.add_argument("--write", type=Path, metavar="DIR", help="write DIR/CORE.yaml for each match")
    parser.add_argument("--plugin", type=Path, action="append", default=[], metavar="FILE", help="as of fit")
    return parser
