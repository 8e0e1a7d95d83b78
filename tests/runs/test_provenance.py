"""The record says which source made the run."""

from __future__ import annotations

import subprocess
from pathlib import Path

from slotbench.runs.provenance import git_state


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    return subprocess.run(
        ["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_commit_and_dirty_flag_of_a_checkout(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "model.py").write_text("a = 1\n")
    git(tmp_path, "add", "model.py")
    git(tmp_path, "commit", "-qm", "first")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert git_state(tmp_path) == {"commit": head, "dirty": False}
    (tmp_path / "notes.txt").write_text("untracked\n")
    assert git_state(tmp_path) == {"commit": head, "dirty": False}
    (tmp_path / "model.py").write_text("a = 2\n")
    assert git_state(tmp_path) == {"commit": head, "dirty": True}


def test_outside_of_a_checkout_there_is_none(tmp_path: Path) -> None:
    assert git_state(tmp_path) is None
