"""Matches one core to a budget of trainable parameters."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slotbench import registry
from slotbench.commands.match_model import Counts
from slotbench.commands.match_settings import CoreSettings
from slotbench.commands.match_width import RefusedError, find_width
from slotbench.errors import UserError, did_you_mean, lines, listing

__all__ = ["Budget", "Match", "Size", "budget_of", "match"]


@dataclass(frozen=True)
class Budget:
    """How many parameters there may be.

    Attributes:
        parameters: their number.
        part: "core", or "model" for encoder, core and decoder together.
        tolerance: share of the number that a match may be off.
        origin: where the number comes from, in words; "" if it was given.
    """

    parameters: int
    part: str
    tolerance: float
    origin: str = ""

    def difference(self, counts: Counts) -> float:
        """Share by which a model is over the budget, negative if it is under it."""
        return counts.of(self.part) / self.parameters - 1

    def fits(self, counts: Counts) -> bool:
        """Whether a model is within the tolerance."""
        return abs(self.difference(counts)) <= self.tolerance


@dataclass(frozen=True)
class Size:
    """A value of the argument, and the parameters that the model then has."""

    value: int
    counts: Counts


@dataclass(frozen=True)
class Match:
    """What was found for a core.

    Attributes:
        core: its name.
        argument: what was varied.
        sizes: the match; or, if nothing fits, the nearest on either side.
        flags: what makes the match on the command line; "" if there is none.
        config: name and arguments of the matched core, complete.
        problem: why nothing could be tried.
    """

    core: str
    argument: str = ""
    sizes: list[Size] = field(default_factory=list)
    flags: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    problem: str = ""


def budget_of(line: CoreSettings, parameters: int | None, like: str | None, part: str, tolerance: float) -> Budget:
    """The budget that is given as a number, or by a core of the same experiment, or by another experiment.

    Raises:
        UserError: there is no such core or file, or its model cannot be built.
    """
    if parameters is not None:
        return Budget(parameters, part, tolerance)
    if like is None:
        raise UserError("neither a number of parameters nor a core or file to be like is given")
    is_file = Path(like).suffix in (".yaml", ".yml")
    if not is_file and like not in (known := registry.names("cores")):
        raise UserError(
            lines(
                f"no core named {like}{did_you_mean(like, known)}",
                given=f"--like {like}",
                expected="a core, or the YAML file of an experiment",
                available=listing(known),
            )
        )
    model = line.model_of(like) if is_file else line.model(like, [])
    try:
        counts = model.counts()
    except RefusedError as error:
        raise UserError(str(error)) from error
    parts = f"encoder {counts.encoder:,} + core {counts.core:,} + decoder {counts.decoder:,}"
    return Budget(counts.of(part), part, tolerance, f", as {like} has ({parts})")


def match(core: str, argument: str, line: CoreSettings, budget: Budget) -> Match:
    """The value of `argument` at which the experiment with this core comes closest to the budget.

    Raises:
        UserError: the core has no such argument, or takes no value of it.
    """
    settings = line.of_core(core)
    model = line.model(core, settings)
    model.require(argument)
    heads = model.core()["init_args"].get("num_heads")
    step = heads if argument == "dim" and isinstance(heads, int) else 1
    counted: dict[int, Counts] = {}

    def count(value: int) -> int:
        counted[value] = model.counts(argument, value)
        return counted[value].of(budget.part)

    search = find_width(count, budget.parameters, step)
    nearest = search.nearest(budget.parameters)
    if nearest is None:
        raise UserError(f"{core} takes no {argument}: {search.problem}")
    best = Size(nearest[0], counted[nearest[0]])
    if not budget.fits(best.counts):
        sides = [Size(side[0], counted[side[0]]) for side in (search.below, search.above) if side is not None]
        return Match(core, argument, sides)
    config = model.core()
    config["init_args"][argument] = best.value
    flags = ["--model.core", core, *settings, f"--model.core.{argument}", str(best.value)]
    return Match(core, argument, [best], shlex.join(flags), config)
