"""Values of settings: as YAML, as part of a hash, as an argument of a command line, as a word of a folder's name."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from slotbench.errors import FileError, UserError, did_you_mean, lines
from slotbench.files import read_text
from slotbench.yaml_files import CONFIG_LIMIT, yaml_node

__all__ = ["as_argument", "as_label", "as_word", "canonical", "is_possible", "parse", "parse_file", "sha256"]


def is_possible(value: Any) -> bool:
    """Whether a value can be a setting: one that JSON can hold, and finite."""
    if value is None or isinstance(value, bool | int | str):
        return True
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, list):
        return all(map(is_possible, value))
    return isinstance(value, dict) and all(isinstance(key, str) and is_possible(item) for key, item in value.items())


def canonical(value: Any) -> str:
    """The one JSON text of a value, whatever the order of its keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)


def sha256(value: Any) -> str:
    """Hash of the canonical text, in hex digits."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def as_argument(value: Any) -> str:
    """The value as one types it on a command line."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def as_label(value: Any) -> str:
    """A short label of the value; two values may have the same."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return " ".join(map(as_label, value)) or "[]"
    if isinstance(value, Mapping):
        arguments = {key: item for key, item in value.items() if key not in ("class_path", "init_args")}
        arguments |= value.get("init_args") or {}
        words = [str(value["class_path"]).rpartition(".")[2]] if value.get("class_path") else []
        return " ".join([*words, *(f"{key} {as_label(item)}" for key, item in arguments.items())]) or "{}"
    return as_argument(value)


def as_word(label: str, longest: int = 32) -> str:
    """The label as part of a folder's name: letters, digits and _ . + @ -, and no longer than that."""
    return re.sub(r"[^A-Za-z0-9_.+@-]+", "-", label)[:longest] or "-"


_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_SafeLoader):  # type: ignore[misc]
    """The safe loader, strict about keys; the one in C where PyYAML has it, which takes a tenth of the time."""

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
    """The value of a piece of YAML.

    Raises:
        yaml.YAMLError: it is not valid.
    """
    # a subclass of the safe loader
    return yaml.load(text, Loader=_Loader)


def parse_file(path: Path, given: str | None = None) -> tuple[str, Any]:
    """The text of a file and its value.

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
