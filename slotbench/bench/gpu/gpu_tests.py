"""The tests that are marked gpu, by pytest in this process; each one's outcome is on disk when the next begins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from slotbench.bench.gpu.plan import Settings
from slotbench.bench.gpu.records import Items

__all__ = ["RUNNING", "Recorder", "counts", "marked_files", "run"]

RUNNING = "running"
"""Key of the test that has begun and not ended: it is there at the end where a test has taken the process down."""
_NEEDED = ("pytest", "hypothesis", "beartype")
_SLOW = ("test_ssd", "test_mamba2")  # mamba-ssm's kernels of Mamba-2 tune themselves for a minute or two per size
_RIGHT = (0, 1, 5)  # all passed, some failed, none was left


def run(settings: Settings, items: Items) -> str:
    """Runs those that have no outcome yet; returns how many passed, failed and were skipped."""
    files = marked_files(Path("tests"))
    if not files:
        raise RuntimeError("no file of tests/ here is marked gpu: run the command in a checkout of slotbench")
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise RuntimeError(f"{', '.join(missing)} cannot be imported; the tests need pip install '.[test]'")
    import pytest

    # the options of pyproject.toml ask for pytest-xdist, and for warnings of one torch
    arguments = [*files, "-m", "gpu", "-o", "addopts=", "-W", "default", "-q", "-ra", "--continue-on-collection-errors"]
    arguments += ["-p", "no:cacheprovider", f"--junitxml={settings.out / 'gpu_tests.xml'}"]
    code = pytest.main(arguments, plugins=[Recorder(items)])
    if code not in _RIGHT:
        raise RuntimeError(f"pytest ended with code {int(code)}; gpu_tests.log says more")
    return ", ".join(f"{count} {outcome}" for outcome, count in counts(items.found).items())


def marked_files(folder: Path) -> list[str]:
    """The files of tests with the mark: the others need not be importable where only a GPU is to be tried.

    Args:
        folder: of all tests.
    """
    return [str(file) for file in sorted(folder.rglob("test_*.py")) if "mark.gpu" in file.read_text(encoding="utf-8")]


def counts(items: dict[str, dict[str, Any]]) -> dict[str, int]:
    """How many tests there are of each outcome.

    Args:
        items: those of the stage.
    """
    found = Counter(item["outcome"] for key, item in items.items() if key != RUNNING)
    return {outcome: found[outcome] for outcome in ("passed", "failed", "skipped")}


class Recorder:
    """A plugin of pytest that keeps each test's outcome, and leaves out the tests that have one.

    Args:
        items: where they are kept, by the test's name.
    """

    def __init__(self, items: Items) -> None:
        self._items = items

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        """Leaves out what an earlier run has an outcome of, and puts last what takes minutes."""
        done = [test for test in items if test.nodeid in self._items]
        left = [test for test in items if test.nodeid not in self._items]
        items[:] = sorted(left, key=lambda test: any(name in test.nodeid for name in _SLOW))
        config.hook.pytest_deselected(items=done)

    def pytest_collectreport(self, report: Any) -> None:
        """A file that cannot be imported is a failure of its own."""
        if report.failed:
            self._fail(report)

    def pytest_runtest_logstart(self, nodeid: str, location: Sequence[Any]) -> None:
        """Names the test that begins."""
        self._items[RUNNING] = {"test": nodeid}

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keeps the outcome; an error before or after the test is one of the test."""
        if report.failed:
            self._fail(report)
        elif report.skipped or (report.when == "call" and report.passed):
            self._items[report.nodeid] = {"outcome": report.outcome, "seconds": report.duration}

    def pytest_runtest_logfinish(self, nodeid: str, location: Sequence[Any]) -> None:
        """The test has ended."""
        self._items.found.pop(RUNNING, None)
        self._items.write()

    def _fail(self, report: Any) -> None:
        crash = getattr(report.longrepr, "reprcrash", None)
        said = str(crash.message if crash is not None else report.longrepr).strip().splitlines()
        message = (said[0] if crash is not None else said[-1]) if said else ""
        self._items[report.nodeid] = {"outcome": "failed", "problem": "failed", "message": message}
