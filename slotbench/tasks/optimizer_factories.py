"""Builds the optimiser and the schedule of a task from their factories; an error names the key of the configuration."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import CyclicLR, LRScheduler, OneCycleLR, ReduceLROnPlateau

from slotbench.errors import lines
from slotbench.tasks.schedule_calls import UNSUITABLE, built_class, schedule_call

__all__ = ["NO_END", "TrainingSettingsError", "build_optimizer", "build_schedule"]

NO_END = "the training has no end in steps"
"""How a message begins that asks for a length."""

FUSED_DEVICES = ("cpu", "cuda")
"""Where AdamW is fused unless the user says otherwise."""

# what torch calls an argument in its messages, where that is not its name
_SPOKEN = {"learning rate": "lr", "beta parameter": "betas", "beta": "betas", "epsilon": "eps", "momentum": "momentum"}
_GIVE_LENGTH = "--trainer.max_steps N or --trainer.max_epochs N beside it, or --model.schedule ConstantRate"


class TrainingSettingsError(ValueError):
    """The optimiser or the schedule cannot be what the configuration says."""


def build_optimizer(factory: Callable[[Iterable], Optimizer], groups: Iterable, *, fuse: bool = True) -> Optimizer:
    """The optimiser over these parameter groups.

    An AdamW without an explicit `fused` or `foreach` is PyTorch's fused one, where that is possible: the same
    step up to rounding, in one call for all parameters of a group. Every other optimiser is as the factory makes it.

    Args:
        factory: makes an optimiser from parameters, or groups of them.
        groups: the parameters.
        fuse: whether AdamW may be fused. A fused one takes gradients that a scaler has enlarged, so that what reads or
            clips them before the step would see the enlarged ones.

    Raises:
        TrainingSettingsError: it refuses an argument, or one is not a finite number.
    """
    groups = list(groups)
    try:
        # copies, because an optimiser writes its settings into the groups
        optimizer = factory(_copied(groups))
    except (ValueError, RuntimeError, TypeError) as error:
        built = built_class(factory)
        if not isinstance(error, ValueError) and (built is None or not built.__module__.startswith("torch.")):
            raise  # a mistake in code of the user's, whose traceback says where
        raise _refusal(error, factory, "optimizer") from error
    if fuse:
        optimizer = _fused(optimizer, groups)
    for name, value in optimizer.defaults.items():
        numbers = value if isinstance(value, tuple | list) else [value]
        if any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
            raise TrainingSettingsError(
                lines(f"{name} of {type(optimizer).__name__} cannot be {value}", key=f"model.optimizer.{name}")
            )
    return optimizer


def _copied(groups: list[Any]) -> list[Any]:
    return [dict(group) if isinstance(group, dict) else group for group in groups]


def _fused(optimizer: Optimizer, groups: list[Any]) -> Optimizer:
    """The fused form of a plain AdamW without an explicit implementation; any other optimiser unchanged."""
    defaults = optimizer.defaults
    if (
        type(optimizer) is not AdamW
        or (defaults["fused"], defaults["foreach"]) != (None, None)
        or defaults["differentiable"]
    ):
        return optimizer
    trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if not all(x.is_floating_point() and x.device.type in FUSED_DEVICES for x in trained):
        return optimizer
    settings = {name: defaults[name] for name in inspect.signature(AdamW).parameters if name != "params"}
    return AdamW(_copied(groups), **settings | {"fused": True})


def build_schedule(factory: Callable[..., LRScheduler], optimizer: Optimizer, total_steps: int | None) -> LRScheduler:
    """The schedule of the learning rate, one step of which follows each step of the optimiser.

    A schedule that has an argument for its length (`total_steps`, or torch's `T_max` or `total_iters`) and was not
    given one gets that of the training, by this name; every other one gets the optimiser alone. A
    function with a second argument of another name, and no default for it, takes the length there.

    Args:
        factory: makes a schedule from the optimiser.
        optimizer: whose learning rate it sets.
        total_steps: steps of the whole training; None if nothing but the clock ends it.

    Raises:
        TrainingSettingsError: it refuses an argument or lacks one, needs to know how long the training is, is none
            that a step can follow, or sets one learning rate where parts have rates of their own.
    """
    call, name = schedule_call(factory), _name(factory, "the schedule")
    if call.missing:
        key = f"model.schedule.{call.missing[0]}"
        needed = " and ".join(call.missing)
        raise TrainingSettingsError(lines(f"{name} needs {needed}", key=key, expected=f"--{key} VALUE"))
    if total_steps is None and call.needs_length:
        raise TrainingSettingsError(
            lines(f"{NO_END}, and {name} needs one", key="trainer.max_steps", expected=_GIVE_LENGTH)
        )
    before = [group["lr"] for group in optimizer.param_groups]
    by_place = [total_steps] if call.by_place else []
    by_name = {call.by_name: total_steps} if call.by_name is not None else {}
    try:
        schedule = factory(optimizer, *by_place, **by_name)
    except (ValueError, TypeError, KeyError, ZeroDivisionError) as error:
        built = built_class(factory)
        if not isinstance(error, ValueError) and (built is None or not built.__module__.startswith("torch.")):
            raise  # a mistake in code of the user's, whose traceback says where
        raise _refusal(error, factory, "schedule") from error
    _check_schedule(schedule, before, total_steps)
    return schedule


def _check_schedule(schedule: Any, before: list[float], total_steps: int | None) -> None:
    """Refuses what cannot be stepped after each step of the optimiser.

    Args:
        schedule: that was made.
        before: learning rate of each parameter group, before there was a schedule.
        total_steps: steps of the whole training, if they are known.
    """
    name = type(schedule).__name__
    if not isinstance(schedule, LRScheduler):
        raise TrainingSettingsError(
            lines(f"the schedule that was made is a {name}, and no LRScheduler of torch", key="model.schedule")
        )
    if isinstance(schedule, ReduceLROnPlateau):
        raise TrainingSettingsError(lines(f"{name} {UNSUITABLE['ReduceLROnPlateau']}", key="model.schedule"))
    if isinstance(schedule, OneCycleLR) and total_steps is not None and schedule.total_steps < total_steps:
        raise TrainingSettingsError(
            lines(
                f"{name} ends after {schedule.total_steps:,} steps, and the training has {total_steps:,}",
                key="model.schedule.total_steps",
                expected="at least as many, or none: then it is as long as the training",
            )
        )
    for key in ("step_size", "T_max"):
        if getattr(schedule, key, 1) < 1:
            refused = f"{name}: {key} is {getattr(schedule, key)}; expected 1 or more"
            raise TrainingSettingsError(lines(refused, key=f"model.schedule.{key}"))
    after = [group.get("initial_lr", group["lr"]) for group in schedule.optimizer.param_groups]
    if len(set(before)) > 1 and after != before and isinstance(schedule, OneCycleLR | CyclicLR):
        raise TrainingSettingsError(
            lines(
                f"{name} sets one learning rate, and parts of the model have rates of their own",
                key="model.part_rates",
                expected="a schedule that multiplies rates, such as WarmupCosine; or no part_rates",
            )
        )


def _refusal(error: Exception, factory: Callable[..., Any], part: str) -> TrainingSettingsError:
    # a KeyError's own text is its message in quotes
    message = " ".join(str(error.args[0] if isinstance(error, KeyError) else error).split())
    built = built_class(factory)
    # without the first, which is parameters or the optimiser, and not the user's
    known = list(inspect.signature(built).parameters)[1:] if built is not None else []
    named = [name for name in known if name in re.findall(r"\w+", message)]
    spoken = [name for words, name in _SPOKEN.items() if words in message and name in known]
    key = ".".join(["model", part, *(named or spoken)[:1]])
    return TrainingSettingsError(
        lines(
            f"invalid arguments for {_name(factory, f'the {part}')}: {message.removeprefix(_name(factory, '') + ': ')}",
            key=key,
        )
    )


def _name(factory: Callable[..., Any], otherwise: str) -> str:
    built = built_class(factory)
    return otherwise if built is None else built.__name__
