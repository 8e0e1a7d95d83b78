"""YAML as a grid file and its experiments are written: no key twice, and 1e-3 is a number."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import yaml

from slotbench.errors import FileError, UserError, did_you_mean, lines
from slotbench.files import CONFIG_LIMIT, read_text, yaml_node

__all__ = ["parse", "parse_file"]


class _Loader(yaml.SafeLoader):
    """The safe loader, strict about keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        first: dict[Any, yaml.Node] = {}
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is no word; write it in quotes", key_node.start_mark
                )
            if key in first:
                raise yaml.constructor.ConstructorError(
                    f"(it is first given in line {first[key].start_mark.line + 1})",
                    first[key].start_mark,
                    f"the key {key} is given twice",
                    key_node.start_mark,
                )
            first[key] = key_node
        return super().construct_mapping(node, deep)


# YAML 1.1 asks for a dot and a sign, and reads 1e-3 as a word
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+0123456789.")
)


def parse(text: str) -> Any:
    """What a piece of YAML says.

    Raises:
        yaml.YAMLError: it is not valid.
    """
    # a subclass of the safe loader
    return yaml.load(text, Loader=_Loader)


def parse_file(path: Path, given: str | None = None) -> tuple[str, Any]:
    """The text of a file and what it says.

    Args:
        path: the file.
        given: where it is named, for the message.

    Raises:
        UserError: it is not there or not valid.
    """
    if not os.path.isfile(path):
        what = "is a directory; expected a YAML file" if os.path.isdir(path) else "is not there"
        if os.path.lexists(path) and not os.path.isdir(path):
            what = "is no regular file; expected a YAML file"
        there = [str(file) for file in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
        raise UserError(lines(f"{path} {what}{did_you_mean(str(path), there)}", given=given))
    try:
        text = read_text(path, CONFIG_LIMIT)
        _check_bounds(text, path)
        return text, parse(text)
    except FileError as error:
        raise UserError(lines(str(error), given=given)) from error
    except (RecursionError, ValueError) as error:
        raise UserError(lines(f"{path} is not valid YAML: {str(error)[:200]}", given=given)) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        context = f" {error.context}" if error.context else ""
        raise UserError(lines(f"{path}, {where}{error.problem}{context}", given=given)) from error
    except yaml.YAMLError as error:
        raise UserError(lines(f"{path} is not valid YAML: {error}", given=given)) from error


def _check_bounds(text: str, path: Path) -> None:
    """Bounds what a file's aliases stand for, and its depth; what is wrong with its syntax, `parse` says better.

    Raises:
        FileError: it holds more than any configuration does.
    """
    try:
        yaml_node(text, path)
    except FileError as error:
        if not isinstance(error.__cause__, yaml.YAMLError):
            raise
