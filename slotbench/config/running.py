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
from lightning.pytorch.callbacks import Checkpoint, ProgressBar, Timer
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning_utilities.core.rank_zero import rank_zero_only

from slotbench.callbacks.divergence import DivergedError
from slotbench.callbacks.loggers import WandbOptions
from slotbench.callbacks.reporting import DataReading, EndReport
from slotbench.callbacks.run_record import feature_weights
from slotbench.callbacks.wiring import evaluation_parts, run_parts
from slotbench.config.data_paths import resolve_paths
from slotbench.config.options import RunOptions
from slotbench.config.parser import SlotbenchCLI, filter_messages
from slotbench.config.resuming import RunPlace
from slotbench.config.slips import raised_by_component
from slotbench.config.tree import Given
from slotbench.data.base import SlotDataModule
from slotbench.errors import DataFilesError, UserError, did_you_mean, lines, wrapped
from slotbench.io import read_yaml
from slotbench.nn.parameters import trainable_parameters
from slotbench.ops import KernelError
from slotbench.pretrained.weights import WeightError
from slotbench.runs.checkpoint_choice import check_whole
from slotbench.runs.differences import is_material
from slotbench.runs.folder import RunFolder, RunFolderError
from slotbench.runs.launch import DEVICE_SHARE_VARIABLE, find_launch
from slotbench.runs.resuming import command_after_divergence
from slotbench.tasks.optimizer_factories import TrainingSettingsError
from slotbench.tasks.task import Task

__all__ = ["train"]

_DISK_FAILURES = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM}
_PROCESSES_PER_CORE = 4
_CONTEXT_BYTES = 5e8  # of a device, that CUDA takes for each process beside what torch allocates
# errors about settings and files, which are sentences already: ours, and Lightning's
_REFUSALS = (DataFilesError, WeightError, RunFolderError, KernelError, TrainingSettingsError, MisconfigurationException)


def train(command: str, given: Given, options: RunOptions, run: Path | None) -> int:
    """Parses, builds and runs what `read_command_line` has read; returns the exit code."""
    filter_messages()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    _share_device()
    place = RunPlace(options, find_launch(getattr(rank_zero_only, "rank", 0))) if command == "fit" else None
    try:
        _RunningCLI(command, given, options, run, place)
    except (UserError, pickle.UnpicklingError, *_REFUSALS) as error:
        if place is not None:
            place.give_up()
        if isinstance(error, UserError):
            raise
        raise UserError(str(error)) from error
    except DivergedError as error:
        if place is not None and place.folder is not None and place.is_first:
            place.finish()
            again = f"its last checkpoint is whole; resume from it with {command_after_divergence(place.folder.path)}"
            print(wrapped(f"slotbench: {place.folder.path}: {error}; {again}"), file=sys.stderr)
        return 1
    except RuntimeError as error:
        if "conditioned on metric" not in str(error):
            raise
        raise UserError(str(error)) from error  # of EarlyStopping, about a score that is not logged
    except OSError as error:
        if error.errno not in _DISK_FAILURES:
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


def _disk_failure(error: OSError, command: str, place: RunPlace | None) -> int:
    """Reports what could not be written, and how to resume once it can be."""
    why = f"{error.strerror or error}{f' ({error.filename})' if error.filename else ''}"
    if place is None or place.folder is None:
        if place is not None:
            place.give_up()
        raise UserError(f"{command} cannot continue: {why}") from error
    path = place.folder.path
    again = f"its last checkpoint is as it was, resume with slotbench fit --resume {shlex.quote(str(path))}"
    print(wrapped(f"slotbench: {path} failed: {why}; {again}"), file=sys.stderr)
    return 1


