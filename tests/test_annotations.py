"""Every name is that of something: because of shape strings, ruff does not check it."""

from __future__ import annotations

import ast
import builtins
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("slotbench", "plugins/slotbench_plugins")
MODULES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def unknown(source: str) -> set[str]:
    """Names that the module uses, and neither imports nor defines anywhere."""
    known, used = {*dir(builtins), "__file__", "__path__"}, set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            known |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.ExceptHandler):
            known.add(node.name or "")
        elif isinstance(node, ast.arg):
            known.add(node.arg)
        elif isinstance(node, ast.MatchAs | ast.MatchStar):
            known.add(node.name or "")
        elif isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else known).add(node.id)
    return used - known


def test_an_unknown_name_is_seen() -> None:
    source = 'from torch import Tensor\ndef f(x: Float[Tensor, " batch"]) -> list[Tensor]:\n    y: Y = x + z\n'
    assert unknown(source) == {"Float", "Y", "z"}


def test_every_name_is_known() -> None:
    found = {str(path.relative_to(ROOT)): unknown(path.read_text()) for path in MODULES}
    assert len(found) > 100
    assert {module: names for module, names in found.items() if names} == {}
