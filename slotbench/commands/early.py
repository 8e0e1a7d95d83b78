"""Mistakes that names and sources alone show: refused before torch is imported, in the words of `commands.explain`.

Nothing is refused here that the parser would take. Where the sources do not say (a component of a `--plugin` file, a
class that is made at run time, an argument that is no component), the setting is left to the parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from slotbench import registry
from slotbench.commands.options import RunOptions
from slotbench.commands.refusals import LINKED, PARTS, stands_alone, unknown_argument, unknown_component, unknown_key
from slotbench.commands.settings import Setting
from slotbench.commands.tree import Node, tree_of
from slotbench.sources import SourceArgument, arguments_from_source, defines_class

__all__ = ["refuse_early"]

_TRAINER = "lightning.pytorch.trainer.trainer:Trainer"
# what the trainer's methods are given by the command and not by the user
_OURS = ("model", "dataloaders", "train_dataloaders", "val_dataloaders", "datamodule")
_NAME = re.compile(r"[A-Za-z_]\w*")
_ASKS = ("help", "h", "print_config")


def refuse_early(command: str, settings: Iterable[Setting], options: RunOptions) -> None:
    """Raises what `commands.explain` would say of a name that means nothing.

    Args:
        command: fit, validate, test or predict.
        settings: what the user has given, in order.
        options: of the run.

    Raises:
        UserError: there is such a name.
    """
    settings = list(settings)
    if any(set(setting.key[-1:]) & set(_ASKS) for setting in settings):
        return
    for setting in settings:
        if not setting.key:
            raise stands_alone(setting)
    root = tree_of(settings)
    is_open = _is_open(command, options)
    trainer = arguments_from_source(_TRAINER)
    method = arguments_from_source(_TRAINER, command)
    # where a part is not known, it may be the owner of the argument, which the parser's refusal names
    if trainer is not None and method is not None and not is_open:
        known = [*PARTS, "seed_everything", *(argument.name for argument in method if argument.name not in _OURS)]
        for name, node in root.children.items():
            if name not in known and name != "config":
                raise unknown_key(name, node.first_setting(), known, _owner_of(name, root, trainer))
    walk = _Walk(is_open)
    for part, kind in (("model", "tasks"), ("data", "datasets")):
        if part in root.children:
            walk.component(root.children[part], kind, 0)
    if trainer is not None and "trainer" in root.children:
        walk.arguments(root.children["trainer"], trainer, "the trainer")


class _Walk:
    """Checks names beside the sources of the components that they belong to, depth first.

    Args:
        is_open: whether there may be components that no package declares.
    """

    def __init__(self, is_open: bool) -> None:
        self.is_open = is_open

    def component(self, node: Node, kind: str, supplied: int) -> None:
        name = node.value
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name in ("null", "None"):
            return
        if name not in registry.names(kind):
            if not self.is_open and not Path(name).exists() and not _may_be_a_class(name):
                raise unknown_component(kind, name, node.setting)
            return
        entry = registry.find(kind, name)
        arguments = arguments_from_source(entry.target) if entry is not None else None
        if arguments is not None:
            self.arguments(node, arguments[supplied:], name)

    def arguments(self, node: Node, arguments: list[SourceArgument], owner: str) -> None:
        known = {argument.name: argument for argument in arguments}
        for name, child in node.children.items():
            # "+" appends to a list, "<<" is YAML's
            if name.endswith("+") or name == "<<" or name in LINKED:
                continue
            if name not in known:
                if child.outdated:
                    continue
                raise unknown_argument(owner, name, known, child.setting or child.first_setting())
            argument = known[name]
            if argument.kind is not None:
                self.component(child, argument.kind, argument.supplied)


def _is_open(command: str, options: RunOptions) -> bool:
    """Whether there may be components that no package declares: from a file, from elsewhere, or those of a run."""
    of_a_run = command != "fit" or options.resume or (options.run_dir and options.run_dir.exists())
    return bool(options.plugin or options.allow_import or of_a_run)


def _may_be_a_class(name: str) -> bool:
    """Whether a class of that name may be imported though it is not registered: the parser finds it if it is."""
    if registry.kinds_of(name):
        return False
    return any(defines_class(module, name) for module in ("slotbench", "slotbench_plugins", *registry.modules()))


def _owner_of(name: str, root: Node, trainer: list[SourceArgument]) -> str | None:
    """The part that has an argument of this name; the user may have left it out."""
    for part, kind in (("data", "datasets"), ("trainer", None), ("model", "tasks")):
        arguments: list[SourceArgument] | None = trainer
        if kind is not None:
            node = root.children.get(part)
            entry = registry.find(kind, node.value) if node is not None and isinstance(node.value, str) else None
            arguments = arguments_from_source(entry.target) if entry is not None else None
        if name in {argument.name for argument in arguments or ()}:
            return part
    return None
