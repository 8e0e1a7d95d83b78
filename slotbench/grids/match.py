"""The width at which a core has as many trainable parameters as a budget allows: its model is built and counted."""

from __future__ import annotations

import copy
import shlex
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
import yaml
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import nn

from slotbench.config.command_line import resolve
from slotbench.errors import UserError, did_you_mean, listing
from slotbench.nn.parameters import trainable_parameters

__all__ = [
    "Budget",
    "Counts",
    "Match",
    "Model",
    "RefusedError",
    "find_width",
    "match",
    "print_matches",
    "write_matches",
]

_LARGEST_WIDTH = 1 << 17
# Widths refused in a row before the search gives up: more than any product of heads and groups in use.
_PATIENCE = 256

Side = tuple[int, int]
"""A width, and the parameters at it."""


class RefusedError(ValueError):
    """A width that the constructor does not take; the message says why."""


def find_width(count: Callable[[int], int], budget: int, step: int = 1) -> tuple[Side | None, Side | None]:
    """The largest accepted multiple of `step` within the budget, and the smallest over it; None where there is none.

    Bisects: the number of parameters must not fall as the width grows. `count` raises `RefusedError` for a width that
    is not accepted, and so does this if none is.
    """
    largest = _LARGEST_WIDTH // step
    refusals: list[RefusedError] = []

    @cache
    def accepted(start: int) -> Side | None:
        """The first accepted multiple from `start` on."""
        for multiple in range(start, min(largest + 1, start + _PATIENCE)):
            try:
                return multiple * step, count(multiple * step)
            except RefusedError as error:
                refusals.append(error)
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
    if below is None and above is None:
        raise refusals[0]
    return below, above


class Counts(NamedTuple):
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


class Model:
    """Data and task of a command line, parsed once and built as often as there are sizes to count.

    Nothing is trained or simulated, and weights lie on torch's meta device wherever the components can be built there.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self._configuration = resolve(list(arguments))
        #: name and arguments of the core, complete, as they stand in a configuration
        self.core: dict[str, Any] = yaml.safe_load(self._configuration.yaml())["model"]["init_args"]["core"]

    def counts(self, argument: str | None = None, value: int | None = None) -> Counts:
        """Parameters of the model, with one argument of the core set to a value if given."""
        values = copy.deepcopy(self._configuration.values)
        if argument is not None:
            values["model"]["init_args"]["core"]["init_args"][argument] = value
        try:
            try:
                with torch.device("meta"):
                    task = self._configuration.instantiate(copy.deepcopy(values))["model"]
            except (ValueError, RuntimeError):  # a component may compute with its weights while it makes them
                task = self._configuration.instantiate(values)["model"]
        except (ValueError, MisconfigurationException) as error:
            raise RefusedError(str(error.__cause__ or error)) from error
        parts = (task.encoder, task.core, task.decoder)
        encoder, core, decoder = (trainable_parameters(part)["total"] for part in parts)
        together = trainable_parameters(nn.ModuleList(parts))["total"]
        return Counts(encoder, core, decoder, encoder + core + decoder - together)


class Budget(NamedTuple):
    """Parameters to match, of the "core" or the "model"; the share that a match may be off; their origin in words."""

    parameters: int
    part: str
    tolerance: float
    origin: str = ""

    def of(self, counts: Counts) -> int:
        """What is counted of a model."""
        return counts.core if self.part == "core" else counts.total

    def difference(self, counts: Counts) -> float:
        """Share by which a model is over the budget, negative if it is under it."""
        return self.of(counts) / self.parameters - 1


@dataclass(frozen=True)
class Match:
    """The value of an argument of a core that matches, or the nearest on either side; `flags` are "" without one."""

    core: str
    argument: str = ""
    sizes: list[tuple[int, Counts]] = field(default_factory=list)
    flags: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    problem: str = ""


def match(core: str, argument: str, model: Model, settings: Sequence[str], budget: Budget) -> Match:
    """The value of `argument` at which a model comes closest to the budget; `settings` of its core are as typed.

    Raises:
        UserError: the core has no such argument, or takes no value of it.
    """
    known = model.core.get("init_args", {})
    if argument not in known:
        raise UserError(
            f"{core} has no argument {argument}{did_you_mean(argument, known)}; it has {listing(known, 20)}"
        )
    heads = known.get("num_heads")
    counted: dict[int, Counts] = {}

    def count(value: int) -> int:
        counted[value] = model.counts(argument, value)
        return budget.of(counted[value])

    try:
        sides = find_width(count, budget.parameters, heads if argument == "dim" and isinstance(heads, int) else 1)
    except RefusedError as error:
        raise UserError(f"{core} takes no {argument}: {error}") from error
    found = [(side[0], counted[side[0]]) for side in sides if side is not None]
    best, counts = min(found, key=lambda size: abs(budget.difference(size[1])))
    if abs(budget.difference(counts)) > budget.tolerance:
        return Match(core, argument, found)
    flags = ["--model.core", core, *settings, f"--model.core.{argument}", str(best)]
    config = {**model.core, "init_args": {**known, argument: best}}
    return Match(core, argument, [(best, counts)], shlex.join(flags), config)


def print_matches(matches: Sequence[Match], budget: Budget) -> None:
    """Prints the budget, one line per core or two where nothing fits, and the flags that make each match."""
    from rich.console import Console
    from rich.table import Table

    table = Table("core", "width", "encoder", "core", "decoder", "total", "difference", box=None, pad_edge=False)
    for found in matches:
        for value, counts in found.sizes:
            numbers = [f"{number:,}" for number in (*counts[:3], counts.total)]
            table.add_row(
                found.core, f"{found.argument} {value}", *numbers, f"{100 * budget.difference(counts):+.1f} %"
            )
    of = "the core" if budget.part == "core" else "encoder, core and decoder"
    print(f"budget: {budget.parameters:,} trainable parameters of {of}{budget.origin}\n")
    Console().print(table)
    for found in matches:
        if not found.flags:
            nothing = f"no {found.argument} comes within {100 * budget.tolerance:g} %; the nearest are above"
            print(f"\n{found.core}: {found.problem or nothing}")
    if any(found.flags for found in matches):
        print("\nto type:", *(found.flags for found in matches if found.flags), sep="\n  ")


def write_matches(
    folder: Path, matches: Sequence[Match], budget: Budget, files: Sequence[str], arguments: Sequence[str]
) -> None:
    """Writes FOLDER/CORE.yaml for each match, with the command line that has found it."""
    folder.mkdir(parents=True, exist_ok=True)
    for found in matches:
        if not found.flags:
            continue
        counts, path = found.sizes[0][1], folder / f"{found.core}.yaml"
        experiment = " ".join(f"--config {shlex.quote(file)}" for file in files)
        header = [
            f"# {found.core} with about {budget.parameters:,} trainable parameters of the {budget.part}:",
            f"#   {counts.terms} = {counts.total:,} ({100 * budget.difference(counts):+.1f} %)",
            f"#   slotbench fit {experiment} --config {shlex.quote(str(path))}",
            f"# Made by: slotbench match {shlex.join(arguments)}",
        ]
        content = {"model": {"init_args": {"core": found.config}}}
        path.write_text("\n".join([*header, yaml.safe_dump(content, sort_keys=False)]), encoding="utf-8")
        print(f"wrote {path}")
