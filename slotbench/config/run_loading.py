"""Loading of recorded runs: data, and task with the weights of a checkpoint."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from slotbench import registry
from slotbench.config.jsonargparse_compat import parser_unchanged
from slotbench.config.library_refusals import explain_construction
from slotbench.config.options import RunOptions
from slotbench.config.parser import filter_messages, parse
from slotbench.config.policy import check_run_plugins
from slotbench.config.read_paths import resolve_paths
from slotbench.config.settings import load_named, read_settings
from slotbench.data.base import SlotDataModule
from slotbench.errors import UserError, lines
from slotbench.pretrained.weights import WeightError
from slotbench.runs.checkpoint_choice import DEFAULT, check_whole, choose_checkpoint
from slotbench.runs.checkpoints import load_checkpoint
from slotbench.runs.folder import RunFolder, RunFolderError
from slotbench.tasks.task import Task

__all__ = ["LoadedRun", "load_run", "load_with_settings"]


@dataclass(frozen=True)
class LoadedRun:
    """Task and data of a recorded run.

    Attributes:
        task: with the checkpoint's weights, in evaluation mode, on the CPU.
        data: as configured, with the settings given over it.
        folder: the run's record.
        checkpoint: the file that the weights are from.
        step: optimiser steps done by then.
    """

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
    """Builds the task and the data of a recorded run, and reads the weights of one of its checkpoints.

    Args:
        path: the run folder.
        checkpoint: "last", "best" (in validation), or a file.
        changes: settings over the run's own configuration, such as {"data.path": "elsewhere",
            "data.loader.batch_size": 4}.
        plugins: Python files of registered components to import first; run only those that you trust.
        allow_import: import paths beyond the registry below which the configuration may name classes.

    Raises:
        UserError: there is no such run or checkpoint, it is damaged, or it does not fit the configuration.
    """
    arguments = [word for key, value in (changes or {}).items() for word in (f"--{key}", _as_yaml(value))]
    options = RunOptions(plugin=[Path(file) for file in plugins], allow_import=list(allow_import))
    try:
        for file in options.plugin:
            registry.load_file(file)
        with parser_unchanged():
            return load_with_settings(path, str(checkpoint), arguments, options, command=None)
    except (RunFolderError, registry.RegistryError) as error:
        raise UserError(str(error)) from error


def load_with_settings(
    path: str | Path, checkpoint: str, settings: Sequence[str], options: RunOptions, command: str | None
) -> LoadedRun:
    """`load_run` with settings as they are typed, such as ["--data.path", "elsewhere"].

    Args:
        path: the run folder.
        checkpoint: "best", "last" or a file.
        settings: over the run's own.
        options: what may be imported; plugin files have been imported already.
        command: of slotbench that needs the run, for messages; None in Python.

    Raises:
        UserError: see `load_run`.
    """
    filter_messages()
    folder = RunFolder.open(path)
    file = choose_checkpoint(folder, checkpoint)
    check_whole(file, command, folder.path)
    arguments = ["--config", str(folder.path / "config.yaml"), *settings]
    given = read_settings(arguments)
    typed = None if command is None else f"slotbench {command} {shlex.quote(str(path))}"
    check_run_plugins(folder.path, options.plugin, given, typed)
    load_named(given)
    configuration = parse("fit", arguments, given, options)
    resolve_paths(configuration.values, given, folder)
    try:
        parts = configuration.instantiate()
    except (ValueError, MisconfigurationException) as error:
        raise UserError(explain_construction(error, configuration.values)) from error
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
        raise UserError(
            lines(f"{checkpoint} does not fit the run's configuration: {first}", run=str(folder.path))
        ) from error
    return int(held.get("global_step", 0))


def _as_yaml(value: Any) -> str:
    """A value as it is typed on the command line."""
    if isinstance(value, str | Path):
        return str(value)
    return yaml.safe_dump(value, default_flow_style=True, width=2**20).removesuffix("\n").removesuffix("\n...")
