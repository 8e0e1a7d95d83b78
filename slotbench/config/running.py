"""Runs fit, validate, test or predict with LightningCLI, recorded in a run folder."""

from __future__ import annotations

import errno
import os
import pickle
import shlex
import sys
from pathlib import Path
from typing import Any, cast

import torch
from jsonargparse import Namespace
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import Checkpoint, ProgressBar
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning_utilities.core.rank_zero import rank_zero_only

from slotbench.callbacks.divergence import DivergedError
from slotbench.callbacks.loggers import WandbOptions
from slotbench.callbacks.reporting import DataReading, EndReport
from slotbench.callbacks.wiring import evaluation_parts, run_parts
from slotbench.config.library_refusals import (
    REFUSALS,
    explain_construction,
    explain_library,
    explain_monitor,
    is_of_library,
)
from slotbench.config.options import RunOptions
from slotbench.config.parser import SlotbenchCLI, filter_messages
from slotbench.config.policy import apply_policy
from slotbench.config.read_paths import resolve_paths
from slotbench.config.resuming import RunPlace
from slotbench.config.settings import Setting
from slotbench.config.trainer_checks import check_callbacks, check_trainer
from slotbench.config.written_paths import check_written_paths, place_in_run
from slotbench.data.base import SlotDataModule, Split
from slotbench.errors import DataFilesError, UserError, did_you_mean, lines, wrapped
from slotbench.files import TRANSIENT, is_inside
from slotbench.interfaces import PartError
from slotbench.nn.parameters import trainable_parameters
from slotbench.ops import KernelError
from slotbench.pretrained.weights import WeightError
from slotbench.runs.checkpoint_choice import check_whole
from slotbench.runs.folder import RunFolder, RunFolderError
from slotbench.runs.launch import DEVICE_SHARE_VARIABLE, find_launch
from slotbench.runs.resuming import command_after_divergence
from slotbench.tasks.optimizer_factories import TrainingSettingsError
from slotbench.tasks.task import Task
from slotbench.text import one_line, printable
from slotbench.yaml_files import read_yaml

__all__ = ["train"]

_DISK_FAILURES = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, *TRANSIENT}
_CONTEXT_BYTES = 5e8  # of a device, that CUDA takes for each process beside what torch allocates
# errors of the parts about their settings and files, which are sentences already
_REFUSALS = (DataFilesError, WeightError, RunFolderError, KernelError, TrainingSettingsError)


class _NothingToDoError(Exception):
    """The run is finished."""