class _RunningCLI(SlotbenchCLI):
    """LightningCLI that builds and runs what it parses; `place` is where a training is recorded."""

    def __init__(
        self, command: str, given: Given, options: RunOptions, run: Path | None, place: RunPlace | None
    ) -> None:
        self._run, self._place = run, place
        super().__init__(command, given, options)

    def before_instantiate_classes(self) -> None:
        """Checks the run folder before anything is built: a finished run needs no building."""
        if self._place is not None and not self._place.look(self.yaml()):
            raise SystemExit(0)
        if self._place is not None:
            self._place.resolve(self.values, self._given.typed)
        elif self._run is not None:
            resolve_paths(self.values, RunFolder.open(self._run), self._given.typed)
        path = self.values.get("ckpt_path")
        _check_checkpoint(self._command, path, self._run, self._weights_only())

    def instantiate_classes(self) -> None:
        """Builds data, task and trainer; a value that a component refuses is a sentence, other errors are as raised."""
        try:
            super().instantiate_classes()
        except _REFUSALS:
            raise
        except (ValueError, TypeError) as error:
            inner = raised_by_component(error)
            if not isinstance(inner, ValueError | UserError | MisconfigurationException):
                raise
            raise UserError(" ".join(str(inner).split())) from error

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Builds the trainer, after the loggers and callbacks that record the run."""
        config = self.config_init[self._command]["trainer"]
        trained = self._place.resumed if self._place is not None else self._run
        if trained is not None:
            _check_features(trained, feature_weights(self.model, self.datamodule))
        if self._command == "fit":
            _check_training(self.model, config)
        if self._place is not None and (held := self._place.with_changes()) is not None:
            for key, done in (("max_steps", held["global_step"]), ("max_epochs", held["epoch"])):
                if 0 < (config.get(key) or 0) < done:
                    what = f"the run has had {done:,} {key[4:]}"
                    raise UserError(lines(what, key=f"trainer.{key}", expected="as many or more"))
            self.model.check_resumed(held)
        self.config_init[self._command]["weights_only"] = self._weights_only()
        folder, loggers, callbacks = self._recorders()
        config["logger"] = [*loggers, *_as_list(config.get("logger"))] or False
        # switched off by the user, ours included
        off = ((config.get("enable_progress_bar"), ProgressBar), (config.get("enable_checkpointing"), Checkpoint))
        unwanted: tuple[type[Callback], ...] = tuple(kind for switch, kind in off if switch is False)
        if self._options.quiet:
            config["enable_progress_bar"] = False
            unwanted = (*unwanted, ProgressBar, DataReading, EndReport)
        callbacks = [callback for callback in callbacks if not isinstance(callback, unwanted)]
        config["callbacks"] = [*_as_list(config.get("callbacks")), *callbacks]
        # scores are printed by the record of the evaluation, and predictions are written as they come
        for name in ("verbose", "return_predictions"):
            if self._run is not None and name in self.config_init[self._command]:
                self.config_init[self._command][name] = False
        if config.get("default_root_dir") is None and folder is not None:
            config["default_root_dir"] = str(folder)
        trainer = super().instantiate_trainer(**kwargs)
        if getattr(rank_zero_only, "rank", 0) == 0:
            weights = f"weights {self.values.get('ckpt_path')}" if self.values.get("ckpt_path") else None
            if self._place is not None:
                checkpoint = self._place.checkpoint
                weights = f"resumed after step {checkpoint.step:,}" if checkpoint is not None else None
            if not self._options.quiet:
                print(_opening(self._command, self.model, self.datamodule, trainer, folder, weights))
            elif self._command == "fit":
                print(folder)
        return trainer

    def _weights_only(self) -> bool:
        """Whether checkpoints are read as weights only: yes, unless `--weights_only false` is typed."""
        return "weights_only" not in self._given.typed or self.values.get("weights_only") is not False

    def _recorders(self) -> tuple[Path | None, list[Logger], list[Callback]]:
        """The run folder, and the loggers and callbacks that write to it."""
        given, place = self._options, self._place
        if place is None:
            if self._run is None:
                return None, [], []
            settings = {key: value for key, value in self._given.typed.items() if is_material(key)}
            settings |= {"checkpoint": given.checkpoint} if given.checkpoint else {}
            return self._run, *evaluation_parts(
                self._run, self._command, given.save, half=given.half, settings=settings
            )
        folder = place.enter()
        if place.checkpoint is not None:
            self.config_init["fit"]["ckpt_path"] = str(place.checkpoint.path)
            # the weights that it started from have done their work, and may be gone
            cast("Task", self.model)._init_from = None
        return folder.path, *run_parts(
            folder,
            wandb=given.wandb or (folder.info.get("wandb_mode") if place.is_resumed else None) or "off",
            wandb_project=given.wandb_project,
            wandb_options=WandbOptions(given.wandb_entity, given.wandb_tags, given.wandb_notes),
            config=read_yaml(folder.path / "config.yaml"),
            again=place.options_to_repeat(),
            final_validation=place.kept("final_validation", given.final_validation, True),
            compile_mode=place.kept("compile", given.compile, "off"),
            finish=place.finish,
        )


def _check_training(task: Task, trainer: Namespace) -> None:
    """Refuses settings that make training impossible, before there is a run folder."""
    devices, most = str(trainer.get("devices")), _PROCESSES_PER_CORE * (os.cpu_count() or 1)
    on_cpu = trainer.get("accelerator") == "cpu" or not torch.accelerator.is_available()
    if on_cpu and devices.isdecimal() and int(devices) > most:
        what = f"{int(devices):,} processes on the CPU"
        raise UserError(lines(what, key="trainer.devices", expected=f"at most {most}, {_PROCESSES_PER_CORE} a core"))
    try:
        Timer(trainer.get("max_time"))
    except (MisconfigurationException, TypeError) as error:
        raise UserError(lines(str(error), key="trainer.max_time")) from error
    steps, epochs = trainer.get("max_steps", -1), trainer.get("max_epochs")
    endless = steps == -1 and (epochs == -1 or (epochs is None and trainer.get("max_time") is not None))
    # of epochs the number of batches is not known yet: the schedule is asked when the training starts
    task.check_training_settings(steps if steps > 0 else None, with_schedule=endless or steps > 0)


def _check_features(run: Path, given: dict[str, str] | None) -> None:
    """Refuses features of other weights than those that the run was trained on."""
    trained = RunFolder.open(run).info.get("features")
    if trained and given and trained["weights_sha256"] != given["weights_sha256"]:
        was, now = (f"{one['weights']} of the hash {one['weights_sha256'][:12]}" for one in (trained, given))
        what = f"the features are those of the weights {now}; expected the weights that {run} was trained on"
        raise UserError(f"{what}, {was}")


def _check_checkpoint(command: str, path: str | None, run: Path | None, weights_only: bool) -> None:
    if path is None or (command == "fit" and path in ("last", "hpc", "registry")):
        return
    if not Path(path).is_file():
        near = did_you_mean(path, [str(file) for file in Path(path).parent.glob("*.ckpt")])
        raise UserError(f"no checkpoint {path}{near}")
    if weights_only:
        check_whole(Path(path), command, run)


def _as_list(value: Any) -> list[Any]:
    if value is None or isinstance(value, bool):
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def _opening(
    command: str, task: Task, data: SlotDataModule, trainer: Trainer, folder: Path | None, weights: str | None = None
) -> str:
    """The first lines: run folder, parts, their trainable parameters, data, device, and whose weights these are."""
    counts = trainable_parameters(task)
    total = counts.pop("total")
    shared = sum(counts.values()) - total  # of parts that share some
    sizes = " + ".join(f"{name} {count:,}" for name, count in counts.items()) + f" - {shared:,} shared" * (shared > 0)
    rows = [
        f"{command}{f' {folder}' if folder else ''}",
        f"  task    {type(task).__name__}: {' -> '.join(type(part).__name__ for part in task.parts.values())}",
        f"  size    {f'{sizes} = ' if sizes else ''}{total:,} trainable parameters",
        f"  data    {type(data).__name__}",
        f"  device  {_device(trainer)}",
    ]
    return "\n".join([*rows, f"  {weights}"] if weights else rows)


def _device(trainer: Trainer) -> str:
    device = trainer.strategy.root_device
    processes = f" x {trainer.world_size}" if trainer.world_size > 1 else ""
    if device.type == "cpu":
        threads = torch.get_num_threads()
        return f"CPU{processes}, {threads} thread{'' if threads == 1 else 's'}"
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
    return f"{name}{processes}, {trainer.precision}"
