"""`slotbench new`: what it writes installs, passes its own tests and trains; what it refuses."""

from __future__ import annotations

import ast
import json
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
from slotbench.templates.source import Source, source_of_slotbench

RIVALS = {"dataset": "SlotSSM and SlotRNN on APart", "task": "SlotSSM and SlotRNN at APart"}
NAMES = Names("fading-slots", "fading_slots", "FadingSlots", "core")


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


@pytest.mark.parametrize("arguments", [["core", "my_core.py"], ["plugin", "my-core"]])
def test_nothing_is_written_through_a_link(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    outside = here / "outside"
    (here / arguments[1]).symlink_to(outside)
    assert run(["new", *arguments]) == 2
    assert "choose another name" in " ".join(capsys.readouterr().err.split())
    assert not outside.exists()


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
    ("source", "line", "in_ci"),
    [
        (Source(("git+https://host/o/r@1a2b",), "git+https://host/o/r@1a2b"), "git+https://host/o/r@1a2b", True),
        (Source(("-c", "/a b/constraints.txt", "/a b")), "-c '/a b/constraints.txt' '/a b'", False),
    ],
)
def test_the_readme_and_ci_say_where_slotbench_comes_from(source: Source, line: str, in_ci: bool) -> None:
    files = plugin_files("core", NAMES, "0.1", source)
    install, own = (files["README.md"].index(text) for text in (f"pip install {line}\n", "pip install -e '.[test]'"))
    assert install < own
    workflow = yaml.safe_load(files[".github/workflows/ci.yml"])
    default = source.anywhere if in_ci else ""
    assert workflow["env"]["SLOTBENCH"] == f"${{{{ vars.SLOTBENCH || '{default}' }}}}"
    steps = [step.get("run", "") for step in workflow["jobs"]["tests"]["steps"]]
    (first,) = (index for index, step in enumerate(steps) if 'pip install "$SLOTBENCH"' in step)
    assert first < steps.index("python -m pip install -e '.[test]'")
    assert "set the repository's variable SLOTBENCH" in steps[first]


@pytest.mark.parametrize(
    ("written", "here", "anywhere"),
    [
        (None, "path/to/slotbench", ""),
        ({"url": "https://me:secret@host/slotbench-0.1.whl"}, "https://host/slotbench-0.1.whl", None),
        (
            {"url": "https://me:secret@host/o/r", "vcs_info": {"vcs": "git", "commit_id": "1a2b"}},
            "git+https://host/o/r@1a2b",
            None,
        ),
        ({"url": "file:///no/where%20at%20all", "dir_info": {"editable": True}}, "/no/where at all", ""),
    ],
)
def test_where_slotbench_comes_from_is_what_pip_has_written_down(
    written: dict | None, here: str, anywhere: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Installed:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return None if written is None else json.dumps(written)

    monkeypatch.setattr("importlib.metadata.distribution", lambda name: Installed())
    assert source_of_slotbench() == Source((here,), here if anywhere is None else anywhere)


@pytest.mark.parametrize(
    ("remote", "expected"),
    [
        ("https://me:secret@host/o/r.git", "git+https://host/o/r.git"),
        ("git@host:o/r.git", "git+ssh://git@host/o/r.git"),
        ("/somewhere/local", ""),
        (None, ""),
    ],
)
def test_a_checkout_is_known_elsewhere_by_where_it_was_cloned_from(
    remote: str | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    if remote is not None:
        subprocess.run(["git", "-C", str(tmp_path), "remote", "add", "origin", remote], check=True)
    (tmp_path / "constraints.txt").touch()
    installed = type("Installed", (), {"read_text": lambda self, name: json.dumps({"url": tmp_path.as_uri()})})()
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: installed)
    assert source_of_slotbench() == Source(("-c", str(tmp_path / "constraints.txt"), str(tmp_path)), expected)


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
        (["plugin", "slot-SSM"], "there is a core named SlotSSM already"),
        (["plugin", "numpy"], "there is a module named numpy already"),
        (["plugin", "2slots"], "is not a valid name"),
        (["plugin", "lambda"], "a keyword of Python"),
        (["plugin", "full"], "full exists and is not empty"),
        (["plugin", "x-y", "--kind", "coder"], "no kind named coder; did you mean encoder?"),
        (["plugin"], "takes one name, and 0 are given"),
        (["plugins", "x"], "did you mean plugin?"),
        (["core", "full/it.py"], "full/it.py is there already"),
        (["core", "core"], "not a valid name for a plugin file"),
        (["plugin", "x", "--kid", "core"], "new has no option --kid"),
    ],
)
def test_what_cannot_be_written_is_said(
    here: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "full").mkdir()
    (here / "full" / "it.py").write_text("mine = 1")
    if arguments[1:2] == ["slot-SSM"]:
        arguments = ["plugin", "SlotSSM"]
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
