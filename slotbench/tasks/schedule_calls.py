"""How a learning-rate schedule is called: the length of the training goes by name, and only to one that asks for it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch.optim.lr_scheduler import LRScheduler

__all__ = ["LENGTHS", "UNSUITABLE", "ScheduleCall", "built_class", "is_filled_in", "schedule_call"]

LENGTHS = ("total_steps", "T_max", "total_iters")
"""Arguments that are the length of the training where the user gives none: the first is what our own schedules call it,
the others are torch's."""

_OF_OTHERS = "is made of other schedules, which a configuration cannot name; from Python it can be given"
_OF_FUNCTIONS = "takes a function, which a configuration cannot name; from Python it can be given"
UNSUITABLE = {
    "ReduceLROnPlateau": "waits for a score, and a schedule here takes a step after every step of the optimiser",
    "LambdaLR": _OF_FUNCTIONS,
    "MultiplicativeLR": _OF_FUNCTIONS,
    "SequentialLR": _OF_OTHERS,
    "ChainedScheduler": _OF_OTHERS,
}
"""Schedules of torch that a configuration cannot name, and why: the rest of a sentence that begins with the name."""

_EMPTY = inspect.Parameter.empty
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class ScheduleCall:
    """What a factory of schedules is called with, beside the optimiser.

    Attributes:
        by_name: the argument that is the length of the training; None if it has none, or the user has given it.
        by_place: whether a function takes the length as its second argument, under a name of its own.
        needs_length: whether it cannot be made without.
        missing: required arguments that are not given.
    """

    by_name: str | None
    by_place: bool
    needs_length: bool
    missing: tuple[str, ...]


def schedule_call(factory: Callable[..., Any]) -> ScheduleCall:
    """How this factory is to be called: a class, a function, or a `functools.partial` of one."""
    built = built_class(factory)
    try:
        parameters = dict(inspect.signature(built or factory).parameters)
    except (TypeError, ValueError):  # a builtin; the contract is optimiser and length
        return ScheduleCall(None, True, True, ())
    # the parser writes null for arguments that are not set
    given = {name for name, value in _keywords(factory).items() if value is not None}
    length = next((name for name in LENGTHS if name in parameters), None)
    others = [parameter for name, parameter in list(parameters.items())[1:] if name not in (length, *given)]
    required = [parameter for parameter in others if parameter.default is _EMPTY and parameter.kind in _POSITIONAL]
    if length is not None:
        by_name = None if length in given or _counts_epochs(given) else length
        needs = by_name is not None and "None" not in str(parameters[length].annotation)
        return ScheduleCall(by_name, False, needs, tuple(parameter.name for parameter in required))
    many = any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters.values())
    if built is None and (many or len(required) == 1):
        return ScheduleCall(None, True, required == [] or "None" not in str(required[0].annotation), ())
    return ScheduleCall(None, False, False, tuple(parameter.name for parameter in required))


def built_class(factory: Callable[..., Any]) -> type | None:
    """The class that a factory builds: itself, or that of a partial call; the parser's holds it as an argument."""
    if isinstance(factory, type):
        return factory
    if not isinstance(factory, partial):
        return None
    of_parser = str(getattr(factory.func, "__module__", "")).partition(".")[0] == "jsonargparse"
    return next(
        (found for found in (factory.func, *(factory.args if of_parser else ())) if isinstance(found, type)), None
    )


def is_filled_in(schedule: type, name: str) -> bool:
    """Whether an argument of a schedule's constructor is for the task alone, and not for a configuration.

    That is `total_steps` where the constructor has no default for it, as in our own schedules.
    """
    declared = inspect.signature(schedule).parameters.get(name)
    is_length = name == LENGTHS[0] and declared is not None and declared.default is _EMPTY
    return is_length and issubclass(schedule, LRScheduler)


def _keywords(factory: Callable[..., Any]) -> Mapping[str, Any]:
    return factory.keywords if isinstance(factory, partial) else {}


def _counts_epochs(given: set[str]) -> bool:
    """Whether OneCycleLR gets its length in epochs."""
    return {"epochs", "steps_per_epoch"} <= given
