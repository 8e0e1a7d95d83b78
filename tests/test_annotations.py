"""Names in annotations are those of something: shape strings keep ruff and mypy from checking it."""

from __future__ import annotations

import ast
import builtins
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("slotbench", "plugins/slotbench_plugins")
MODULES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def unknown(source: str) -> set[str]:
    """Names in annotations that the module neither imports nor defines anywhere."""
    tree = ast.parse(source)
    known = set(dir(builtins)) | {"__file__"}
    annotations: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            known |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            known.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            known.add(node.id)
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            annotations.append(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            annotations.append(node.returns)
    used = {name.id for part in annotations for name in ast.walk(part) if isinstance(name, ast.Name)}
    return used - known


def test_an_unknown_name_is_seen():
    source = 'from torch import Tensor\ndef f(x: Float[Tensor, " batch"]) -> list[Tensor]:\n    y: Y = x\n'
    assert unknown(source) == {"Float", "Y"}


def test_every_name_is_known():
    found = {str(path.relative_to(ROOT)): unknown(path.read_text()) for path in MODULES}
    assert len(found) > 100
    assert {module: names for module, names in found.items() if names} == {}
