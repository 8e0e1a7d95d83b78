"""Refuses wrong names in a configuration before torch is imported, in the same words as `explanation` afterwards.

Nothing is refused early that the parser would take. Where the sources do not say (a component of a `--plugin` file, a
class that is made at run time, an argument that is no component), the setting is left to the parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from slotbench import registry
from slotbench.config.options import RunOptions
from slotbench.config.settings import Node, Setting, config_files
from slotbench.config.walk import Walk, unknown_component
from slotbench.errors import UserError, lines
from slotbench.sources import Argument, Part, arguments_from_source, defines_class
from slotbench.yaml_files import read_yaml

__all__ = ["OF_COMMANDS", "configurable", "refuse_early", "refuse_grids"]

_KINDS = {interface: kind for kind, interface in registry.INTERFACES.items()}
_TRAINER = "lightning.pytorch.trainer.trainer:Trainer"
OF_COMMANDS = ("model", "dataloaders", "train_dataloaders", "val_dataloaders", "datamodule")
"""Arguments of the trainer's methods that the command gives, and not the user."""
_NAME = re.compile(r"[A-Za-z_]\w*")
_ASKS = ("help", "h", "print_config")


def refuse_grids(arguments: list[str], settings: Iterable[Setting]) -> None:
    """Refuses grid files, whose keys the parser would refuse one by one.

    Raises:
        UserError: a file is a grid; says what to type.
    """
    if not any(setting.key[:1] == ("base",) for setting in settings):
        return
    for path in config_files(arguments):
        content = read_yaml(path)
        if isinstance(content, dict) and "base" in content:
            raise UserError(
                lines(
                    f"{path} is a grid, not an experiment",
                    **{"to run its points": f"slotbench grid run {path}", "to see them": f"slotbench grid show {path}"},
                )
            )


def refuse_early(command: str, settings: Iterable[Setting], options: RunOptions) -> None:
    """Raises for an unknown name, in the words of `explanation.explain`.

    Args:
        command: fit, validate, test or predict.
        settings: the user's settings, in order.
        options: of the run.

    Raises:
        UserError: a name is unknown.
    """
    settings = list(settings)
    if any(set(setting.key[-1:]) & set(_ASKS) for setting in settings):
        return
    # components that no package declares: from a file, from elsewhere, or those of a run
    of_a_run = command != "fit" or options.resume or (options.run_dir and options.run_dir.exists())
    is_open = bool(options.plugin or options.allow_import or of_a_run)
    walk = _SourceWalk(is_open)
    method = arguments_from_source(_TRAINER, command)
    # where a part is not known, it may be the owner of the argument, which the parser's refusal names
    known = None
    if not is_open and method is not None and walk.trainer() is not None:
        known = {name: Argument() for name in ("seed_everything", *method) if name not in OF_COMMANDS}
    walk.check(settings, known)


class _SourceWalk(Walk):
    """A walk that compares settings with signatures read from sources.

    Args:
        is_open: whether there may be components that no package declares.
    """

    def __init__(self, is_open: bool) -> None:
        self.is_open = is_open

    def signature(self, kind: str, name: str) -> Mapping[str, Argument] | None:
        entry = registry.find(kind, name)
        return arguments_from_source(entry.target) if entry is not None else None

    def trainer(self) -> Mapping[str, Argument] | None:
        return arguments_from_source(_TRAINER)

    def resolve(
        self, node: Node, part: Part, default: Any, key: str
    ) -> tuple[str, Mapping[str, Argument], Iterable[str]] | None:
        kind, name = _KINDS[part.base], node.value
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name in ("null", "None"):
            return None
        if name not in registry.names(kind):
            if not self.is_open and not Path(name).exists() and not _may_be_a_class(name):
                raise unknown_component(kind, name, node.setting)
            return None
        known = self.signature(kind, name)
        return None if known is None else (name, configurable(kind, known, part.supplied), ())

    def value(self, node: Node, argument: Argument, key: str, owner: str) -> None:
        if argument.part is not None and argument.part.base in _KINDS:
            self.component(node, argument.part, None, key)


def configurable(kind: str, arguments: Mapping[str, Argument], supplied: int) -> dict[str, Argument]:
    """The arguments of a component that a configuration may give.

    Args:
        kind: of the component.
        arguments: of its constructor.
        supplied: how many of the first ones its factory supplies; of a schedule see `config.schedule_arguments`.
    """
    first = 1 if kind == "schedules" else supplied
    given = dict(islice(arguments.items(), first, None))
    if kind == "schedules" and "total_steps" in given and given["total_steps"].required:
        del given["total_steps"]
    return given


def _may_be_a_class(name: str) -> bool:
    """Whether a class of that name may be imported though it is not registered: the parser finds it if it is."""
    if registry.kinds_of(name):
        return False
    return any(defines_class(module, name) for module in ("slotbench", "slotbench_plugins", *registry.modules()))
