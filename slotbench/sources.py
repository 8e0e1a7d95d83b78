"""A class's docstring and its arguments' names, read from its source: importing it would import torch."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import sys
from pathlib import Path

__all__ = ["docstring_from_source", "first_sentence", "takes_argument"]


def docstring_from_source(target: str) -> str:
    """The docstring of "module:class"; empty if it has none or the module is no Python file."""
    body, class_name = _module(target)
    for node in body:
        if isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                if (alias.asname or alias.name) == class_name:
                    return docstring_from_source(f"{node.module}:{alias.name}")
        if isinstance(node, ast.ClassDef) and node.name == class_name and (found := ast.get_docstring(node)):
            return found
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == f"{class_name}.__doc__":
            # as torch's optimisers are documented: text with parts that several share
            parts = [part for part in ast.walk(node.value) if isinstance(part, ast.Constant)]
            first = min(parts, key=lambda part: (part.lineno, part.col_offset), default=None)
            return inspect.cleandoc(str(first.value)) if first is not None else ""
    return ""


def takes_argument(target: str, name: str) -> bool:
    """Whether the constructor that the source of "module:class" has takes an argument."""
    body, class_name = _module(target)
    made = [node for node in body if isinstance(node, ast.ClassDef) and node.name == class_name]
    inits = [node for one in made for node in one.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    return any(argument.arg == name for init in inits for argument in (*init.args.args, *init.args.kwonlyargs))


def first_sentence(docstring: str) -> str:
    """The docstring up to its first full stop, or its first paragraph."""
    paragraph = " ".join(docstring.strip().split("\n\n")[0].split())
    end = re.search(r"(?<!e\.g)(?<!i\.e)(?<! al)[.:](?=\s+[A-Z]|$)", paragraph)
    return paragraph[: end.start() + 1] if end else paragraph


def _module(target: str) -> tuple[list[ast.stmt], str]:
    """The statements of a module, and the name of the class."""
    module_name, _, class_name = target.partition(":")
    file = _source_file(module_name)
    if file is None:
        raise ModuleNotFoundError(f"No module named '{module_name}'")
    return (_parsed(file, file.stat().st_mtime_ns) if file.suffix == ".py" else []), class_name


@functools.lru_cache(maxsize=512)
def _parsed(file: Path, changed: int) -> list[ast.stmt]:
    return ast.parse(file.read_text(encoding="utf-8"), filename=str(file)).body


def _source_file(module_name: str) -> Path | None:
    """Where a module is, as `importlib.util.find_spec` would say, which imports the module's parents to find out."""
    parts = module_name.split(".")
    path: list[str] | None = None
    for depth, part in enumerate(parts, start=1):
        try:
            finders = (finder for finder in sys.meta_path if hasattr(finder, "find_spec"))
            found = (finder.find_spec(".".join(parts[:depth]), path) for finder in finders)
            spec = next((one for one in found if one is not None), None)
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
