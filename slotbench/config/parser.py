"""The parser: LightningCLI with the registry's components, and sizes passed from the data to the task."""

from __future__ import annotations

import logging
import os
import re
import sys
import warnings
from enum import Enum
from typing import Any, NoReturn

import yaml
from jsonargparse import ArgumentParser, DefaultHelpFormatter, Namespace
from lightning.pytorch import Trainer
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI

from slotbench import __version__, registry
from slotbench.config.class_changes import explicit
from slotbench.config.explanation import explain
from slotbench.config.jsonargparse_compat import import_path, last_refusal, signature_of
from slotbench.config.options import RunOptions
from slotbench.config.policy import apply_policy, refusal_words
from slotbench.config.refusals import OF_COMMANDS
from slotbench.config.settings import Setting, without_replaced
from slotbench.data.base import SlotDataModule
from slotbench.errors import UserError
from slotbench.help_text import fitted
from slotbench.lightning_compat import SettledCLI
from slotbench.tasks.task import Task

__all__ = ["Configuration", "FittedHelp", "SlotbenchCLI", "filter_messages", "parse"]

_LINK = re.compile(r":[\w:]+:`~?(?:[\w.]*\.)?(\w+)`")
_PARTS = ("model", "data", "trainer")


def parse(command: str, arguments: list[str], settings: list[Setting], options: RunOptions) -> Configuration:
    """The configuration of a command line, parsed and checked; nothing is built.

    Args:
        command: fit, validate, test or predict.
        arguments: that follow the command, without the options of the run.
        settings: the same, as read beforehand.
        options: what may be imported.

    Raises:
        UserError: a setting is wrong; says which, and what would be right.
    """
    apply_policy(options.allow_import)
    return Configuration(command, arguments, settings, options)


class _ParserRefusal(Exception):  # noqa: N818  a verdict, on its way to becoming a UserError
    """A refusal of the parser, not explained yet."""


class _OneLineRows(DefaultHelpFormatter):
    """Puts every argument on a line with its meaning, which `fitted` then breaks."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=1000, width=10**6)


class FittedHelp(ArgumentParser):
    """A parser whose help fits the terminal."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"formatter_class": _OneLineRows} | kwargs)

    def format_help(self, *args: Any, **kwargs: Any) -> str:
        """The help, without the links of docstrings and the backspace of `--print_config`."""
        return fitted(_LINK.sub(r"`\1`", super().format_help(*args, **kwargs)).replace(" \b", "")) + "\n"


class _Parser(FittedHelp, LightningArgumentParser):
    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        if not self.exit_on_error:
            super().error(message, ex)
        raise _ParserRefusal(message) from ex


class SlotbenchCLI(SettledCLI):
    """LightningCLI with any task, any data set, and sizes passed from the data to the task; it runs what it parses.

    Args:
        command: fit, validate, test or predict.
        arguments: of the command.
        settings: the same, as read beforehand, to explain a refusal.
        options: what may be imported; where and how to record the run.
    """

    def __init__(self, command: str, arguments: list[str], settings: list[Setting], options: RunOptions) -> None:
        self._command, self._settings, self._options = command, settings, options
        super().__init__(
            Task,
            SlotDataModule,
            subclass_mode_model=True,
            subclass_mode_data=True,
            save_config_callback=None,
            seed_everything_default=0,
            trainer_defaults={"enable_model_summary": False},
            parser_class=_Parser,
            auto_configure_optimizers=False,
            args=[command, *without_replaced(arguments)[0]],
        )

    @property
    def values(self) -> Namespace:
        """The parsed settings of the command."""
        values: Namespace = self.config[self._command]
        return values

    def yaml(self) -> str:
        """The complete configuration, registered components by their names; feeding it back gives it again."""
        tree = yaml.safe_load(self.parser_of(self._command).dump(self.values, skip_unset=False))
        first = [key for key in ("seed_everything", *_PARTS) if key in tree]
        tree = _with_names({**{key: tree[key] for key in first}, **tree})
        text = yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
        return f"# slotbench {__version__}\n{text}"

    def subcommands(self) -> dict[str, set[str]]:  # type: ignore[override]
        """Only the command that runs: building the parsers of all four takes longer."""
        return {self._command: LightningCLI.subcommands()[self._command]}

    def init_parser(self, **kwargs: Any) -> LightningArgumentParser:
        """A parser that takes no abbreviations: --trainer.max_epoch is a mistake and not --trainer.max_epochs."""
        parser = super().init_parser(**kwargs)
        parser.allow_abbrev = False
        return parser

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Links the data's sizes to the task."""
        parser.link_arguments("data.spec", "model.init_args.data_spec", apply_on="instantiate")

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parses the arguments and explains a refusal."""
        try:
            with explicit(self._settings):
                self.config = _without_enums(parser.parse_args(args))
        except _ParserRefusal as refusal:
            known = signature_of(Trainer, self._command)
            options = {name: argument.hint for name, argument in known.items() if name not in OF_COMMANDS}
            explain(self._settings, {"seed_everything": bool | int, **options})
            if (refused := last_refusal()) is not None:
                raise UserError(refusal_words(refused, self._settings)) from refusal
            raise UserError(str(refusal)) from refusal


class Configuration(SlotbenchCLI):
    """A command line that has been parsed, and nothing else; made by `parse`."""

    parses_only = True

    def instantiate(self, values: Namespace | None = None) -> Namespace:
        """Builds data, task and trainer of these settings, its own if absent; the parser's errors as they are."""
        built: Namespace = self.parser_of(self._command).instantiate(self.values if values is None else values)
        return built

    def instantiate_classes(self) -> None:
        """Builds nothing."""


