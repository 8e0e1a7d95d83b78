"""What lies in the working folder is data: no Python file and no git configuration there is run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slotbench import grids
from slotbench.runs.provenance import git_state

HOSTILE = "import pathlib\npathlib.Path(__file__).with_name('owned').touch()\nraise SystemExit(3)\n"


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("wandb/__init__.py", "wandb/__main__.py", "yaml.py", "random.py", "torch.py", "json.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(HOSTILE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def owned(folder: Path) -> list[Path]:
    return list(folder.rglob("owned"))


@pytest.mark.parametrize("arguments", [["--version"], ["plugins", "cores"], ["grid", "status", "x.yaml"]])
def test_slotbench_as_a_module_imports_nothing_from_there(hostile, arguments):
    done = subprocess.run([sys.executable, "-m", "slotbench", *arguments], capture_output=True, text=True)
    assert done.returncode == (2 if "grid" in arguments else 0), done.stderr
    assert not owned(hostile)


def test_processes_that_slotbench_starts_leave_it_out():
    """Each of them, as the source has it: `-P` stands before `-m`."""
    for file in Path(grids.__file__).parent.parent.rglob("*.py"):
        for line in file.read_text().splitlines():
            if "sys.executable" in line and '"-m"' in line:
                assert '"-P", "-m"' in line, f"{file}: {line}"


def test_what_such_a_module_starts_leaves_it_out_too(hostile):
    code = (
        "import os, sys, slotbench.__main__ as command\n"
        f"sys.path.insert(0, {str(hostile)!r})\n"
        "command._leave_working_folder()\n"
        "print(sys.path[0], os.environ.get('PYTHONSAFEPATH'))\n"
    )
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONSAFEPATH"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd="/")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "None"  # another folder than the working folder stays
    code = f"import os; os.chdir({str(hostile)!r})\n{code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd="/")
    assert done.stdout.split()[-1] == "1"
    assert str(hostile) not in done.stdout


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "file.txt").write_text("1\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def program(folder: Path) -> str:
    script = folder.parent / "program.sh"
    script.write_text(f"#!/bin/sh\ntouch {folder.parent}/owned\ncat\n")
    script.chmod(0o755)
    return str(script)


@pytest.mark.parametrize("key", ["core.fsmonitor", "filter.theirs.clean", "filter.theirs.process", "core.hooksPath"])
def test_git_runs_nothing_that_a_checkout_names(checkout, key):
    value = program(checkout)
    if key == "core.hooksPath":
        hooks = checkout.parent / "hooks"
        hooks.mkdir()
        for hook in ("post-index-change", "fsmonitor-watchman", "post-checkout"):
            (hooks / hook).write_text(Path(value).read_text())
            (hooks / hook).chmod(0o755)
        value = str(hooks)
    git(checkout, "config", key, value)
    (checkout / ".git/info").mkdir(exist_ok=True)
    (checkout / ".git/info/attributes").write_text("* filter=theirs\n")
    os.utime(checkout / "file.txt", (1, 1))
    (checkout / "file.txt").write_text("2\n")
    state = git_state(checkout)
    assert state is not None
    assert len(state["commit"]) == 40
    assert state["dirty"] is (None if key.startswith("filter") else True)
    assert not owned(checkout.parent)


def test_git_still_says_whether_files_have_changed(checkout):
    assert git_state(checkout) == {"commit": (git_state(checkout) or {})["commit"], "dirty": False}
    (checkout / "file.txt").write_text("2\n")
    assert (git_state(checkout) or {})["dirty"] is True
