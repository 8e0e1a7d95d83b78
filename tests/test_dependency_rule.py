"""Which part of the project may import which (docs/architecture.md), read off the import statements."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = {"slotbench": ROOT / "slotbench", "slotbench_plugins": ROOT / "plugins" / "slotbench_plugins"}

# what every folder may import
EVERYWHERE = (
    "slotbench.arrays",
    "slotbench.checksums",
    "slotbench.errors",
    "slotbench.files",
    "slotbench.text",
    "slotbench.writable",
)

# folder of slotbench -> what of the project its modules may import
ALLOWED = {
    "slotbench.nn": ("slotbench.nn", "slotbench.ops"),
    # an interface in itself, beside the networks that it is made of
    "slotbench.nn.feature_extractor": ("slotbench.interfaces",),
    "slotbench.ops": ("slotbench.ops",),
    "slotbench.metrics": ("slotbench.metrics", "slotbench.interfaces"),
    "slotbench.data": ("slotbench.data", "slotbench.interfaces"),
    "slotbench.tasks": ("slotbench.tasks", "slotbench.interfaces", "slotbench.metrics", "slotbench.nn"),
    "slotbench.probing": ("slotbench.probing", "slotbench.interfaces", "slotbench.metrics"),
    # measures what the registry holds, and every layer below the commands
    "slotbench.bench": (
        "slotbench.bench",
        "slotbench.interfaces",
        "slotbench.registry",
        "slotbench.runs",
        "slotbench.data",
        "slotbench.metrics",
        "slotbench.nn",
        "slotbench.ops",
        "slotbench.tasks",
    ),
    "slotbench.callbacks": (
        "slotbench.callbacks",
        "slotbench.interfaces",
        "slotbench.nn",
        "slotbench.ops",
        "slotbench.runs",
        "slotbench.tasks",
    ),
    "slotbench.templates": (),
    # for the tests of other packages
    "slotbench.testing": ("slotbench.testing", "slotbench.interfaces", "slotbench.ops"),
    # its messages are those of the commands
    "slotbench.comparison": ("slotbench.comparison", "slotbench.runs"),
    "slotbench.grids": ("slotbench.grids", "slotbench.runs"),
    "slotbench.runs": ("slotbench.runs", "slotbench.callbacks"),
    "slotbench.arrays": (),
    "slotbench.checksums": (),
    "slotbench.errors": (),
    "slotbench.files": (),
    "slotbench.text": (),
    "slotbench.writable": (),
    "slotbench.interfaces": (),
    "slotbench.sources": (),
    # names the interfaces' modules in text only
    "slotbench.registry": ("slotbench.sources", "slotbench.interfaces", "slotbench.tasks", "slotbench.data"),
    # what `slotbench doctor` looks at is all of it
    "slotbench.health": ("slotbench",),
    "slotbench.cli": ("slotbench",),
    "slotbench.commands": ("slotbench",),
    "slotbench.__main__": ("slotbench.cli",),
    "slotbench_plugins": (
        "slotbench_plugins",
        "slotbench.interfaces",
        "slotbench.nn",
        "slotbench.ops",
        "slotbench.registry",
    ),
}


def modules() -> dict[str, Path]:
    found = {}
    for package, folder in PACKAGES.items():
        for file in sorted(folder.rglob("*.py")):
            parts = file.relative_to(folder).with_suffix("").parts
            found[".".join([package, *(part for part in parts if part != "__init__")])] = file
    return found


def project_imports(source: str, module: str) -> set[str]:
    """The project's modules that `source` imports anywhere, functions included."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*module.split(".")[: -node.level], base]).rstrip(".")
            found |= {base if base not in PACKAGES else f"{base}.{alias.name}" for alias in node.names}
    return {name for name in found if name.partition(".")[0] in PACKAGES}


def is_below(module: str, prefixes: tuple[str, ...]) -> bool:
    return any(module == prefix or module.startswith(f"{prefix}.") for prefix in prefixes)


def violations(module: str, imports: set[str]) -> list[str]:
    rules = [allowed for prefix, allowed in ALLOWED.items() if is_below(module, (prefix,))]
    # `slotbench.__version__` and other plain names of the package
    names = {name for name in imports if name.startswith("slotbench.__")}
    names |= {name for name in imports if is_below(name, EVERYWHERE)}
    return sorted(name for name in imports - names if not any(is_below(name, allowed) for allowed in rules))


def test_every_module_is_under_a_rule():
    unruled = [name for name in modules() if name not in PACKAGES and not is_below(name, tuple(ALLOWED))]
    assert unruled == []


@pytest.mark.parametrize("module", modules())
def test_imports_keep_to_the_rule(module):
    imports = project_imports(modules()[module].read_text(encoding="utf-8"), module)
    assert violations(module, imports) == []


def test_framework_never_imports_the_plugins():
    for module, file in modules().items():
        if module.partition(".")[0] == "slotbench":
            imports = project_imports(file.read_text(encoding="utf-8"), module)
            assert not any(is_below(name, ("slotbench_plugins",)) for name in imports), module


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("slotbench.nn.mlp", "from slotbench.interfaces import TokenSpec"),
        ("slotbench.ops.scan", "import slotbench.nn.mlp"),
        ("slotbench.data.balls", "def f():\n    from slotbench.nn import mlp"),
        ("slotbench.data.balls", "from ..tasks import base"),
        ("slotbench.tasks.base", "from slotbench_plugins.cores.slot_ssm import SlotSSM"),
        ("slotbench.tasks.base", "from slotbench import data"),
        ("slotbench.cli", "import slotbench_plugins"),
    ],
)
def test_a_breach_is_found(module, source):
    assert violations(module, project_imports(source, module)) != []
