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
    spec = _find_spec(module_name)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"No module named '{module_name}'")
    if not spec.origin.endswith(".py"):
        return ""
    for node in ast.parse(Path(spec.origin).read_text(encoding="utf-8"), filename=spec.origin).body:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            return first_sentence(ast.get_docstring(node) or "")
    return ""


def _find_spec(module_name: str) -> ModuleSpec | None:
    """`importlib.util.find_spec` without importing the parent packages, which it would do."""
    path = None
    spec = None
    parts = module_name.split(".")
    for depth in range(1, len(parts) + 1):
        name = ".".join(parts[:depth])
        found = (finder.find_spec(name, path) for finder in sys.meta_path if hasattr(finder, "find_spec"))
        spec = next((candidate for candidate in found if candidate is not None), None)
        if spec is None or (depth < len(parts) and spec.submodule_search_locations is None):
            return None
        path = None if spec.submodule_search_locations is None else list(spec.submodule_search_locations)
    return spec


def first_sentence(docstring: str) -> str:
    """The docstring up to its first full stop, or its first paragraph."""
    paragraph = " ".join(docstring.strip().split("\n\n")[0].split())
    end = re.search(r"(?<!e\.g)(?<!i\.e)(?<! al)[.:](?=\s+[A-Z]|$)", paragraph)
    return paragraph[: end.start() + 1] if end else paragraph