def train(
    command: str, arguments: list[str], settings: list[Setting], options: RunOptions, run: Path | None = None
) -> int:
    """Parses, builds and runs; returns the exit code.

    Args:
        command: fit, validate, test or predict.
        arguments: of the command, without the options of the run.
        settings: the same, as read beforehand.
        options: of the run.
        run: the run folder that is evaluated, if it is one.

    Raises:
        UserError: the command line, the configuration or a file of the run cannot be used.
    """
    filter_messages()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    _share_device()
    apply_policy(options.allow_import)
    place = RunPlace(options, find_launch(_rank())) if command == "fit" else None
    try:
        _RunningCLI(command, arguments, settings, options, run, place)
    except _NothingToDoError:
        if place is not None:
            place.complete()
        return 0
    except (UserError, pickle.UnpicklingError, *_REFUSALS) as error:
        if place is not None:
            place.give_up()
        if isinstance(error, UserError):
            raise
        message = _not_weights_only(error) if isinstance(error, pickle.UnpicklingError) else str(error)
        raise UserError(message) from error
    except DivergedError as error:
        if place is not None and place.folder is not None and place.is_first:
            place.finish()
            again = f"its last checkpoint is whole; resume from it with {command_after_divergence(place.folder.path)}"
            print(wrapped(printable(f"slotbench: {place.folder.path}: {error}; {again}")), file=sys.stderr)
        return 1
    except REFUSALS as error:
        if (sentence := explain_monitor(error) or explain_library(error, settings)) is None:
            raise
        if place is not None:
            place.give_up()
        raise UserError(sentence) from error
    except OSError as error:
        if error.errno not in _DISK_FAILURES and not _is_of_run(error, place):
            raise
        return _disk_failure(error, command, place)
    except SystemExit as end:
        # Lightning turns an interrupt into an exit with code 1
        if isinstance(end.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from end
        raise
    finally:
        if place is not None:
            place.leave()
    return 0


def _share_device() -> None:
    """Takes no more memory of a CUDA device than an equal part of it, where several runs of a grid share it."""
    share = os.environ.get(DEVICE_SHARE_VARIABLE, "1")
    if share.isdecimal() and int(share) > 1 and torch.cuda.is_available():
        whole = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(max(whole / int(share) - _CONTEXT_BYTES, 0.0) / whole)


def _is_of_run(error: OSError, place: RunPlace | None) -> bool:
    """Whether the file that failed is one of the run's: a network file system may lose or duplicate it."""
    if place is None or place.folder is None:
        return False
    return any(
        isinstance(name, str | Path) and is_inside(place.folder.path, name)
        for name in (error.filename, error.filename2)
    )


def _disk_failure(error: OSError, command: str, place: RunPlace | None) -> int:
    """Reports what could not be written, and how to resume once it can be."""
    why = error.strerror or str(error)
    if place is not None and place.folder is not None:
        file = f" ({error.filename})" if error.filename else ""
        path = place.folder.path
        again = f"its last checkpoint is as it was, resume with slotbench fit --resume {shlex.quote(str(path))}"
        print(wrapped(printable(f"slotbench: {path} failed: {why}{file}; {again}")), file=sys.stderr)
        return 1
    if place is not None:
        place.give_up()
    where = f": {error.filename}" if error.filename else ""
    raise UserError(f"{command} cannot continue: {why}{where}") from error


class _RunningCLI(SlotbenchCLI):
    """LightningCLI that builds and runs what it parses, with the run folder of a fit or of an evaluated run.

    Args:
        command: fit, validate, test or predict.
        arguments: of the command.
        settings: the same, as read beforehand.
        options: of the run.
        run: the run folder that is evaluated, if it is one.
        place: where a training is recorded.
    """

    def __init__(
        self,
        command: str,
        arguments: list[str],
        settings: list[Setting],
        options: RunOptions,
        run: Path | None,
        place: RunPlace | None,
    ) -> None:
        self._run, self._place = run, place
        super().__init__(command, arguments, settings, options)

    def before_instantiate_classes(self) -> None:
        """Checks the run folder before anything is built: a finished run needs no building."""
        has_folder = self._place is not None or self._run is not None
        check_written_paths(self.values["trainer"], has_folder, self._settings)
        if self._place is not None and not self._place.look(self.yaml()):
            raise _NothingToDoError
        if self._place is not None:
            self._place.resolve(self.values, self._settings)
        elif self._run is not None:
            resolve_paths(self.values, self._settings, RunFolder.open(self._run))
        path = self.values.get("ckpt_path")
        _check_checkpoint(self._command, path, self._run, self._weights_only())

    def instantiate_classes(self) -> None:
        """Builds data, task and trainer; a value that a component refuses is reported with the component's key."""
        try:
            super().instantiate_classes()
        except (WeightError, RunFolderError, TrainingSettingsError):
            raise
        except REFUSALS as error:
            if (broken := _part_error(error)) is not None:
                raise broken from error
            if not isinstance(error, ValueError | MisconfigurationException) and not is_of_library(error):
                raise
            raise UserError(explain_construction(error, self.values, self._settings)) from error

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Builds the trainer, after the loggers and callbacks that record the run."""
        config = self.config_init[self._command]["trainer"]
        _check_data(self._command, self.datamodule, self.values["data"])
        if self._command == "fit":
            check_trainer(config)
            check_callbacks(_as_list(config.get("callbacks")), self.model)
            _check_training_settings(self.model, config)
        self.config_init[self._command]["weights_only"] = self._weights_only()
        folder, loggers, callbacks = self._recorders()
        if folder is not None:
            place_in_run(config, self.values["trainer"], folder)
        config["logger"] = [*loggers, *_as_list(config.get("logger"))] or False
        # switched off by the user, ours included
        off = ((config.get("enable_progress_bar"), ProgressBar), (config.get("enable_checkpointing"), Checkpoint))
        unwanted: tuple[type[Callback], ...] = tuple(kind for switch, kind in off if switch is False)
        if self._options.quiet:
            config["enable_progress_bar"] = False
            unwanted = (*unwanted, ProgressBar, DataReading, EndReport)
        callbacks = [callback for callback in callbacks if not isinstance(callback, unwanted)]
        config["callbacks"] = [*_as_list(config.get("callbacks")), *callbacks]
        if self._run is not None and "verbose" in self.config_init[self._command]:
            # the record of the evaluation says it, in a table of its own
            self.config_init[self._command]["verbose"] = False
        if self._run is not None and "return_predictions" in self.config_init[self._command]:
            # they are written as they come; all of them in memory would be a whole data set
            self.config_init[self._command]["return_predictions"] = False
        if config.get("default_root_dir") is None and folder is not None:
            config["default_root_dir"] = str(folder)
        trainer = super().instantiate_trainer(**kwargs)
        if _rank() == 0:
            checkpoint = self._place.checkpoint if self._place is not None else None
            step = checkpoint.step if checkpoint is not None else None
            weights = None if self._command == "fit" else self.values.get("ckpt_path")
            if not self._options.quiet:
                print(_opening(self._command, self.model, self.datamodule, trainer, folder, step, weights))
            elif self._command == "fit":
                print(folder)
        return trainer

    def _weights_only(self) -> bool:
        """Whether checkpoints are read as weights only: yes, unless `--weights_only false` is typed."""
        typed = any(setting.on_command_line and setting.key == ("weights_only",) for setting in self._settings)
        return not typed or self.values.get("weights_only") is not False

    def _recorders(self) -> tuple[Path | None, list[Logger], list[Callback]]:
        """The run folder, and the loggers and callbacks that write to it."""
        if self._command != "fit":
            if self._run is None:
                return None, [], []
            return self._run, *evaluation_parts(
                self._run,
                self._command,
                self._options.save,
                half=self._options.half,
                wandb=self._options.wandb,
                wandb_project=self._options.wandb_project,
                wandb_options=self._wandb_options(),
            )
        place = self._place
        assert place is not None  # as fit has
        folder = place.enter()
        if place.checkpoint is not None:
            self.config_init["fit"]["ckpt_path"] = str(place.checkpoint.path)
            # the weights that it started from have done their work, and may be gone
            cast("Task", self.model)._init_from = None
        config = read_yaml(folder.path / "config.yaml")
        wandb = self._options.wandb or (folder.info.get("wandb_mode") if place.is_resumed else None) or "off"
        return folder.path, *run_parts(
            folder,
            wandb=wandb,
            wandb_project=self._options.wandb_project,
            wandb_options=self._wandb_options(),
            config=config,
            again=place.options_to_repeat(),
            final_validation=place.validates_finally(),
            compile_mode=place.compile_mode(),
            finish=place.finish,
        )

    def _wandb_options(self) -> WandbOptions:
        given = self._options
        return WandbOptions(given.wandb_entity, given.wandb_tags, given.wandb_notes, given.wandb_artifacts)


def _part_error(error: BaseException | None) -> PartError | None:
    """The error of a part that the parser has wrapped, if there is one."""
    while error is not None and not isinstance(error, PartError):
        error = error.__cause__ or error.__context__
    return error


def _rank() -> int:
    # importing Lightning sets it, from the variables of whatever has started this process
    rank: int = getattr(rank_zero_only, "rank", 0)
    return rank


def _check_training_settings(task: Task, trainer: Namespace) -> None:
    """Refuses settings that make training impossible, before there is a run folder."""
    steps, epochs = trainer.get("max_steps", -1), trainer.get("max_epochs")
    endless = steps == -1 and (epochs == -1 or (epochs is None and trainer.get("max_time") is not None))
    # of epochs the number of batches is not known yet: the schedule is asked when the training starts
    task.check_training_settings(steps if steps > 0 else None, with_schedule=endless or steps > 0)


def _check_data(command: str, data: SlotDataModule, values: Namespace) -> None:
    """Has a data set whose path leads nowhere say so, in its words, before there is a run folder."""
    path = (values.get("init_args") or {}).get("path")
    if isinstance(path, str) and not Path(path).expanduser().exists():
        split: Split = "train" if command == "fit" else "val" if command == "validate" else "test"
        try:
            data.dataset(split)
        except DataFilesError as error:
            raise UserError(str(error)) from error


def _check_checkpoint(command: str, path: str | None, run: Path | None, weights_only: bool) -> None:
    if path is None or (command == "fit" and path in ("last", "hpc", "registry")):
        return
    if Path(path).is_file():
        if weights_only:
            check_whole(Path(path), command, run)
        return
    beside = Path(path).parent
    there = [str(file) for file in sorted(beside.glob("*.ckpt"))] if beside.is_dir() else []
    raise UserError(lines(f"no checkpoint {path}{did_you_mean(path, there)}", there=", ".join(there)))


def _not_weights_only(error: pickle.UnpicklingError) -> str:
    reasons = str(error).strip().splitlines()
    return lines(
        "the checkpoint holds more than weights and plain values, or is damaged; reading it could run code",
        given=next((line.strip() for line in reasons if "GLOBAL" in line), reasons[0] if reasons else None),
        **{"to allow it": "--weights_only false  (only if you trust the file)"},
    )


def _as_list(value: Any) -> list[Any]:
    if value is None or isinstance(value, bool):
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def _opening(
    command: str,
    task: Task,
    data: SlotDataModule,
    trainer: Trainer,
    folder: Path | None,
    step: int | None = None,
    checkpoint: str | None = None,
) -> str:
    """Five lines: the run folder, the parts of the model, their trainable parameters, the data, the device.

    A sixth says after which step a run is resumed, or whose weights are evaluated, if it does.
    """
    parts = " -> ".join(type(part).__name__ for part in task.parts.values())
    counts = trainable_parameters(task)
    total = counts.pop("total")
    sizes = " + ".join(f"{name} {count:,}" for name, count in counts.items())
    twice = sum(counts.values()) - total  # of parts that share some
    sizes += f" - {twice:,} shared" if twice > 0 else ""
    return "\n".join(
        one_line(line)
        for line in [
            f"{command}{f' {folder}' if folder else ''}",
            f"  task    {type(task).__name__}: {parts}",
            f"  size    {f'{sizes} = ' if sizes else ''}{total:,} trainable parameters",
            f"  data    {type(data).__name__}",
            f"  device  {_device(trainer)}",
            *([f"  resumed after step {step:,}"] if step is not None else []),
            *([f"  weights {checkpoint}"] if checkpoint is not None else []),
        ]
    )


def _device(trainer: Trainer) -> str:
    device = trainer.strategy.root_device
    processes = f" x {trainer.world_size}" if trainer.world_size > 1 else ""
    if device.type == "cpu":
        threads = torch.get_num_threads()
        return f"CPU{processes}, {threads} thread{'' if threads == 1 else 's'}"
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
    return f"{name}{processes}, {trainer.precision}"
