"""The parser: LightningCLI with the registry's components, and sizes passed from the data to the task."""

from __future__ import annotations

import logging
import os
import pkgutil
import re
import sys
import warnings
from enum import Enum
from traceback import extract_tb
from typing import Any, NoReturn

import yaml
from jsonargparse import Namespace
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI

from slotbench import __version__, registry
from slotbench.config.options import RunOptions, flags
from slotbench.config.policy import apply_policy
from slotbench.config.slips import options_of, sentence
from slotbench.config.tree import Given, set_element
from slotbench.data.base import SlotDataModule
from slotbench.errors import UserError, first_line
from slotbench.lightning_compat import SettledCLI
from slotbench.tasks.task import Task

__all__ = ["Configuration", "SlotbenchCLI", "filter_messages"]

_PARTS = ("model", "data", "trainer")


class _ParserRefusal(Exception):  # noqa: N818  a verdict, on its way to becoming a UserError
    """A refusal of the parser, not explained yet."""


class _Parser(LightningArgumentParser):
    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        if not self.exit_on_error:
            super().error(message, ex)
        raise _ParserRefusal(message) from ex


class SlotbenchCLI(SettledCLI):
    """LightningCLI with any task, any data set, and sizes passed from the data to the task; it runs what it parses."""

    def __init__(self, command: str, given: Given, options: RunOptions) -> None:
        self._command, self._given, self._options = command, given, options
        apply_policy(options.allow_import)
        config = ["--config", yaml.safe_dump(given.tree, sort_keys=False)] if given.tree else []
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
            args=[command, *config, *given.rest],
        )

    @property
    def values(self) -> Namespace:
        """The parsed settings of the command."""
        values: Namespace = self.config[self._command]
        return values

    def yaml(self) -> str:
        """The complete configuration, registered components by their names; feeding it back gives it again."""
        tree = self._tree()
        first = [key for key in ("seed_everything", *_PARTS) if key in tree]
        tree = _with_names({**{key: tree[key] for key in first}, **tree})
        text = yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
        return f"# slotbench {__version__}\n{text}"

    def _tree(self) -> dict[str, Any]:
        tree: dict[str, Any] = yaml.safe_load(self.parser_of(self._command).dump(self.values, skip_unset=False))
        return tree

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
        """Parses the arguments; a refusal becomes a sentence."""
        try:
            self.config = _without_enums(parser.parse_args(args))
            if self._given.elements:
                tree = self._tree()
                for one in self._given.elements:
                    set_element(tree, one)
                self.config = _without_enums(parser.parse_args([self._command, "--config", yaml.safe_dump(tree)]))
        except SystemExit as end:
            if file := [one.filename for one in extract_tb(end.__traceback__) if one.name == "<module>"]:
                raise UserError(f"{file[0]} cannot be imported: {first_line(end)}") from end
            raise  # after --help
        except _ParserRefusal as refusal:
            own = self.parser_of(self._command).get_defaults().keys()
            raise UserError(sentence(str(refusal), [*own, *options_of(self._given.tree), *flags()])) from refusal


class Configuration(SlotbenchCLI):
    """A command line that has been parsed, and nothing else."""

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
    """A configuration with the names of registered components in place of their import paths."""
    if isinstance(tree, list):
        return [_with_names(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    tree = {key: _with_names(value) for key, value in tree.items()}
    if isinstance(path := tree.get("class_path"), str):
        kinds = registry.kinds_of(path.rpartition(".")[2])
        # a class of the same name from elsewhere keeps its full path
        if len(kinds) == 1 and registry.load(kinds[0], path.rpartition(".")[2]) is pkgutil.resolve_name(path):
            tree["class_path"] = path.rpartition(".")[2]
    return tree


# Starts of log lines: advertisements, and facts that our own opening lines say in one line.
_CHATTER = re.compile(
    r"(\[rank: \d+\] )?(💡 Tip|[GTH]PU available|Seed set to|Loading `train_dataloader`|`Trainer.fit` stopped"
    r"|Restor(ing|ed all) states from|Loaded model weights|\nDetected KeyboardInterrupt)"
)
# Starts of warnings.
_KNOWN = (
    r".*`isinstance\(treespec, LeafSpec\)` is deprecated",
    r".*does not have many workers",
    r".*The number of training batches .* is smaller than the logging interval",
    r".*Be aware that when using `ckpt_path`, callbacks used to create the checkpoint",
    r"You're using the WeightAveraging callback, but loading a checkpoint outside",
    r"The `srun` command is available on your system but is not used",
    r".*Checkpoint directory .* exists and is not empty",
    r"When using `Trainer\(accumulate_grad_batches != 1\)` and overriding",
)


def _is_news(record: logging.LogRecord) -> bool:
    return _CHATTER.match(record.getMessage()) is None


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
