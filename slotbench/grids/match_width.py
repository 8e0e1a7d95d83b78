"""The width at which a core has as many trainable parameters as a budget allows: its model is built and counted."""

from __future__ import annotations

import copy
import shlex
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
import yaml
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import nn

from slotbench import registry
from slotbench.config.library_refusals import explain_construction
from slotbench.config.options import RunOptions
from slotbench.config.parser import parse
from slotbench.config.settings import load_named, read_settings
from slotbench.errors import UserError, did_you_mean, lines, listing
from slotbench.grids.match_arguments import CoreSettings
from slotbench.nn.parameters import trainable_parameters

__all__ = ["Budget", "Counts", "Match", "Model", "RefusedError", "Search", "Size", "budget_of", "find_width", "match"]

_LARGEST_WIDTH = 1 << 17
# Widths refused in a row before the search gives up: more than any product of heads and groups in use.
_PATIENCE = 256


class RefusedError(ValueError):
    """A width that the constructor does not take; the message says why."""


@dataclass(frozen=True)
class Search:
    """The two accepted widths that enclose the budget, with the parameters at each; one of them may be missing.

    Attributes:
        below: (width, parameters) of the largest width within the budget.
        above: (width, parameters) of the smallest width over it.
        problem: why there is neither.
    """

    below: tuple[int, int] | None
    above: tuple[int, int] | None
    problem: str = ""

    def nearest(self, budget: int) -> tuple[int, int] | None:
        """The one whose parameters are closer to the budget; the smaller one of two that are equally close."""
        found = [side for side in (self.below, self.above) if side is not None]
        return min(found, key=lambda side: abs(side[1] - budget)) if found else None


def find_width(count: Callable[[int], int], budget: int, step: int = 1) -> Search:
    """Bisects over the accepted multiples of `step`; the number of parameters must not fall as the width grows.

    Args:
        count: parameters at a width; raises `RefusedError` for one that is not accepted.
        budget: parameters to come close to.
        step: widths are multiples of it.
    """
    largest = _LARGEST_WIDTH // step
    refusals: list[str] = []

    @cache
    def accepted(start: int) -> tuple[int, int] | None:
        """(width, parameters) of the first accepted multiple from `start` on."""
        for multiple in range(start, min(largest + 1, start + _PATIENCE)):
            try:
                return multiple * step, count(multiple * step)
            except RefusedError as error:
                refusals.append(str(error))
        return None

    def is_over(start: int) -> bool:
        found = accepted(start)
        return found is None or found[1] > budget

    high = 1
    while high <= largest and not is_over(high):
        high *= 2
    low = high // 2
    first_over = low + 1 + bisect_left(range(low + 1, min(high, largest + 1)), True, key=is_over)
    below, above = accepted(first_over - 1) if first_over > 1 else None, accepted(first_over)
    return Search(below, above, "" if below or above else refusals[0])


@dataclass(frozen=True)
class Counts:
    """Trainable parameters of the three parts, and how many of them two parts share."""

    encoder: int
    core: int
    decoder: int
    shared: int = 0

    @property
    def total(self) -> int:
        """Parameters of the whole model."""
        return self.encoder + self.core + self.decoder - self.shared

    @property
    def terms(self) -> str:
        """The sum whose value is the total."""
        shared = f" - {self.shared:,} shared" if self.shared else ""
        return f"encoder {self.encoder:,} + core {self.core:,} + decoder {self.decoder:,}{shared}"

    def of(self, part: str) -> int:
        """Parameters of the "core", or of the whole "model"."""
        return self.core if part == "core" else self.total


class Model:
    """Data and task of a command line, parsed once and built as often as there are sizes to count.

    Nothing is trained or simulated: only the sizes of the data set are read, and weights lie on torch's meta device
    wherever the components can be built there.

    Args:
        arguments: settings as `slotbench fit` takes them.
        options: what may be imported.
    """

    def __init__(self, arguments: list[str], options: RunOptions) -> None:
        settings = read_settings(arguments)
        load_named(settings)
        self._configuration = parse("fit", arguments, settings, options)
        self._text = self._configuration.yaml()

    def core(self) -> dict[str, Any]:
        """Name and arguments of the core, complete, as they stand in a configuration."""
        core: dict[str, Any] = yaml.safe_load(self._text)["model"]["init_args"]["core"]
        return core

    def require(self, argument: str) -> None:
        """Checks that the core has the argument.

        Raises:
            UserError: it has not.
        """
        core = self.core()
        known = core.get("init_args", {})
        if argument not in known:
            raise UserError(
                lines(
                    f"{core['class_path']} has no argument {argument}{did_you_mean(argument, known)}",
                    arguments=listing(known, 20),
                    expected=f"--argument {core['class_path']}=ARGUMENT, one that sets its width",
                )
            )

    def counts(self, argument: str | None = None, value: int | None = None) -> Counts:
        """Parameters of the model, with one argument of the core set to a value if given.

        Raises:
            RefusedError: a component does not take its arguments.
        """
        config = self._configuration.values
        if argument is not None:
            config = copy.deepcopy(config)
            config["model"]["init_args"]["core"]["init_args"][argument] = value
        try:
            try:
                with torch.device("meta"):
                    task = self._configuration.instantiate(config)["model"]
            except (ValueError, RuntimeError) as error:
                # RuntimeError: a component that computes with its weights while it makes them
                if not any(isinstance(cause, RuntimeError) for cause in _causes(error)):
                    raise
                task = self._configuration.instantiate(config)["model"]
        except (ValueError, MisconfigurationException) as error:
            raise RefusedError(explain_construction(error, config)) from error
        parts = (task.encoder, task.core, task.decoder)
        counts = [trainable_parameters(part)["total"] for part in parts]
        encoder, core, decoder = counts
        together = trainable_parameters(nn.ModuleList(parts))["total"]
        return Counts(encoder, core, decoder, sum(counts) - together)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and those that it was raised from: the parser wraps whatever a component raises."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


@dataclass(frozen=True)
class Budget:
    """The number of parameters to match.

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
    """A value of the argument, and the parameters of the model with it."""

    value: int
    counts: Counts


@dataclass(frozen=True)
class Match:
    """The match of a core.

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
    model = Model(["--config", like] if is_file else line.experiment(like), line.options)
    try:
        counts = model.counts()
    except RefusedError as error:
        raise UserError(str(error)) from error
    return Budget(counts.of(part), part, tolerance, f", as {like} has ({counts.terms})")


def match(core: str, argument: str, line: CoreSettings, budget: Budget) -> Match:
    """The value of `argument` at which the experiment with this core comes closest to the budget.

    Raises:
        UserError: the core has no such argument, or takes no value of it.
    """
    settings = line.of_core(core)
    model = Model(line.experiment(core, settings), line.options)
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
