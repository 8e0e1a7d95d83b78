"""`slotbench new`: what it writes installs, passes its own tests and trains; what it refuses."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from slotbench import registry
from slotbench.cli import run
from slotbench.interfaces.aggregations import sums_suffice
from slotbench.templates.files import KINDS, Names, plugin_file, plugin_files

RIVALS = {"dataset": "SlotSSM and SlotRNN on APart", "task": "SlotSSM and SlotRNN at APart"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_plugin_has_all_that_a_distribution_needs_and_says_what_to_type(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["new", "plugin", "fading-slots"]) == 0
    assert "cd fading-slots\n  pip install -e '.[test]'\n  pytest\n  slotbench fit" in capsys.readouterr().out
    project = tomllib.loads((here / "fading-slots" / "pyproject.toml").read_text())["project"]
    assert project["name"] == "fading-slots"
    assert project["entry-points"] == {"slotbench.cores": {"FadingSlots": "fading_slots.core:FadingSlots"}}
    grid = yaml.safe_load((here / "fading-slots" / "experiments" / "grids" / "compare.yaml").read_text())
    assert grid["product"] == {"model.core": ["FadingSlots", "SlotSSM"]}
    assert grid["seeds"] == 2
    base = here / "fading-slots" / "experiments" / "grids" / grid["base"]
    assert yaml.safe_load(base.read_text())["model"]["init_args"]["core"]["class_path"] == "FadingSlots"
    workflow = yaml.safe_load((here / "fading-slots" / ".github" / "workflows" / "ci.yml").read_text())
    assert workflow["jobs"]["tests"]["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_for_a_kind_is_whole(kind: str) -> None:
    files = plugin_files(kind, Names("a-part", "a_part", "APart", kind), "0.1")
    for path, content in files.items():
        assert not re.search(r"@\w+@", content), path
        if path.endswith(".py"):
            ast.parse(content)
        if path.endswith(".yaml"):
            yaml.safe_load(content)
    experiment = yaml.safe_load(files["experiments/balls.yaml"])
    assert experiment["data"]["class_path"] == ("APart" if kind == "dataset" else "BouncingBalls")
    assert "APart" in str(experiment)
    assert files["experiments/grids/compare.yaml"].startswith(f"# {RIVALS.get(kind, 'APart and ')}")


@pytest.mark.parametrize(
    ("name", "package", "class_name"),
    [("FadingSlots", "fading_slots", "FadingSlots"), ("fading_slots", "fading_slots", "FadingSlots")],
)
def test_a_name_may_be_given_in_any_style(here: Path, name: str, package: str, class_name: str) -> None:
    assert run(["new", "plugin", name, "--out", "out"]) == 0
    assert f"class {class_name}(RecurrentCore)" in (here / "out" / package / "core.py").read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_registers_its_class(here: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})
    assert run(["new", kind, f"own_{kind}.py"]) == 0
    (entry,) = registry.load_file(here / f"own_{kind}.py")
    assert (entry.name, registry.KINDS[entry.kind]) == (f"Own{kind.capitalize()}", kind)
    assert (here / f"own_{kind}.py").read_text() == plugin_file(kind, Names("", "", entry.name, kind))


def test_an_aggregation_runs_the_fast_kernels(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})
    assert run(["new", "aggregation", "own_sums.py"]) == 0
    registry.load_file(here / "own_sums.py")
    assert sums_suffice(registry.load("aggregations", "OwnSums")(8))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plugin", "SlotSSM"], "there is a core named SlotSSM already"),
        (["plugin", "numpy"], "there is a module named numpy already"),
        (["plugin", "2slots"], "is not a valid name"),
        (["plugin", "full"], "full exists and is not empty"),
        (["core", "full/it.py"], "full/it.py is there already"),
        (["core", "core"], "not a valid name for a plugin file"),
    ],
)
def test_what_cannot_be_written_is_said(here: Path, arguments, message, capsys) -> None:
    (here / "full").mkdir()
    (here / "full" / "it.py").write_text("mine = 1")
    assert run(["new", *arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert [path.name for path in here.rglob("*")] == ["full", "it.py"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_plugin_installs_and_passes_its_own_tests(here: Path, kind: str) -> None:
    pytest.importorskip("hatchling", reason="part of the test extra: pip install -e '.[test]'")
    assert run(["new", "plugin", "fresh-part", "--kind", kind]) == 0
    site = here / "site"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", str(site)]
    subprocess.run([*pip, "./fresh-part"], cwd=here, check=True)
    environment = os.environ | {"PYTHONPATH": str(site)}
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(tests, cwd=here / "fresh-part", env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout
