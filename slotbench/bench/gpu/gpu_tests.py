"""The tests that are marked gpu, by pytest in a process of its own; its JUnit file is kept."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from slotbench.bench.gpu.plan import Settings
from slotbench.bench.gpu.records import Items

__all__ = ["marked_files", "read_junit", "run"]

_NEEDED = ("pytest", "hypothesis", "beartype")
_RIGHT = (0, 1, 5)  # all passed, some failed, none was there


def run(settings: Settings, items: Items) -> str:
    """Runs them and reads the JUnit file; returns how many passed."""
    files = marked_files(Path("tests"))
    if not files:
        raise RuntimeError("no file of tests/ here is marked gpu: run the command in a checkout of slotbench")
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise RuntimeError(f"{', '.join(missing)} cannot be imported; the tests need pip install '.[test]'")
    junit = settings.out / "gpu_tests.xml"
    junit.unlink(missing_ok=True)
    # the options of pyproject.toml ask for pytest-xdist, and for warnings of one torch
    command = [sys.executable, "-m", "pytest", *files, "-m", "gpu", "-o", "addopts=", "-W", "default", "-q", "-ra"]
    command += ["--continue-on-collection-errors", "-p", "no:cacheprovider", f"--junitxml={junit.resolve()}"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL)
    if not junit.is_file():
        raise RuntimeError(f"pytest ended with code {done.returncode} and wrote no {junit.name}")
    counts, failures = read_junit(junit)
    items["tests"] = {"exit_code": done.returncode, "counts": counts, "failures": failures}
    if counts["failed"] or done.returncode not in _RIGHT:
        items["tests"] |= {"problem": "failed", "message": f"{counts['failed']} tests, pytest's code {done.returncode}"}
        items.write()
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def marked_files(folder: Path) -> list[str]:
    """The files of tests with the mark: the others need not be importable where only a GPU is to be tried.

    Args:
        folder: of all tests.
    """
    return [str(file) for file in sorted(folder.rglob("test_*.py")) if "mark.gpu" in file.read_text(encoding="utf-8")]


def read_junit(path: Path) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """How many tests passed, failed and were skipped, and each failure with its first line.

    Args:
        path: a JUnit file that pytest has written.
    """
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    failures = []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        wrong = [child for child in case if child.tag in ("failure", "error")]
        skipped = case.find("skipped") is not None
        counts["failed" if wrong else "skipped" if skipped else "passed"] += 1
        if wrong:
            name = f"{case.get('classname', '')}::{case.get('name', '')}"
            first = (wrong[0].get("message") or "").strip().splitlines()
            failures.append({"test": name, "message": first[0] if first else ""})
    return counts, failures
