"""Which folder may import which (docs/architecture.md), and how long functions may be."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs" / "scripts"))

from import_graph import EVERYWHERE, circles, folder_arrows, folder_of, imports, imports_of, modules  # noqa: E402

ARROWS: dict[str, set[str]] = {
    "ops": {"interfaces"},
    "nn": {"ops", "interfaces"},
    "pretrained": {"nn", "interfaces"},
    "metrics": {"nn", "registry", "interfaces"},
    "data": {"components", "interfaces"},
    "figures": {"metrics", "interfaces"},
    "objectives": {"components", "interfaces"},
    "tasks": {
        *("figures", "nn", "metrics", "pretrained", "data"),
        *("components", "registry", "interfaces", "lightning_compat"),
    },
    "evaluation": {"metrics", "data", "runs", "interfaces"},
    "testing": {"ops", "interfaces"},
    "runs": {"interfaces"},
    "callbacks": {"runs", "metrics", "nn", "ops", "interfaces", "lightning_compat"},
    "comparison": {"runs", "interfaces"},
    "models": {"pretrained", "registry", "runs", "tasks", "data", "components", "interfaces"},
    "grids": {"config", "nn", "registry", "runs", "interfaces"},
    "bench": {"registry", "ops", "runs", "interfaces"},
    "doctor": {"bench", "ops", "registry", "runs"},
    "templates": set(),
    "config": {
        *("callbacks", "data", "metrics", "nn", "ops", "pretrained", "runs", "tasks"),
        *("registry", "interfaces", "lightning_compat"),
    },
    "slotbench_plugins": {"nn", "ops", "interfaces"},
    # files beside the folders
    "interfaces": set(),
    "lightning_compat": set(),
    "sources": set(),
    "registry": {"sources", "interfaces"},
    "components": {"registry", "sources"},
    **{kind: {"components"} for kind in ("encoders", "cores", "decoders", "aggregations", "tokenizers")},
    "cli": {"commands", "registry"},
    "__main__": {"cli"},
}
"""Folder -> the folders that it may import; `commands` may import all but the plugins."""

FOLDERS_WITHOUT_A_RULE = {"commands", "slotbench"}
FILE_CIRCLES: list[list[str]] = []

_ARGUMENTS = "a docstring for every argument"
_KERNEL = "one kernel: numba compiles it as a whole"
LONG_FUNCTIONS = {
    "plugins/slotbench_plugins/cores/rim/alt_scoff.py __init__": _ARGUMENTS,
    "plugins/slotbench_plugins/cores/rim/oc_rim.py __init__": _ARGUMENTS,
    "plugins/slotbench_plugins/cores/rim/rim.py __init__": _ARGUMENTS,
    "plugins/slotbench_plugins/cores/rim/scoff.py __init__": _ARGUMENTS,
    "slotbench/comparison/table.py compare": _ARGUMENTS,
    "slotbench/data/balls/physics.py _simulate": _KERNEL,
    "slotbench/data/movi_like/ray_kernel.py render_into": _KERNEL,
    "slotbench/ops/_cuda/triton_selective_scan_kernels.py backward": "one kernel, a line per argument",
    "slotbench/ops/_cuda/triton_selective_scan_kernels.py forward": "one kernel, a line per argument",
    "slotbench/ops/causal_conv1d.py causal_conv1d": _ARGUMENTS,
    "slotbench/ops/inverted_attention/attention.py inverted_attention": _ARGUMENTS,
    "slotbench/ops/linear_scan.py linear_scan": _ARGUMENTS,
    "slotbench/ops/selective_scan.py selective_scan": _ARGUMENTS,
    "slotbench/ops/ssd.py ssd": _ARGUMENTS,
}
"""Functions over 60 lines, with the reason."""


def allowed(start: str, end: str) -> bool:
    """Whether the folder `start` may import the folder `end`."""
    if start in FOLDERS_WITHOUT_A_RULE:
        return end != "slotbench_plugins"
    if end in EVERYWHERE:
        return True
    return end in ARROWS.get(start, set())


def python_files() -> dict[str, str]:
    """Every Python file of the project by its path, with its text."""
    files = [file for folder in ("slotbench", "plugins", "tests", "docs") for file in (ROOT / folder).rglob("*.py")]
    return {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in sorted(files)}


def test_every_arrow_between_folders_is_an_allowed_one():
    found = {arrow: sorted(stands_for)[:3] for arrow, stands_for in folder_arrows().items() if not allowed(*arrow)}
    assert found == {}


def test_every_folder_has_a_rule():
    folders = {folder_of(module) for module in modules()}
    assert folders - set(ARROWS) - EVERYWHERE - FOLDERS_WITHOUT_A_RULE == set()
    assert set(ARROWS) - folders == set()


def test_the_rule_has_no_circle_and_neither_have_the_folders():
    assert circles((start, end) for start, ends in ARROWS.items() for end in ends) == []
    assert circles(folder_arrows({pair: types for pair, types in imports().items() if not types})) == []


def test_no_file_imports_itself_by_way_of_others():
    assert circles(pair for pair, types in imports().items() if not types) == FILE_CIRCLES


def test_files_of_tests_have_names_of_their_own():
    counted = Counter(Path(path).name for path in python_files() if path.startswith("tests/"))
    del counted["conftest.py"]
    assert [name for name, count in counted.items() if count > 1 and name != "__init__.py"] == []


def test_functions_are_short():
    found = {
        f"{path} {node.name}"
        for path, text in python_files().items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (node.end_lineno or 0) - node.lineno >= 60
    }
    assert sorted(found ^ set(LONG_FUNCTIONS)) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("slotbench.ops.scan", "import slotbench.nn.mlp"),
        ("slotbench.ops.scan", "from slotbench.tasks import slot_task"),
        ("slotbench.data.clevr", "def f():\n    from slotbench.nn import mlp"),
        ("slotbench.data.clevr", "from ..tasks import base"),
        ("slotbench.data", "from .. import tasks"),
        ("slotbench.tasks.slot_task", "if TYPE_CHECKING:\n    from slotbench_plugins.cores.slot_ssm import SlotSSM"),
        ("slotbench.errors", "from slotbench import data"),
        ("slotbench.commands.new", "import slotbench_plugins"),
    ],
)
def test_a_breach_is_found(module, source):
    names = imports_of(source, module, modules(), is_package=module == "slotbench.data")
    assert [name for name in names if not allowed(folder_of(module), folder_of(name))] == list(names) != []


def test_circles_are_found_and_what_types_need_is_told_apart():
    assert circles([("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e")]) == [["a", "b", "c"]]
    assert circles([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]) == []
    source = "if TYPE_CHECKING:\n    from slotbench import io\n    import slotbench.errors\nimport slotbench.errors\n"
    assert imports_of(source, "slotbench.cli", modules()) == {"slotbench.io": True, "slotbench.errors": False}
