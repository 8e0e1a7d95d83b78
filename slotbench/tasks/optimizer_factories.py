"""Builds the optimiser and the schedule of a task from their factories, over its parts; errors name the setting."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from torch import nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import CyclicLR, LambdaLR, LRScheduler, OneCycleLR, ReduceLROnPlateau

from slotbench.errors import did_you_mean, lines

__all__ = [
    "LENGTHS",
    "TrainingSettingsError",
    "build_optimizer",
    "build_schedule",
    "hold_constant",
    "part_groups",
]

LENGTHS = ("total_steps", "T_max", "total_iters")
"""Arguments that are the length of the training where the user gives none: the first is what our own schedules call it,
the others are torch's."""

_CONSTANT = "constant_rate"
"""The key of a parameter group that the schedule leaves alone."""


class TrainingSettingsError(ValueError):
    """The optimiser or the schedule cannot be what the configuration says."""


def build_optimizer(factory: Callable[[Iterable], Optimizer], groups: Iterable, *, fuse: bool = True) -> Optimizer:
    """The optimiser over these parameter groups."""
    groups = list(groups)
    # copies, because an optimiser writes its settings into the groups
    optimizer: Optimizer = _called(factory, "optimizer", _copied(groups))
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
    chosen = (defaults.get("fused"), defaults.get("foreach")) != (None, None)
    if type(optimizer) is not AdamW or chosen or defaults["differentiable"]:
        return optimizer
    trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if not all(x.is_floating_point() and x.device.type in ("cpu", "cuda") for x in trained):
        return optimizer
    settings = {name: defaults[name] for name in inspect.signature(AdamW).parameters if name != "params"}
    return AdamW(_copied(groups), **settings | {"fused": True})


def build_schedule(factory: Callable[..., LRScheduler], optimizer: Optimizer, total_steps: int | None) -> LRScheduler:
    """The schedule of the learning rate, one step of which follows each step of the optimiser.

    An argument for its length (`total_steps`, torch's `T_max` or `total_iters`, or the one required argument of a
    function behind the optimiser) that is not given is that of the training; None if nothing but the clock ends it.
    """
    before = [group["lr"] for group in optimizer.param_groups]
    length, by_place = _length_argument(factory)
    if length is not None and total_steps is None and "None" not in str(length.annotation):
        raise TrainingSettingsError(
            lines(
                f"the training has no end in steps, and {_name(factory)} needs one",
                key="trainer.max_steps",
                expected="--trainer.max_steps N or --trainer.max_epochs N beside it, or --model.schedule ConstantRate",
            )
        )
    given = () if length is None or not by_place else (total_steps,)
    named = {} if length is None or by_place else {length.name: total_steps}
    schedule: Any = _called(factory, "schedule", optimizer, *given, **named)
    name, reason = type(schedule).__name__, None
    if not isinstance(schedule, LRScheduler):
        reason = "is no LRScheduler of torch"
    elif isinstance(schedule, ReduceLROnPlateau):
        reason = "waits for a score, and a schedule here takes a step after every step of the optimiser"
    elif isinstance(schedule, OneCycleLR) and total_steps is not None and schedule.total_steps < total_steps:
        reason = f"ends after {schedule.total_steps:,} steps, and the training has {total_steps:,}"
    elif isinstance(schedule, OneCycleLR | CyclicLR) and len(set(before)) > 1:
        reason = "sets one learning rate, and parts of the model have rates of their own (model.part_rates)"
    for key in ("step_size", "T_max"):
        if getattr(schedule, key, 1) < 1:
            reason = f"has the {key} {getattr(schedule, key)}; expected 1 or more"
    if reason is not None:
        raise TrainingSettingsError(lines(f"the schedule {name} {reason}", key="model.schedule"))
    return schedule


