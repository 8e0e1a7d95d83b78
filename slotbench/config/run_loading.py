"""Loading of recorded runs: data, and task with the weights of a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning.pytorch.utilities.exceptions import MisconfigurationException

from slotbench import registry
from slotbench.config.command_line import read_with_plugins
from slotbench.config.data_paths import resolve_paths
from slotbench.config.jsonargparse_compat import parser_unchanged
from slotbench.config.options import RunOptions
from slotbench.config.parser import Configuration, filter_messages
from slotbench.config.slips import raised_by_component
from slotbench.data.base import SlotDataModule
from slotbench.errors import UserError, lines
from slotbench.pretrained.weights import WeightError
from slotbench.runs.checkpoint_choice import DEFAULT, check_whole, choose_checkpoint
from slotbench.runs.checkpoints import load_checkpoint
from slotbench.runs.folder import CONFIG, RunFolder, RunFolderError
from slotbench.tasks.task import Task

__all__ = ["LoadedRun", "load_run", "load_with_settings"]


@dataclass(frozen=True)
class LoadedRun:
    """Task of a recorded run, with a checkpoint's weights and after so many steps, on the CPU; its data; its folder."""

    task: Task
    data: SlotDataModule
    folder: RunFolder
    checkpoint: Path
    step: int


def load_run(
    path: str | Path,
    checkpoint: str | Path = DEFAULT,
    changes: Mapping[str, Any] | None = None,
    plugins: Iterable[str | Path] = (),
    allow_import: Iterable[str] = (),
) -> LoadedRun:
    """Task and data of a recorded run, with a checkpoint's weights; arguments are those of `slotbench.load_run`.

    Raises:
        UserError: there is no such run or checkpoint, it is damaged, or it does not fit the configuration.
    """
    arguments: list[str] = []
    for key, value in (changes or {}).items():
        arguments += [f"--{key}", str(value) if isinstance(value, str | Path) else json.dumps(value)]
    options = RunOptions(plugin=[Path(file) for file in plugins], allow_import=list(allow_import))
    try:
        with parser_unchanged():
            return load_with_settings(path, str(checkpoint), arguments, options, command=None)
    except (RunFolderError, registry.RegistryError) as error:
        raise UserError(str(error)) from error


def load_with_settings(
    path: str | Path, checkpoint: str, settings: Sequence[str], options: RunOptions, command: str | None
) -> LoadedRun:
    """`load_run` with settings as they are typed, such as ["--data.path", "elsewhere"], and options of a command line.

    `command` is the one of slotbench that needs the run, for messages; None in Python.
    """
    filter_messages()
    folder = RunFolder.open(path)
    file = choose_checkpoint(folder, checkpoint)
    check_whole(file, command, folder.path)
    arguments = ["--config", str(folder.path / CONFIG), *settings]
    given = read_with_plugins(command, options, arguments, folder.path)
    configuration = Configuration("fit", given, options)
    resolve_paths(configuration.values, folder, given.typed)
    try:
        parts = configuration.instantiate()
    except (ValueError, MisconfigurationException) as error:
        raise UserError(str(raised_by_component(error))) from error
    task, data = parts["model"], parts["data"]
    step = _load_weights(task, file, folder)
    return LoadedRun(task.eval(), data, folder, file, step)


def _load_weights(task: Task, checkpoint: Path, folder: RunFolder) -> int:
    """Fills the task with a checkpoint's weights; returns the optimiser steps that they have had."""
    held = load_checkpoint(checkpoint)
    try:
        task.on_load_checkpoint(held)
        task.load_state_dict(held["state_dict"])
    except WeightError as error:
        raise UserError(lines(str(error), checkpoint=str(checkpoint))) from error
    except (KeyError, RuntimeError, TypeError, AttributeError) as error:
        first = str(error).strip().partition("\n")[0]
        raise UserError(f"{checkpoint} does not fit the configuration of {folder.path}: {first}") from error
    return int(held.get("global_step", 0))