class _Dumper(yaml.SafeDumper):
    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> yaml.SequenceNode:
        # a list of numbers or words fits on a line
        short = not any(isinstance(item, dict | list) for item in sequence)
        return super().represent_sequence(tag, sequence, flow_style=short or flow_style)


def _without_enums(value: Any) -> Any:
    """Settings with plain strings in place of a library's enum members, which YAML cannot hold."""
    if isinstance(value, Namespace):
        return Namespace(**{name: _without_enums(item) for name, item in vars(value).items()})
    if isinstance(value, list):
        return [_without_enums(item) for item in value]
    return str(value.value) if isinstance(value, str) and isinstance(value, Enum) else value


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
        if len(kinds) == 1 and import_path(registry.load(kinds[0], name)) == path:
            tree["class_path"] = name
    return tree


# Starts of log lines: advertisements, and facts that our own opening lines say in one line.
_CHATTER = (
    "💡 Tip",
    "GPU available",
    "TPU available",
    "HPU available",
    "Seed set to",
    "Loading `train_dataloader`",
    "`Trainer.fit` stopped",
    "Restoring states from",
    "Restored all states",
    "Loaded model weights",
    "\nDetected KeyboardInterrupt",
)
# Starts of warnings.
_KNOWN = (
    # a shim inside Lightning, for torch 2.13
    r".*`isinstance\(treespec, LeafSpec\)` is deprecated",
    # samples are simulated while the device works, in the training process on purpose
    r".*does not have many workers",
    # a run of few batches still has a curve: one point per epoch
    r".*The number of training batches .* is smaller than the logging interval",
    # an evaluation needs no callbacks of the training
    r".*Be aware that when using `ckpt_path`, callbacks used to create the checkpoint",
    # the weights that are evaluated are the averaged ones, as they should be
    r"You're using the WeightAveraging callback, but loading a checkpoint outside",
    # wherever SLURM is installed: whether to use it is the user's choice
    r"The `srun` command is available on your system but is not used",
    # the folder is made before training starts
    r".*Checkpoint directory .* exists and is not empty",
)


def _is_news(record: logging.LogRecord) -> bool:
    message = re.sub(r"^\[rank: \d+\] ", "", record.getMessage())
    return not message.startswith(_CHATTER)


def filter_messages() -> None:
    """Filters known messages and warnings of Lightning and torch; all others still appear."""
    for name in ("lightning", "lightning.pytorch", "lightning.fabric"):
        # on the handler: a filter on a logger does not see what its children pass on
        for handler in logging.getLogger(name).handlers:
            handler.addFilter(_is_news)
            if isinstance(handler, logging.StreamHandler):
                # it holds what was stderr when Lightning was imported, which a notebook may have closed since
                handler.stream = sys.stderr
    # Lightning calls functions that its parser is going to rename; the versions are pinned
    os.environ.setdefault("JSONARGPARSE_DEPRECATION_WARNINGS", "off")
    for message in _KNOWN:
        warnings.filterwarnings("ignore", message=message)