def _length_argument(factory: Callable[..., Any]) -> tuple[inspect.Parameter | None, bool]:
    """(the argument that is the length of the training and that is not given, whether it goes by its place)."""
    built = _built_class(factory)
    try:
        parameters = dict(inspect.signature(built or factory).parameters)
    except (TypeError, ValueError):  # a builtin
        return None, False
    # the parser writes null for arguments that are not set
    keywords = factory.keywords if isinstance(factory, partial) else {}
    given = {name for name, value in keywords.items() if value is not None}
    length = next((name for name in LENGTHS if name in parameters), None)
    if length is not None:
        has_own = length in given or {"epochs", "steps_per_epoch"} <= given  # OneCycleLR counts epochs, too
        return (None, False) if has_own else (parameters[length], False)
    others = [p for name, p in list(parameters.items())[1:] if name not in given and p.kind is not p.KEYWORD_ONLY]
    required = [p for p in others if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    return (required[0], True) if built is None and len(required) == 1 else (None, False)


def _built_class(factory: Callable[..., Any]) -> type | None:
    """The class that a factory builds: itself, or that of a partial call; the parser's holds it as an argument."""
    if isinstance(factory, type):
        return factory
    found = (factory.func, *factory.args) if isinstance(factory, partial) else ()
    return next((part for part in found if isinstance(part, type)), None)


def _called(factory: Callable[..., Any], part: str, *given: Any, **named: Any) -> Any:
    """What a factory makes; a mistake in code of the user's keeps its traceback."""
    try:
        return factory(*given, **named)
    except (ValueError, TypeError, KeyError, RuntimeError, ZeroDivisionError) as error:
        built = _built_class(factory)
        if not isinstance(error, ValueError) and (built is None or not built.__module__.startswith("torch.")):
            raise
        raise TrainingSettingsError(
            lines(f"invalid arguments for {_name(factory)}: {error}", key=f"model.{part}")
        ) from error


def _name(factory: Callable[..., Any]) -> str:
    built = _built_class(factory)
    return getattr(factory, "__name__", "the schedule") if built is None else built.__name__


def part_groups(
    module: nn.Module,
    rates: Mapping[str, float],
    constant: Sequence[str],
    grouped: Callable[[list[nn.Parameter]], list[dict[str, Any]]],
) -> list[dict[str, Any]]:
    """Parameter groups of a module by its parts; what no part names comes first, with the optimiser's own rate."""
    parts = sorted({*rates, *constant}, key=len, reverse=True)
    members: dict[str, list[nn.Parameter]] = {"": [], **{part: [] for part in parts}}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            members[next((part for part in parts if f"{name}.".startswith(f"{part}.")), "")].append(parameter)
    groups: list[dict[str, Any]] = []
    for part, parameters in members.items():
        if part and not parameters:
            key = "model.part_rates" if part in rates else "model.constant_parts"
            known = [name for name, child in module.named_modules() if name and [*child.parameters()]]
            raise TrainingSettingsError(
                lines(f"no part {part!r} with anything to train{did_you_mean(part, known)}", key=key)
            )
        settings: dict[str, Any] = {"lr": rates[part]} if part in rates else {}
        if part in constant:
            settings[_CONSTANT] = True
        groups += [group | settings for group in grouped(parameters)] if parameters else []
    return groups


def hold_constant(schedule: LRScheduler) -> None:
    """Takes the groups that are marked out of a schedule."""
    marked = [number for number, group in enumerate(schedule.optimizer.param_groups) if group.get(_CONSTANT)]
    if not marked:
        return
    if not isinstance(schedule, LambdaLR):
        raise TrainingSettingsError(
            lines(f"constant_parts cannot be taken out of {type(schedule).__name__}", expected="WarmupHalfLife")
        )
    last: list[Any] = list(schedule.get_last_lr())
    for number in marked:
        group = schedule.optimizer.param_groups[number]
        schedule.lr_lambdas[number] = _unchanged
        group["lr"] = last[number] = group["initial_lr"]
    schedule._last_lr = last


def _unchanged(step: int) -> float:
    return 1.0
