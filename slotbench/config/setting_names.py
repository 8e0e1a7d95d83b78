"""Completes the names of settings, and their values; reads sources, and imports no torch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from slotbench import registry
from slotbench.config.refusals import configurable
from slotbench.config.settings import Node, Setting, tree_of
from slotbench.config.walk import LINKED, PARTS
from slotbench.sources import Argument, arguments_from_source

__all__ = ["SettingNames"]

_OF_INTERFACES = {interface: kind for kind, interface in registry.INTERFACES.items()}
_TRAINER = "lightning.pytorch.trainer.trainer:Trainer"
_PART_KINDS = {"model": "tasks", "data": "datasets"}


class SettingNames:
    """The settings that a configuration can have, given those that it has.

    Args:
        settings: of the files and of the command line so far.
    """

    def __init__(self, settings: Iterable[Setting]) -> None:
        self._root = tree_of(settings)

    def names(self, typed: str) -> list[str]:
        """The settings one level below what is typed, such as "model.core" and those of the core for "model.co".

        Args:
            typed: a key, or its beginning, without the dashes. A name that ends with a dot has settings below it.
        """
        *path, _ = typed.split(".")
        if not path:
            return [name for part in PARTS for name in ([part] if part != "trainer" else []) + [f"{part}."]]
        found = []
        for name, argument in self._below(path).items():
            key = ".".join([*path, name])
            if not argument.fields:
                found.append(key)
            if self._below([*path, name]):
                found.append(f"{key}.")
        return found

    def values(self, key: str) -> list[str] | None:
        """What a setting can be, where that is a choice of few or a component; None where it can be anything."""
        path = key.removesuffix(".help").split(".")
        # where no task says so, a part is what its name says
        kind = self._kind(path) or {singular: kind for kind, singular in registry.KINDS.items()}.get(path[-1])
        if kind is not None:
            return registry.names(kind)
        argument = self._below(path[:-1]).get(path[-1]) if len(path) > 1 else None
        if argument is None:
            return None
        if "bool" in re.split(r"\W+", argument.hint):
            return ["true", "false"]
        chosen = re.search(r"Literal\[(.*?)\]", argument.hint)
        return re.findall(r"['\"]([^'\"]+)['\"]", chosen[1]) if chosen else None

    def _kind(self, path: list[str]) -> str | None:
        """The kind of component that a setting is."""
        if len(path) == 1:
            return _PART_KINDS.get(path[0])
        argument = self._below(path[:-1]).get(path[-1])
        return _OF_INTERFACES.get(argument.part.base) if argument is not None and argument.part is not None else None

    def _below(self, path: list[str]) -> Mapping[str, Argument]:
        """The arguments of the component that a setting names, or the fields of a dataclass."""
        if path == ["trainer"]:
            return arguments_from_source(_TRAINER) or {}
        if len(path) > 1 and (argument := self._below(path[:-1]).get(path[-1])) is not None and argument.fields:
            return argument.fields
        kind, name = self._kind(path), str(self._node(path).value or "").rpartition(".")[2]
        entry = registry.find(kind, name) if kind is not None else None
        if kind is None or entry is None:
            return {}
        supplied = 0
        if len(path) > 1 and (part := self._below(path[:-1])[path[-1]].part) is not None:
            supplied = part.supplied
        known = configurable(kind, arguments_from_source(entry.target) or {}, supplied)
        return {name: argument for name, argument in known.items() if name not in LINKED}

    def _node(self, path: list[str]) -> Node:
        node = self._root
        for name in path:
            node = node.children.get(name, Node())
        return node
