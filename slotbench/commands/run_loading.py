"""A recorded run, built again: its data and its task with the weights of a checkpoint."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from lightning.pytorch.utilities.exceptions import MisconfigurationException

from slotbench.commands.checkpoint_choice import check_whole, choose_checkpoint
from slotbench.commands.construction import explain_construction
from slotbench.commands.lightning_cli import config_only_cli
from slotbench.commands.options import RunOptions
from slotbench.commands.quiet import hush
from slotbench.commands.recorded_plugins import check_run_plugins
from slotbench.commands.settings import command_line_settings, load_named, read_settings
from slotbench.data.base import SlotDataModule
from slotbench.errors import UserError, lines
from slotbench.nn.weights import WeightError
from slotbench.runs.checkpoints import load_checkpoint
from slotbench.runs.folder import RunFolder, RunFolderError
from slotbench.tasks.base import SlotTask

__all__ = ["LoadedRun", "load_run"]


@dataclass(frozen=True)
class LoadedRun:
    """What a run trained, and on what.

    Attributes:
        folder: its record.
        checkpoint: the file that the weights are from.
        step: optimiser steps done by then.
        data: as configured, with the settings given over it.
        task: with the checkpoint's weights, on the CPU.
        given: arguments of the data set that were given over the run's own.
    """

    folder: RunFolder
    checkpoint: Path
    step: int
    data: SlotDataModule
    task: SlotTask
    given: frozenset[str]


def load_run(run: str, checkpoint: str, settings: list[str], options: RunOptions) -> LoadedRun:
    """Builds data and task from the run's configuration, and reads the weights.

    Args:
        run: the run folder.
        checkpoint: "last", "best" or a file.
        settings: given over the run's own, such as ["--data.path", "elsewhere"].
        options: what may be imported.

    Raises:
        UserError: there is no such run or checkpoint, or it does not fit the configuration.
    """
    hush()
    try:
        folder = RunFolder.open(run)
    except RunFolderError as error:
        raise UserError(str(error)) from error
    path = choose_checkpoint(folder, checkpoint)
    check_whole(path, "probe", folder.path)
    arguments = ["--config", str(folder.path / "config.yaml"), *settings]
    given = read_settings(arguments)
    check_run_plugins(folder.path, options.plugin, given, f"slotbench probe {shlex.quote(run)}")
    load_named(given)
    cli = config_only_cli("fit", arguments, given, options)
    config = cli.config["fit"]
    try:
        parts = cli._parser("fit").instantiate(config)
    except (ValueError, MisconfigurationException) as error:
        raise UserError(explain_construction(error, config)) from error
    task, data = parts["model"], parts["data"]
    held = load_checkpoint(path)
    try:
        task.on_load_checkpoint(held)
        task.load_state_dict(held["state_dict"])
    except WeightError as error:
        raise UserError(lines(str(error), checkpoint=str(path))) from error
    except (KeyError, RuntimeError, TypeError, AttributeError) as error:
        first = str(error).strip().partition("\n")[0]
        raise UserError(lines(f"{path} does not fit the run's configuration: {first}", run=str(folder.path))) from error
    names = frozenset(setting.key[-1] for setting in command_line_settings(settings) if setting.key)
    return LoadedRun(folder, path, int(held.get("global_step", 0)), data, task, names)
