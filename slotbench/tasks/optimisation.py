"""Optimiser and schedule, built from what the configuration says; what they refuse is said with its key."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from slotbench.errors import lines

__all__ = ["NO_END", "TrainingSettingsError", "build_optimizer", "build_schedule"]

NO_END = "the training has no end in steps"
"""How a message begins that asks for a length."""

# what torch calls an argument in its messages, where that is not its name
_SPOKEN = {"learning rate": "lr", "beta parameter": "betas", "beta": "betas", "epsilon": "eps", "momentum": "momentum"}
_GIVE_LENGTH = "--trainer.max_steps N or --trainer.max_epochs N beside it, or --model.schedule ConstantRate"


class TrainingSettingsError(ValueError):
    """The optimiser or the schedule cannot be what the configuration says."""


def build_optimizer(factory: Callable[[Iterable], Optimizer], groups: Iterable) -> Optimizer:
    """The optimiser over these parameter groups.

    Raises:
        TrainingSettingsError: it refuses an argument, or one is not a finite number.
    """
    try:
        optimizer = factory(groups)
    except ValueError as error:
        raise _refusal(error, factory, "optimizer") from error
    for name, value in optimizer.defaults.items():
        numbers = value if isinstance(value, tuple | list) else [value]
        if any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
            raise TrainingSettingsError(
                lines(f"{name} of {type(optimizer).__name__} cannot be {value}", key=f"model.optimizer.{name}")
            )
    return optimizer


def build_schedule(
    factory: Callable[[Optimizer, Any], LRScheduler], optimizer: Optimizer, total_steps: int | None
) -> LRScheduler:
    """The schedule of the learning rate.

    Args:
        factory: takes the optimiser and the steps of the whole training.
        optimizer: whose rate it sets.
        total_steps: None if nothing but the clock ends the training.

    Raises:
        TrainingSettingsError: it refuses an argument, or needs to know how long the training is.
    """
    if total_steps is None and not _does_without(factory):
        name = _name(factory, "the schedule")
        raise TrainingSettingsError(
            lines(f"{NO_END}, and {name} needs one", key="trainer.max_steps", expected=_GIVE_LENGTH)
        )
    try:
        return factory(optimizer, total_steps)
    except ValueError as error:
        raise _refusal(error, factory, "schedule") from error


def _does_without(schedule: Callable[..., Any]) -> bool:
    """Whether a schedule may be told None, which it says by the type of its second argument."""
    try:
        second = list(inspect.signature(_built(schedule) or schedule).parameters.values())[1]
    except (ValueError, TypeError, IndexError):
        return False
    return "None" in str(second.annotation)


def _refusal(error: ValueError, factory: Callable[..., Any], part: str) -> TrainingSettingsError:
    said = str(error).strip()
    built = _built(factory)
    known = list(inspect.signature(built).parameters) if built is not None else []
    named = [name for name in known if name in said.replace(":", " ").split()]
    spoken = [name for words, name in _SPOKEN.items() if words in said and name in known]
    key = ".".join(["model", part, *(named or spoken)[:1]])
    return TrainingSettingsError(
        lines(
            f"{_name(factory, f'the {part}')} refuses its arguments: {said.removeprefix(_name(factory, '') + ': ')}",
            key=key,
        )
    )


def _name(factory: Callable[..., Any], otherwise: str) -> str:
    built = _built(factory)
    return otherwise if built is None else built.__name__


def _built(factory: Callable[..., Any]) -> type | None:
    """The class that a factory builds: itself, or that of a partial call; the parser's holds it as an argument."""
    if isinstance(factory, type):
        return factory
    if isinstance(factory, partial):
        return next((found for found in (factory.func, *factory.args) if isinstance(found, type)), None)
    return None
