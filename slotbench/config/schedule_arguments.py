"""Arguments of a learning-rate schedule that the user may set: all but the optimiser, the length optionally."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

from torch.optim.lr_scheduler import LRScheduler

from slotbench.tasks.optimizer_factories import LENGTHS, is_filled_in

__all__ = ["is_open_length", "supplied_arguments", "with_open_lengths"]


def supplied_arguments(cls: Any, supplied: set[int | str]) -> set[int | str]:
    """Arguments that a class's factory supplies: the number of leading ones, and others by name.

    A task's `schedule: Callable[[Optimizer, int], LRScheduler]` would take a schedule's second argument, whatever it
    is, from the user.

    Args:
        cls: that the factory builds.
        supplied: the same as the factory's type says it.
    """
    if not _is_schedule(cls):
        return supplied
    return {1, *((LENGTHS[0],) if is_filled_in(cls, LENGTHS[0]) else ())}


def with_open_lengths(cls: Any, parameters: list[Any]) -> list[Any]:
    """The parser's parameters of a class; the length of a schedule may be null."""
    return [
        dataclasses.replace(parameter, annotation=int | None, default=None)
        if is_open_length(cls, parameter.name)
        else parameter
        for parameter in parameters
    ]


def is_open_length(cls: Any, name: str) -> bool:
    """Whether an argument of a class is the length of a schedule, which the user may give."""
    return name in LENGTHS and _is_schedule(cls)


def _is_schedule(cls: Any) -> bool:
    return inspect.isclass(cls) and issubclass(cls, LRScheduler)
