"""The workflows say only what is there: sessions, files and pinned actions. What can be known without a network."""

from __future__ import annotations

import ast
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FOR_PEOPLE = {"gpu": "no workflow has a GPU"}
PATHS = re.compile(r"(?<![\w/.-])(?:experiments|tests|docs|slotbench|plugins)/[\w/.*-]+|constraints[\w-]*\.txt")


def jobs(path: Path) -> dict[str, Any]:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    assert found
    return found


def commands(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Every command line with its job."""
    for job in jobs(path).values():
        for step in job["steps"]:
            for line in step.get("run", "").splitlines():
                yield job, line


def sessions() -> set[str]:
    """The sessions of noxfile.py, which the tests cannot import: nox is not among what they need."""
    tree = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    found = [
        node for node in functions if any(ast.unparse(one).startswith("nox.session") for one in node.decorator_list)
    ]
    assert all(ast.get_docstring(node) for node in found)
    return {node.name for node in found}


def called_sessions(job: dict[str, Any], line: str) -> list[str]:
    """The sessions that a line runs, those of the job's matrix put in."""
    words = line.partition(" -- ")[0].split()
    if "-s" not in words or not any("nox" in word for word in words[: words.index("-s")]):
        return []
    given = " ".join(words[words.index("-s") + 1 :])
    matrix = re.fullmatch(r"\$\{\{ matrix\.(\w+) \}\}", given)
    return job["strategy"]["matrix"][matrix[1]] if matrix else given.split()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_session_that_is_run_is_there(path):
    called = [name for job, line in commands(path) for name in called_sessions(job, line)]
    assert set(called) <= sessions()


def test_every_session_but_those_for_people_is_run_by_a_workflow():
    called = {name for path in WORKFLOWS for job, line in commands(path) for name in called_sessions(job, line)}
    assert called | FOR_PEOPLE.keys() == sessions()
    assert not called & FOR_PEOPLE.keys()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_by_a_commit_and_says_its_version(path):
    uses = re.findall(r"uses: *(.+)", path.read_text(encoding="utf-8"))
    assert uses
    for action in uses:
        assert re.fullmatch(r"[\w-]+/[\w/-]+@[0-9a-f]{40} # v[\d.]+", action), action


def test_an_action_is_pinned_to_one_commit_everywhere():
    pins: dict[str, set[str]] = {}
    for path in WORKFLOWS:
        for action, commit in re.findall(r"uses: *([\w/-]+)@(\w+)", path.read_text(encoding="utf-8")):
            pins.setdefault(action, set()).add(commit)
    assert {action: len(commits) for action, commits in pins.items()} == dict.fromkeys(pins, 1)


@pytest.mark.parametrize("path", [*WORKFLOWS, ROOT / ".ci" / "run", ROOT / "noxfile.py"], ids=lambda path: path.name)
def test_every_file_that_is_named_is_there(path):
    for named in PATHS.findall(path.read_text(encoding="utf-8")):
        assert list(ROOT.glob(named.rstrip("/."))), named


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_no_job_runs_for_ever_or_may_do_more_than_read(path):
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] <= 180 for job in jobs(path).values())


def test_the_grid_check_leaves_no_grid_out():
    (job,) = jobs(ROOT / ".github" / "workflows" / "grids.yml").values()
    words = [word for entry in job["strategy"]["matrix"]["grids"] for word in entry.split(" or ")]
    stems = [path.stem for path in (ROOT / "experiments" / "grids").rglob("*.yaml")]
    assert [stem for stem in stems if not any(word in stem for word in words)] == []


def test_python_versions_of_the_tests_are_those_that_the_package_names():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [line.rpartition(" ")[2] for line in project["classifiers"] if re.search(r":: 3\.\d+$", line)]
    tests = jobs(ROOT / ".github" / "workflows" / "ci.yml")["tests"]
    assert tests["strategy"]["matrix"]["python"] == named
    assert project["requires-python"] == f">={named[0]}"


def test_the_lowest_versions_are_the_bounds_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8")
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", text, re.MULTILINE))
    for line in project["dependencies"]:
        requirement = Requirement(line)
        bound = next(part.version for part in requirement.specifier if part.operator == ">=")
        assert requirement.specifier.contains(pins[requirement.name]), line
        # hatchling, in the test extra, asks for a newer one of packaging
        assert pins[requirement.name].startswith(bound) or requirement.name == "packaging", line


def test_ci_run_can_be_run():
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
