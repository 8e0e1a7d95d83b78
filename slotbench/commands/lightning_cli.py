"""LightningCLI with the registry's components, sizes handed from the data to the task, and a run folder."""

from __future__ import annotations

import errno
import pickle
import sys
from pathlib import Path
from typing import Any, NoReturn, cast

import torch
import yaml
from jsonargparse import Namespace
from jsonargparse._util import get_import_path
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import Checkpoint, ProgressBar
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning_utilities.core.rank_zero import rank_zero_only

from slotbench import __version__, registry
from slotbench.callbacks.divergence import DivergedError
from slotbench.commands.checkpoint_choice import check_whole
from slotbench.commands.class_changes import said
from slotbench.commands.construction import explain_construction, explain_monitor
from slotbench.commands.explain import explain
from slotbench.commands.opening import opening
from slotbench.commands.options import RunOptions
from slotbench.commands.parser_guards import last_refusal
from slotbench.commands.policy import allowed_paths, apply_policy, refusal_words
from slotbench.commands.quiet import hush
from slotbench.commands.resuming import RunPlace, disk_failure
from slotbench.commands.settings import Setting, without_replaced
from slotbench.commands.written_paths import check_written_paths, place_in_run
from slotbench.data.base import SlotDataModule
from slotbench.data.files import DataFilesError
from slotbench.errors import UserError, did_you_mean, lines, wrapped
from slotbench.files import read_yaml
from slotbench.interfaces import PartError
from slotbench.nn.weights import WeightError
from slotbench.ops import KernelError
from slotbench.runs.folder import RunFolderError
from slotbench.runs.launch import find_launch
from slotbench.runs.wiring import evaluation_parts, run_parts
from slotbench.tasks.base import SlotTask
from slotbench.tasks.optimisation import TrainingSettingsError
from slotbench.text import printable

__all__ = ["SlotbenchCLI", "config_only_cli", "resolve", "resolved_yaml", "train"]

_DISK_FAILURES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM)

_PARTS = ("model", "data", "trainer")


class _NothingToDoError(Exception):
    """The run is finished."""


