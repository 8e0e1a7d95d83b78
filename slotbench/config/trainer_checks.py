"""Checks of trainer settings and callbacks that Lightning accepts but that cannot work in a run."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from typing import Any

import torch
from lightning.pytorch.callbacks import (
    BackboneFinetuning,
    BatchSizeFinder,
    Callback,
    EMAWeightAveraging,
    StochasticWeightAveraging,
)
from lightning.pytorch.plugins import HalfPrecision

from slotbench.errors import UserError, lines

__all__ = ["check_callbacks", "check_trainer"]

_LEAST = {
    "accumulate_grad_batches": 1,
    "check_val_every_n_epoch": 1,
    "gradient_clip_val": 0,
    "log_every_n_steps": 0,
    "val_check_interval": 1e-9,
}
_PROCESSES_PER_CORE = 4


def check_trainer(trainer: Any) -> None:
    """Refuses settings with which training would fail midway, or train nothing.

    Args:
        trainer: the settings of the trainer, by name.

    Raises:
        UserError: names the setting.
    """
    for name, least in _LEAST.items():
        value = trainer.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and not least <= value < math.inf:
            expected = "more than 0" if 0 < least < 1 else f"{least} or more"
            raise UserError(lines(f"{name} of the trainer is {value}", key=f"trainer.{name}", expected=expected))
    plugins = trainer.get("plugins")
    halves = [plugin for plugin in plugins if isinstance(plugin, HalfPrecision)] if isinstance(plugins, list) else []
    if trainer.get("precision") in ("16-true", "bf16-true") or halves or isinstance(plugins, HalfPrecision):
        raise UserError(
            lines(
                "weights of half precision do not work: the frames arrive in float32",
                key="trainer.precision",
                expected="bf16-mixed, where layers multiply in bfloat16",
            )
        )
    if trainer.get("barebones"):
        raise UserError(lines("barebones records no run", key="trainer.barebones", expected="false"))
    devices, cores = str(trainer.get("devices")), os.cpu_count() or 1
    on_cpu = trainer.get("accelerator") == "cpu" or not torch.accelerator.is_available()
    if on_cpu and devices.isdecimal() and int(devices) > _PROCESSES_PER_CORE * cores:
        raise UserError(
            lines(
                f"{int(devices):,} processes on the CPU, which has {cores} core{'' if cores == 1 else 's'}",
                key="trainer.devices",
                expected=f"at most {_PROCESSES_PER_CORE * cores}, {_PROCESSES_PER_CORE} a core",
            )
        )


def check_callbacks(callbacks: Iterable[Callback], task: Any) -> None:
    """Refuses callbacks that affect neither scores nor files, or do something else than they promise.

    Args:
        callbacks: the user's callbacks.
        task: that is trained.

    Raises:
        UserError: names the callback, why, and what to take instead.
    """
    for callback in callbacks:
        name, reason, instead = type(callback).__name__, None, None
        if isinstance(callback, StochasticWeightAveraging):
            reason = "puts its average in place after the last validation, so that no score and no best.ckpt is of it"
            instead = "EMAWeightAveraging, or WeightAveraging for the mean over all steps"
        elif isinstance(callback, BatchSizeFinder):
            reason = "changes the batch size, which is part of the experiment and stands in the run's configuration"
            instead = "--data.loader.batch_size N"
        elif isinstance(callback, BackboneFinetuning) and not hasattr(task, "backbone"):
            reason = f"trains the attribute backbone of a task, and {type(task).__name__} has none"
            instead = "model.part_rates, where the task has them"
        elif isinstance(callback, EMAWeightAveraging) and _averages_from_the_start(callback):
            reason = f"averages from the first step on; update_starting_at_epoch={callback.update_starting_at_epoch} "
            reason += "only adds the ends of epochs"
            instead = "update_starting_at_step N, or update_every_n_steps 0 for the ends of epochs alone"
        if reason is not None:
            raise UserError(lines(f"{name} {reason}", key=f"trainer.callbacks, {name}", expected=instead))


def _averages_from_the_start(callback: EMAWeightAveraging) -> bool:
    late = bool(callback.update_starting_at_epoch)
    return late and callback.update_starting_at_step is None and callback.update_every_n_steps > 0
