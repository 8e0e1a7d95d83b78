"""Learning rates by part of the model, and parts whose learning rate no schedule changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from slotbench.errors import did_you_mean, lines
from slotbench.tasks.optimizer_factories import TrainingSettingsError

__all__ = ["CONSTANT", "hold_constant", "part_groups"]

CONSTANT = "constant_rate"
"""The key of a parameter group that the schedule leaves alone."""


def part_groups(
    module: nn.Module,
    rates: Mapping[str, float],
    constant: Sequence[str],
    grouped: Callable[[list[nn.Parameter]], list[dict[str, Any]]],
) -> list[dict[str, Any]]:
    """Parameter groups of a module by its parts; what no part names comes first, with the optimiser's own rate.

    Args:
        module: whose parameters are trained.
        rates: learning rate by the name of a part, such as "core" or "decoder.slot_map"; of two that name a parameter
            the longer one holds.
        constant: parts whose learning rate stays as it is, whatever the schedule.
        grouped: makes groups of the parameters of one part, by what decays.

    Raises:
        TrainingSettingsError: there is no such part, or it has nothing to train.
    """
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
            settings[CONSTANT] = True
        groups += [group | settings for group in grouped(parameters)] if parameters else []
    return groups


def hold_constant(schedule: LRScheduler) -> None:
    """Takes the groups that are marked out of a schedule.

    Raises:
        TrainingSettingsError: there are some, and the schedule is none that multiplies rates.
    """
    marked = [number for number, group in enumerate(schedule.optimizer.param_groups) if group.get(CONSTANT)]
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
