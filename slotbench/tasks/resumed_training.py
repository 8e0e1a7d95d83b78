"""A training that is resumed with other settings: what is typed anew wins, what is not comes from the checkpoint."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from lightning.pytorch.callbacks import Checkpoint
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from slotbench.errors import lines
from slotbench.tasks.optimizer_factories import TrainingSettingsError

__all__ = ["callback_settings", "changed_settings", "check_optimizer_state", "lay_over", "lay_over_callbacks"]

_RATES = {"lr", "betas", "momentum"}  # what schedules move in the optimiser
_LAWS = {"schedule", "part_rates", "constant_parts", "total_steps", *(f"optimizer.{name}" for name in _RATES)}


def changed_settings(checkpoint: Mapping[str, Any], now: Mapping[str, Any], total_steps: int | None = None) -> set[str]:
    """The arguments of a task and its optimiser that differ from a checkpoint's, as far as both are written down."""
    before, others = checkpoint.get("hyper_parameters"), ("schedule", "part_rates", "constant_parts", "decay")
    length = {"total_steps"} if checkpoint.get("total_steps") != total_steps else set()
    if not before or not now:
        return length
    old, new = (_optimizer(given)[1] for given in (before, now))
    names = {f"optimizer.{name}" for name in {**old, **new} if old.get(name) != new.get(name)}
    return length | names | {name for name in others if before.get(name) != now.get(name)}


def _optimizer(arguments: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Class and arguments of the optimiser."""
    held = arguments.get("optimizer") or {}
    return str(held.get("class_path")).rpartition(".")[2], held.get("init_args") or {}


def lay_over(checkpoint: dict[str, Any], optimizer: Optimizer, schedule: LRScheduler, changed: set[str]) -> None:
    """Puts changed settings into a checkpoint, with the rates of a training that had them from the start.

    The schedule takes its steps anew: most of torch's multiply the last rate, which is that of the old settings.
    """
    names = {name.removeprefix("optimizer.") for name in changed}
    if changed & _LAWS:
        with warnings.catch_warnings():  # of steps without one of the optimiser
            warnings.simplefilter("ignore")
            for _ in range(checkpoint["global_step"]):
                schedule.step()
        checkpoint["lr_schedulers"] = [schedule.state_dict()]
        # and what else a schedule keeps in a group, such as its first rate
        names |= _RATES | optimizer.param_groups[0].keys() - optimizer.defaults.keys() - {"params"}
    for stored, group in zip(checkpoint["optimizer_states"][0]["param_groups"], optimizer.param_groups, strict=False):
        stored |= {name: group[name] for name in group.keys() & names}


def check_optimizer_state(checkpoint: dict[str, Any], optimizer: Optimizer, now: Mapping[str, Any]) -> None:
    """Tries whether an optimiser can take a step from the state in a checkpoint; both are spent then."""
    was, named = (_optimizer(arguments)[0] for arguments in (checkpoint.get("hyper_parameters") or now, now))
    reason = ""
    try:
        settings = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict(checkpoint["optimizer_states"][0])
        for group, given in zip(optimizer.param_groups, settings, strict=True):
            group |= given | {"params": group["params"]}
            for parameter in group["params"]:
                parameter.grad = torch.zeros_like(parameter)
        optimizer.step(lambda: 0.0)
    except (KeyError, ValueError) as error:
        reason = f": {error}"
    optimizer.zero_grad()
    if reason or was != named:
        changed = {"optimizer"} if was != named else changed_settings(checkpoint, now) - {"total_steps"}
        keys = ", ".join(f"model.{key}" for key in sorted(changed))
        what = f"{named} cannot use the state that {was} has in the run{reason}"
        way = "the settings as they were, or a new run from these weights: --model.init_from RUN"
        raise TrainingSettingsError(lines(what, key=keys, expected=way))


def callback_settings(trainer: Any) -> dict[str, dict[str, Any]]:
    """Plain arguments of callbacks by their keys in a checkpoint; none of those that write files of one folder."""
    return {
        callback.state_key: {
            name: value
            for name in inspect.signature(type(callback)).parameters
            if isinstance(value := vars(callback).get(name, vars(callback).get(f"_{name}")), int | float | str)
        }
        for callback in trainer.callbacks
        if not isinstance(callback, Checkpoint)
    }


def lay_over_callbacks(checkpoint: dict[str, Any], now: Mapping[str, Mapping[str, Any]]) -> None:
    """Puts changed settings of callbacks into their state in a checkpoint."""
    for key, before in checkpoint.get("callback_settings", {}).items():
        state, given = checkpoint["callbacks"].get(key, {}), now.get(key, before)
        state |= {name: given[name] for name in given.keys() & state.keys() if given[name] != before.get(name)}
