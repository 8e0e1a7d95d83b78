"""What a user installs and reads first: metadata, the wheel, the README's commands, the headers of experiments."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import slotbench
from slotbench import registry

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DECLARED = [
    (group.removeprefix("slotbench."), name, target)
    for group, entries in PYPROJECT["project"]["entry-points"].items()
    for name, target in entries.items()
]


def test_entry_point_groups_are_the_kinds_of_the_registry():
    assert {kind for kind, _, _ in DECLARED} <= set(registry.KINDS)


def test_the_version_is_said_once():
    project = PYPROJECT["project"]
    assert "version" not in project
    assert project["dynamic"] == ["version"]
    assert PYPROJECT["tool"]["hatch"]["version"]["path"] == "slotbench/__init__.py"
    assert importlib.metadata.version("slotbench") == slotbench.__version__


def test_the_wheel_holds_both_packages_their_type_markers_and_nothing_else(tmp_path):
    pytest.importorskip("hatchling", reason="part of the test extra: pip install -e '.[test]'")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        info = f"slotbench-{slotbench.__version__}.dist-info"
        metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
        entry_points = archive.read(f"{info}/entry_points.txt").decode()
    assert {name.partition("/")[0] for name in names} == {"slotbench", "slotbench_plugins", info}
    assert {"slotbench/py.typed", "slotbench_plugins/py.typed"} <= set(names)
    # what .gitignore matches would be left out
    for parent in (ROOT, ROOT / "plugins"):
        sources = [file for package in ("slotbench", "slotbench_plugins") for file in (parent / package).rglob("*.py")]
        modules = {file.relative_to(parent).as_posix() for file in sources}
        assert modules <= set(names)
        assert {str(Path(module).parent / "__init__.py") for module in modules} <= modules
    models = [path for path in (ROOT / "slotbench" / "models").glob("*/**/*") if "__pycache__" not in path.parts]
    models = [path.relative_to(ROOT).as_posix() for path in models if path.is_file()]
    assert sum(name.endswith("/model.safetensors") for name in models) == 4
    assert set(models) <= set(names)
    for _, name, target in DECLARED:
        assert f"{name} = {target}" in entry_points
        if not target.startswith("torch."):
            assert f"{target.partition(':')[0].replace('.', '/')}.py" in names
    assert metadata["Version"] == slotbench.__version__


def test_nothing_in_the_requirements_needs_a_broken_or_heavy_library():
    required = [*PYPROJECT["project"]["dependencies"]]
    required += [line for extra in PYPROJECT["project"]["optional-dependencies"].values() for line in extra]
    names = {re.match(r"[\w-]+", line)[0].lower() for line in required}
    assert not names & {"torchvision", "timm", "lpips", "litdata", "tensorflow", "pyrender", "decord"}


def test_constraints_pin_every_direct_requirement_and_the_cpu_build_of_torch():
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pins = dict(line.lower().replace("_", "-").split("==") for line in lines)
    extras = PYPROJECT["project"]["optional-dependencies"]
    required = [
        *PYPROJECT["project"]["dependencies"],
        *(line for name in extras if name != "cuda" for line in extras[name]),
    ]
    wanted = {re.match(r"[\w-]+", line)[0].lower().replace("_", "-") for line in required} - {"slotbench"}
    assert sorted(wanted - set(pins)) == []
    assert pins["torch"] == "2.13.0"
