"""Which components a command line and its configuration files name, so that exactly these are imported."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from slotbench import registry

__all__ = ["config_files", "load_named"]

_NAME = re.compile(r"[A-Za-z_]\w*")


def config_files(arguments: list[str]) -> list[Path]:
    """The files given with --config, -c or --config=FILE, in order."""
    files = []
    for index, argument in enumerate(arguments):
        if argument in ("--config", "-c") and index + 1 < len(arguments):
            files.append(Path(arguments[index + 1]))
        elif argument.startswith("--config="):
            files.append(Path(argument.partition("=")[2]))
    return files


def load_named(arguments: list[str]) -> None:
    """Imports every registered component whose bare name stands in the arguments or in the files they name.

    Raises:
        RegistryError: a component that is named cannot be imported.
    """
    found = set(_in_arguments(arguments))
    for file in config_files(arguments):
        if file.is_file():
            found.update(_in_tree(yaml.safe_load(file.read_text(encoding="utf-8"))))
    for name in sorted(found):
        for kind in registry.kinds_of(name):
            registry.load(kind, name)


def _in_arguments(arguments: list[str]) -> Iterator[str]:
    for argument in arguments:
        value = argument.partition("=")[2] if argument.startswith("--") else argument
        if _NAME.fullmatch(value):
            yield value
        elif value.startswith("{"):
            yield from _in_tree(yaml.safe_load(value))


def _in_tree(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict):
        for value in tree.values():
            yield from _in_tree(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _in_tree(value)
    elif isinstance(tree, str) and _NAME.fullmatch(tree):
        yield tree
