"""Which module of the project imports which, read off the import statements without importing anything."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"slotbench": ROOT / "slotbench", "slotbench_plugins": ROOT / "plugins" / "slotbench_plugins"}
EVERYWHERE = {"io", "configurations", "errors", "lazy", "metric_info"}
"""Files beside the folders that all may import; they import nothing but each other."""


def modules() -> dict[str, Path]:
    """Every module of the two packages and its file."""
    found = {}
    for package, folder in PACKAGES.items():
        for file in sorted(folder.rglob("*.py")):
            parts = file.relative_to(folder).with_suffix("").parts
            found[".".join([package, *(part for part in parts if part != "__init__")])] = file
    return found


def folder_of(module: str) -> str:
    """The folder of slotbench that a module lies in; a file beside the folders counts as one of its own."""
    package, *parts = module.split(".")
    return parts[0] if parts and package == "slotbench" else package


def imports_of(source: str, module: str, known: Iterable[str], *, is_package: bool = False) -> dict[str, bool]:
    """The project's modules that `source` imports anywhere, functions included; true for those only types need."""
    known, tree = set(known), ast.parse(source)
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }
    found: dict[str, bool] = {}
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")[: len(module.split(".")) - node.level + is_package] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            # `slotbench.__version__` is no module
            names = [f"{base}.{alias.name}" for alias in node.names if not alias.name.startswith("__")]
        for name in names:
            if name.partition(".")[0] not in PACKAGES:
                continue
            while name not in known and "." in name:  # a name in a module
                name = name.rpartition(".")[0]
            if name != module:
                found[name] = found.get(name, True) and id(node) in for_types
    return found


@cache
def imports() -> dict[tuple[str, str], bool]:
    """Importing and imported module; true if only types need it."""
    known = modules()
    return {
        (module, name): types
        for module, file in known.items()
        for name, types in imports_of(
            file.read_text(encoding="utf-8"), module, known, is_package=file.stem == "__init__"
        ).items()
    }


def circles(arrows: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Groups of nodes that reach each other (Tarjan's strongly connected components of more than one node)."""
    graph: dict[str, list[str]] = {}
    for start, end in arrows:
        graph.setdefault(start, []).append(end)
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in order:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == order[node]:
            group = stack[stack.index(node) :]
            del stack[len(stack) - len(group) :]
            if len(group) > 1:
                found.append(sorted(group))

    for node in graph:
        if node not in order:
            visit(node)
    return found


def folder_arrows(found: Mapping[tuple[str, str], bool] | None = None) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """Importing and imported folder, with the imports that they stand for."""
    arrows: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for start, end in imports() if found is None else found:
        if folder_of(start) != folder_of(end):
            arrows.setdefault((folder_of(start), folder_of(end)), []).append((start, end))
    return arrows