def train(
    command: str, arguments: list[str], settings: list[Setting], options: RunOptions, run: Path | None = None
) -> int:
    """Parses, builds and runs; returns the exit code."""
    hush()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    apply_policy(options.allow_import)
    place = RunPlace(options, find_launch(_rank())) if command == "fit" else None
    try:
        _one_command(command, SlotbenchCLI)([command, *arguments], settings, options, run, place)
    except _NothingToDoError:
        return 0
    except (DataFilesError, WeightError, RunFolderError, KernelError, TrainingSettingsError) as error:
        if place is not None:
            place.give_up()
        raise UserError(str(error)) from error
    except pickle.UnpicklingError as error:
        if place is not None:
            place.give_up()
        raise UserError(_not_weights_only(error)) from error
    except UserError:
        if place is not None:
            place.give_up()
        raise
    except DivergedError as error:
        if place is not None and place.folder is not None and place.is_first:
            place.finish()
            again = f"its last checkpoint is whole; go on from it with {place.command_after_divergence()}"
            print(wrapped(printable(f"slotbench: {place.folder.path}: {error}; {again}")), file=sys.stderr)
        return 1
    except (RuntimeError, MisconfigurationException) as error:
        if (said_of_monitor := explain_monitor(error)) is None:
            raise
        raise UserError(said_of_monitor) from error
    except OSError as error:
        if error.errno not in _DISK_FAILURES:
            raise
        if place is None or place.folder is None:
            if place is not None:
                place.give_up()
            where = f": {error.filename}" if error.filename else ""
            raise UserError(f"{command} cannot go on: {error.strerror or error}{where}") from error
        print(wrapped(printable(f"slotbench: {disk_failure(error, place.folder)}")), file=sys.stderr)
        return 1
    except SystemExit as end:
        # Lightning turns an interrupt into an exit with code 1
        if isinstance(end.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from end
        raise
    finally:
        if place is not None:
            place.leave()
    return 0


def resolve(command: str, arguments: list[str], settings: list[Setting], options: RunOptions) -> str:
    """The complete configuration of a command line, as YAML, without building anything."""
    return resolved_yaml(config_only_cli(command, arguments, settings, options))


def config_only_cli(command: str, arguments: list[str], settings: list[Setting], options: RunOptions) -> SlotbenchCLI:
    """A command line that has been parsed, and nothing else."""
    apply_policy(options.allow_import)
    return _one_command(command, _ConfigOnlyCLI)([command, *arguments], settings, options)


def _one_command(command: str, base: type[SlotbenchCLI]) -> type[SlotbenchCLI]:
    """The interface with one of its commands: building the arguments of all four takes longer."""

    class OneCommandCLI(base):  # type: ignore[misc, valid-type]
        @staticmethod
        def subcommands() -> dict[str, set[str]]:
            return {command: LightningCLI.subcommands()[command]}

    return OneCommandCLI


class _ParserRefusal(Exception):  # noqa: N818  a verdict, on its way to becoming a UserError
    """The parser's verdict, before it has been explained."""


class _Parser(LightningArgumentParser):
    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        if not self.exit_on_error:
            super().error(message, ex)
        raise _ParserRefusal(message) from ex


class SlotbenchCLI(LightningCLI):
    """LightningCLI with any task, any data set, sizes handed from the data to the task, and a run folder for `fit`.

    Args:
        args: the command and its arguments.
        settings: the same, as read beforehand, to explain a refusal.
        options: where and how to record the run.
        run: the run folder that is evaluated, if it is one.
        place: where a training is recorded.
    """

    def __init__(
        self,
        args: list[str],
        settings: list[Setting],
        options: RunOptions,
        run: Path | None = None,
        place: RunPlace | None = None,
    ) -> None:
        self._settings, self._options, self._run, self._place = settings, options, run, place
        super().__init__(
            SlotTask,
            SlotDataModule,
            subclass_mode_model=True,
            subclass_mode_data=True,
            save_config_callback=None,
            seed_everything_default=0,
            trainer_defaults={"enable_model_summary": False},
            parser_class=_Parser,
            auto_configure_optimizers=False,
            args=without_replaced(args)[0],
        )

    def init_parser(self, **kwargs: Any) -> LightningArgumentParser:
        """A parser that takes no abbreviations: --trainer.max_epoch is a mistake and not --trainer.max_epochs."""
        parser = super().init_parser(**kwargs)
        parser.allow_abbrev = False
        return parser

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Hands the data's sizes to the task."""
        parser.link_arguments("data.spec", "model.init_args.data_spec", apply_on="instantiate")

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parses; a refusal is explained."""
        try:
            with said(self._settings):
                self.config = parser.parse_args(args)
        except _ParserRefusal as refusal:
            (command,) = self.subcommands()
            types = {action.dest: getattr(action, "_typehint", None) for action in self._parser(command)._actions}
            options = {key: hint for key, hint in types.items() if "." not in key and hint and key not in _PARTS}
            explain(self._settings, options, allowed_paths(self._options.allow_import))
            if (refused := last_refusal()) is not None:
                raise UserError(refusal_words(refused, self._settings)) from refusal
            raise UserError(str(refusal)) from refusal

    def _parse_ckpt_path(self) -> None:
        """Leaves the configuration as the user gave it, where LightningCLI would lay the checkpoint's over it."""

    def before_instantiate_classes(self) -> None:
        """Looks at the run folder before anything is built: what is finished, or another run, need not be."""
        has_folder = self._place is not None or self._run is not None
        check_written_paths(self.config[self.subcommand]["trainer"], has_folder, self._settings)
        if self._place is not None and not self._place.look(resolved_yaml(self)):
            raise _NothingToDoError
        path = self.config[self.subcommand].get("ckpt_path")
        _check_checkpoint(str(self.subcommand), path, self._run, self._weights_only())

    def instantiate_classes(self) -> None:
        """Builds data, task and trainer; a value that a component refuses is reported with the component's key."""
        try:
            super().instantiate_classes()
        except (WeightError, RunFolderError, TrainingSettingsError):
            raise
        except (ValueError, MisconfigurationException) as error:
            if (broken := _part_error(error)) is not None:
                raise broken from error
            raise UserError(explain_construction(error, self.config[self.subcommand])) from error

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Makes the trainer, and before it what records the run."""
        config = self.config_init[self.subcommand]["trainer"]
        if self.subcommand == "fit":
            _check_training_settings(self.model, config)
        self.config_init[self.subcommand]["weights_only"] = self._weights_only()
        folder, loggers, callbacks = self._recorders()
        if folder is not None:
            place_in_run(config, self.config[self.subcommand]["trainer"], folder)
        config["logger"] = [*loggers, *_as_list(config.get("logger"))] or False
        # what the user has switched off, ours included
        off = ((config.get("enable_progress_bar"), ProgressBar), (config.get("enable_checkpointing"), Checkpoint))
        unwanted = tuple(kind for switch, kind in off if switch is False)
        callbacks = [callback for callback in callbacks if not isinstance(callback, unwanted)]
        config["callbacks"] = [*_as_list(config.get("callbacks")), *callbacks]
        if self._run is not None and "verbose" in self.config_init[self.subcommand]:
            # the record of the evaluation says it, in a table of its own
            self.config_init[self.subcommand]["verbose"] = False
        if self._run is not None and "return_predictions" in self.config_init[self.subcommand]:
            # they are written as they come; all of them in memory would be a whole data set
            self.config_init[self.subcommand]["return_predictions"] = False
        if config.get("default_root_dir") is None and folder is not None:
            config["default_root_dir"] = str(folder)
        trainer = super().instantiate_trainer(**kwargs)
        if _rank() == 0:
            checkpoint = self._place.checkpoint if self._place is not None else None
            step = checkpoint.step if checkpoint is not None else None
            command = str(self.subcommand)
            weights = None if command == "fit" else self.config[command].get("ckpt_path")
            print(opening(command, self.model, self.datamodule, trainer, folder, step, weights))
        return trainer

    def _weights_only(self) -> bool:
        """False only if the user has typed that a checkpoint may run code while it is read."""
        typed = any(setting.on_command_line and setting.key == ("weights_only",) for setting in self._settings)
        return not typed or self.config[self.subcommand].get("weights_only") is not False

    def _recorders(self) -> tuple[Path | None, list[Logger], list[Callback]]:
        """The run folder with what writes to it."""
        if self.subcommand != "fit":
            if self._run is None:
                return None, [], []
            return self._run, *evaluation_parts(self._run, str(self.subcommand), self._options.save)
        place = self._place
        assert place is not None  # as fit has
        folder = place.enter()
        if place.checkpoint is not None:
            self.config_init["fit"]["ckpt_path"] = str(place.checkpoint.path)
            # the weights that it started from have done their work, and may be gone
            cast("SlotTask", self.model)._init_from = None
        config = read_yaml(folder.path / "config.yaml")
        wandb = self._options.wandb or (folder.info.get("wandb_mode") if place.goes_on else None) or "off"
        project = self._options.wandb_project
        return folder.path, *run_parts(
            folder,
            wandb=wandb,
            wandb_project=project,
            config=config,
            again=place.options_to_repeat(),
            final_validation=place.validates_finally(),
            finish=place.finish,
        )


class _ConfigOnlyCLI(SlotbenchCLI):
    def _set_seed(self) -> None:
        """Nothing is going to be drawn."""

    def instantiate_classes(self) -> None:
        """Nothing is going to be built."""

    def _run_subcommand(self, subcommand: str) -> None:
        """Nothing is going to be run."""


def resolved_yaml(cli: SlotbenchCLI) -> str:
    """The complete configuration of a command, registered components by their names; feeding it back gives it again."""
    (command,) = cli.subcommands()
    tree = yaml.safe_load(cli._parser(command).dump(cli.config[command], skip_unset=False))
    first = [key for key in ("seed_everything", *_PARTS) if key in tree]
    tree = _with_names({**{key: tree[key] for key in first}, **tree})
    text = yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return f"# slotbench {__version__}\n{text}"


class _Dumper(yaml.SafeDumper):
    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> yaml.SequenceNode:
        # a list of numbers or words fits on a line
        short = not any(isinstance(item, dict | list) for item in sequence)
        return super().represent_sequence(tag, sequence, flow_style=short or flow_style)


def _with_names(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_with_names(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    tree = {key: _with_names(value) for key, value in tree.items()}
    if isinstance(path := tree.get("class_path"), str):
        name = path.rpartition(".")[2]
        kinds = registry.kinds_of(name)
        # a class of the same name from elsewhere keeps its full path
        if len(kinds) == 1 and class_path(registry.load(kinds[0], name)) == path:
            tree["class_path"] = name
    return tree


def class_path(component: type) -> str:
    """The path by which the parser writes a class."""
    return str(get_import_path(component))


def _part_error(error: BaseException | None) -> PartError | None:
    """The part's own mistake, if that is what the parser has wrapped."""
    while error is not None and not isinstance(error, PartError):
        error = error.__cause__ or error.__context__
    return error


def _rank() -> int:
    # importing Lightning sets it, from the variables of whatever has started this process
    rank: int = getattr(rank_zero_only, "rank", 0)
    return rank


def _check_training_settings(task: SlotTask, trainer: Namespace) -> None:
    """Refuses what no training can be done with before there is a run folder."""
    steps, epochs = trainer.get("max_steps", -1), trainer.get("max_epochs")
    endless = steps == -1 and (epochs == -1 or (epochs is None and trainer.get("max_time") is not None))
    # of epochs the number of batches is not known yet: the schedule is asked when the training starts
    task.check_training_settings(steps if steps > 0 else None, with_schedule=endless or steps > 0)


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
    said = str(error).strip().splitlines()
    return lines(
        "the checkpoint holds more than weights and plain values, or is damaged; reading it could run code",
        given=next((line.strip() for line in said if "GLOBAL" in line), said[0] if said else None),
        **{"to allow it": "--weights_only false  (only if you trust the file)"},
    )


def _as_list(value: Any) -> list[Any]:
    if value is None or isinstance(value, bool):
        return []
    return list(value) if isinstance(value, list | tuple) else [value]
