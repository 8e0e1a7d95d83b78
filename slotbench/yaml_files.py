"""YAML that may be damaged or hostile: bounded in size, depth and in what its aliases stand for.

Nothing is constructed that could run code. What is wrong is a `FileError`, one sentence with the path and the line.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from slotbench.errors import FileError
from slotbench.files import read_text

__all__ = ["CONFIG_LIMIT", "parse_yaml", "read_yaml", "yaml_node"]

CONFIG_LIMIT = 4 << 20
"""Bytes that a YAML file may have."""

_YAML_DEPTH, _YAML_NODES = 60, 200_000
_YamlLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(path: str | Path, limit: int = CONFIG_LIMIT) -> Any:
    """What a YAML file holds, as plain values.

    Raises:
        FileError: see `read_text` and `parse_yaml`.
    """
    return parse_yaml(read_text(path, limit), path)


def parse_yaml(text: str, where: str | Path) -> Any:
    """YAML as plain values: nothing is constructed that could run code, and aliases cannot multiply it.

    Args:
        text: the YAML, one document.
        where: what it was read from, for messages.

    Raises:
        FileError: see `yaml_node`; or a value is invalid (a date of month 13).
    """
    node = yaml_node(text, where)
    if node is None:
        return None
    try:
        return yaml.SafeLoader("").construct_document(node)
    except (yaml.YAMLError, ValueError, TypeError, OverflowError) as error:
        raise FileError(f"{where} is not valid YAML: {_one_line(error)}") from error


def yaml_node(text: str, where: str | Path) -> yaml.Node | None:
    """The nodes of a YAML document, with their lines; None for an empty one.

    Raises:
        FileError: it is not YAML, is nested more than 60 deep, or has more than 200,000 values once its aliases are
            written out (a few hundred bytes of aliases can stand for billions).
    """
    try:
        depth = 0
        for count, event in enumerate(yaml.parse(text, Loader=_YamlLoader)):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _YAML_DEPTH:
                raise FileError(f"{where} is nested more than {_YAML_DEPTH} deep; a configuration is not")
            if count > _YAML_NODES:
                raise FileError(f"{where} has more than {_YAML_NODES:,} values; a configuration has fewer")
        node = yaml.compose(text, Loader=_YamlLoader)
    except yaml.YAMLError as error:
        raise FileError(_yaml_problem(text, where, error)) from error
    except (RecursionError, ValueError) as error:
        raise FileError(f"{where} is not valid YAML: {_one_line(error)}") from error
    if node is not None and _written_out(node, {}, where) > _YAML_NODES:
        raise FileError(f"{where} has more than {_YAML_NODES:,} values once its aliases are written out")
    return node


def _written_out(node: yaml.Node, known: dict[int, int], where: str | Path) -> int:
    """Nodes below `node`, those behind an alias counted each time."""
    key = id(node)
    if key in known:
        if known[key] < 0:
            raise FileError(f"{where} has an alias that holds itself")
        return known[key]
    known[key] = -1
    if isinstance(node, yaml.MappingNode):
        children = [child for pair in node.value for child in pair]
    elif isinstance(node, yaml.SequenceNode):
        children = node.value
    else:
        children = []
    known[key] = 1 + sum(_written_out(child, known, where) for child in children)
    return known[key]


def _yaml_problem(text: str, where: str | Path, error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        return f"{where} is not valid YAML: {_one_line(error)}"
    source = text.splitlines()
    line = source[mark.line] if mark.line < len(source) else ""
    has_tab = "\t" in line[: mark.column + 1]
    problem = "a tab; YAML is indented with spaces" if has_tab else getattr(error, "problem", None) or "syntax error"
    context = getattr(error, "context", None)
    context = f" {context}" if context and not has_tab else ""
    start = max(0, mark.column - 80)
    return "\n".join(
        [
            f"{where} is not valid YAML: line {mark.line + 1}, column {mark.column + 1}: {problem}{context}",
            f"  {mark.line + 1:>4} | {line[start : start + 120].replace(chr(9), ' ')}",
            f"  {'':>4} | {'':>{mark.column - start}}^",
        ]
    )


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
