"""Reads what a module says about a class without importing it: importing it would import torch."""

from __future__ import annotations

import ast
import re
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

__all__ = ["first_sentence", "summary_from_source"]


def summary_from_source(target: str) -> str:
    """First sentence of a class's docstring, found by parsing its module.

    Args:
        target: "module:class".

    Raises:
        ModuleNotFoundError: there is no such module.
        SyntaxError: the module cannot be parsed.
    """
    module_name, _, class_name = target.partition(":")
    file = _source_file(module_name)
    if file is None:
        raise ModuleNotFoundError(f"No module named '{module_name}'")
    if file.suffix != ".py":
        return ""
    for node in ast.parse(file.read_text(encoding="utf-8"), filename=str(file)).body:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            return first_sentence(ast.get_docstring(node) or "")
    return ""


def _source_file(module_name: str) -> Path | None:
    """Where a module is, as `importlib.util.find_spec` would say, which imports the module's parents to find out."""
    parts = module_name.split(".")
    path: list[str] | None = None
    for depth, part in enumerate(parts, start=1):
        try:
            spec = _find_spec(".".join(parts[:depth]), path)
        except KeyError:
            # a folder without __init__.py inside a package: its finder wants the parent imported
            path = [str(folder) for parent in path or () if (folder := Path(parent) / part).is_dir()]
            continue
        if spec is None:
            return None
        if depth == len(parts):
            return None if spec.origin is None else Path(spec.origin)
        path = list(spec.submodule_search_locations or ())
    return None


def _find_spec(name: str, path: list[str] | None) -> ModuleSpec | None:
    found = (finder.find_spec(name, path) for finder in sys.meta_path if hasattr(finder, "find_spec"))
    return next((spec for spec in found if spec is not None), None)


def first_sentence(docstring: str) -> str:
    """The docstring up to its first full stop, or its first paragraph."""
    paragraph = " ".join(docstring.strip().split("\n\n")[0].split())
    end = re.search(r"(?<!e\.g)(?<!i\.e)(?<! al)[.:](?=\s+[A-Z]|$)", paragraph)
    return paragraph[: end.start() + 1] if end else paragraph
