"""Runs the stages of a GPU day, each in a process with a time limit, and keeps the result of each.

The driver (`run_day`) imports no torch: it holds no memory on the device, and outlives whatever a kernel does to it. As
`python -m` with the name of a stage and the settings on its input, this module runs that stage. Here are also the
stages that need nothing of slotbench: the machine, and the tests marked gpu.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from slotbench import __version__
from slotbench.bench.gpu.plan import (
    RUNNING,
    STAGES,
    Items,
    OutOfTimeError,
    Settings,
    limit_of,
    read_result,
    write_result,
)
from slotbench.bench.gpu.report import outcomes, write_report
from slotbench.bench.harness import OUT_OF_TIME, failure, python
from slotbench.errors import UserError, lines
from slotbench.files import dump_json, read_json_object_or_none, write_atomically
from slotbench.runs.provenance import describe_environment, git_state, processor
from slotbench.text import one_line

__all__ = ["device_of", "gpu_tests", "machine", "marked_files", "run_day", "run_stage"]

DONE, FAILED = "done", "failed"
"""The states of a result, beside `OUT_OF_TIME`."""
WORK_LEFT = 75
"""Exit code of a stage that has ended in time, with work left."""

_LEAST = 20.0  # seconds below which a stage is not begun
_PATIENCE = 20.0  # seconds from the signal that ends a stage to the one that kills it

_PROBE = """
import json
try:
    import torch
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    print(json.dumps({"torch": str(torch.__version__), "device": name}))
except Exception as error:
    print(json.dumps({"error": (str(error).strip().splitlines() or [type(error).__name__])[0]}))
"""


# --- the driver


def run_day(
    settings: Settings,
    names: Sequence[str],
    say: Callable[[str], None],
    *,
    restart: bool = False,
    command: Callable[[str], list[str]] = lambda name: python("slotbench.bench.gpu.day", name),
) -> list[str]:
    """Runs those stages that have no result yet, in the order of the plan, and writes the report after each.

    Args:
        settings: what the command asked for.
        names: of the stages.
        say: is told a line per stage, its first part when it begins.
        restart: drops the results of these stages first.
        command: the process of a stage.

    Returns:
        The stages of these that are not done.

    Raises:
        UserError: no such device is here, or the folder has results of another one.
    """
    device, torch = device_of(settings.device)
    if not device:
        raise UserError(f"{torch}: run this where there is one, or try every stage with --device cpu --quick")
    _check_identity(settings, device, torch, restart and set(names) >= {stage.name for stage in STAGES})
    deadline = time.monotonic() + 60 * settings.minutes
    left = []
    for stage in (stage for stage in STAGES if stage.name in names):
        if restart:
            _drop(settings.out, stage.name)
        result = read_result(settings.out, stage.name)
        limit = limit_of(stage, settings.minutes, deadline - time.monotonic())
        if result is not None and result["state"] != OUT_OF_TIME:
            say(f"{stage.name:<11}{result['state']} before: {result['message']}\n")
        elif limit < _LEAST:
            say(f"{stage.name:<11}not begun: {max(limit, 0):.0f} s are left\n")
            result = None
        else:
            say(f"{stage.name:<11}up to {_minutes(limit)} ... ")
            result = _run(replace(settings, seconds=limit), stage.name, result, command(stage.name))
            write_result(settings.out, stage.name, result)
            _report(settings, say)
            say(f"{result['state']} in {_minutes(result['seconds'])}: {result['message']}\n")
        if result is None or result["state"] != DONE:
            left.append(stage.name)
    _report(settings, say)
    return left


def _run(settings: Settings, name: str, before: dict[str, Any] | None, command: list[str]) -> dict[str, Any]:
    """The result of a stage, whatever becomes of its process."""
    items = Items(settings.out, name)
    items.update(before["items"] if before is not None else {})  # it ran out of time, and resumes where it was
    items.message = ""
    items.write()
    began = time.monotonic()
    with open(settings.out / f"{name}.log", "ab") as log, _sigterm_interrupts():
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            process.communicate(settings.to_json().encode(), timeout=settings.seconds)
            code: int | None = process.returncode
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process)
    items = Items(settings.out, name)
    message = items.message
    if code is None:
        message = f"stopped after {_minutes(settings.seconds)}, {items.summary('result')} kept"
    elif code not in (0, WORK_LEFT):
        message = message or f"its process ended with code {code}; see {name}.log"
    git = git_state(Path(__file__).parent)
    commit = f"slotbench {__version__}, no git commit"
    if git is not None:
        commit = f"commit {git['commit'][:12]}{' with changes' if git['dirty'] else ''}"
    return {
        "stage": name,
        "state": {0: DONE, None: OUT_OF_TIME, WORK_LEFT: OUT_OF_TIME}.get(code, FAILED),
        "message": message,
        "seconds": time.monotonic() - began,
        "limit": settings.seconds,
        "commit": commit,
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": settings.command,
        "items": dict(items),
    }


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the process with all that it has started: a training writes its checkpoint first."""
    with contextlib.suppress(ProcessLookupError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            until = time.monotonic() + _PATIENCE
            while time.monotonic() < until:
                process.poll()
                os.killpg(process.pid, 0)  # raises where the group is empty
                time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """A machine that is taken back sends SIGTERM: the stage is ended as by Ctrl-C, and can be resumed."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _check_identity(settings: Settings, device: str, torch: str, overwrite: bool) -> None:
    """Refuses a folder with results of another device: numbers of one folder are of one machine."""
    settings.out.mkdir(parents=True, exist_ok=True)
    path, now = settings.out / "gpu.json", {"device": device, "torch": torch, "quick": settings.quick}
    before = read_json_object_or_none(path) or now
    changed = [
        f"{name} {before.get(name)} in place of {value}" for name, value in now.items() if before.get(name) != value
    ]
    if changed and not overwrite:
        raise UserError(
            lines(
                f"{settings.out} holds results of {', '.join(changed)}",
                expected="another --out, or --restart of all stages to drop them",
            )
        )
    write_atomically(path, dump_json(now) + "\n")


def _drop(out: Path, name: str) -> None:
    for ending in ("json", "part.json", "log"):
        (out / f"{name}.{ending}").unlink(missing_ok=True)
    shutil.rmtree(out / name, ignore_errors=True)


def _report(settings: Settings, say: Callable[[str], None]) -> None:
    """Writes the page; the numbers are in the stages' files, so a mistake in it must not end the day."""
    try:
        write_report(settings)
    except Exception as error:
        say(f"report.md cannot be written: {type(error).__name__}: {error}\n")


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.1f} min"


def run_stage(run: Callable[[Settings, Items], str], settings: Settings, items: Items) -> int:
    """Runs a stage in this process; its message is that of the items, a traceback is for the log.

    Returns:
        The exit code: 0 where it is done, `WORK_LEFT` where another run can do more, 1 where it has failed.
    """
    try:
        items.message, code = run(settings, items), 0
    except OutOfTimeError as error:
        items.message, code = str(error), WORK_LEFT
    except Exception as error:
        traceback.print_exc()
        items.message, code = one_line(failure(error)["message"]), 1
    items.write()
    return code


# --- the machine


def device_of(kind: str) -> tuple[str, str]:
    """The device and torch's version, or ("", why there is none); asked in a process that gives the device back.

    Args:
        kind: "cuda" or "cpu".
    """
    done = subprocess.run([sys.executable, "-P", "-W", "ignore", "-c", _PROBE], capture_output=True, text=True)
    try:
        found = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        found = {"error": _last_line(done)}
    if "error" in found:
        return "", f"torch does not start here: {found['error']}"
    if kind == "cuda" and found["device"] is None:
        return "", f"torch {found['torch']} finds no CUDA device here"
    return processor() if kind == "cpu" else found["device"], found["torch"]


def machine(settings: Settings, items: Items) -> str:
    """Asks torch, the driver's tool and doctor; returns the device and the versions in a line."""
    items["facts"] = facts = _facts(settings.device)
    items["environment"] = describe_environment()
    done = subprocess.run(python("slotbench", "doctor", "--json"), capture_output=True, text=True)
    try:
        # what a library prints when it is imported comes first
        report = json.loads(done.stdout[max(0, done.stdout.find("{\n")) :])
        items["doctor"] = {"exit_code": done.returncode, "failing": report["failing"], "findings": report["findings"]}
        broken = len(report["failing"])
    except (KeyError, ValueError):
        items["doctor"] = {"problem": "error", "message": _last_line(done)}
        return f"{facts['device']}; slotbench doctor gave no report"
    versions = [f"{name} {facts[name]}" for name in ("driver", "torch", "triton", "mamba-ssm") if facts.get(name)]
    return f"{', '.join([facts['device'], *versions])}; doctor: {broken or 'nothing'} not in order"


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def _facts(kind: str) -> dict[str, Any]:
    import torch

    found: dict[str, Any] = {"device": processor(), "processor": processor(), "python": platform.python_version()}
    for package in ("torch", "triton", "mamba-ssm", "causal-conv1d", "lightning", "numpy", "numba", "slotbench"):
        found[package] = None
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    found["torch"] = str(torch.__version__)  # with what it was built for
    found["TF32 in matrix products"] = torch.backends.cuda.matmul.allow_tf32
    found["TF32 in convolutions"] = torch.backends.cudnn.allow_tf32
    if kind == "cuda":
        card = torch.cuda.get_device_properties(0)
        found |= {
            "device": torch.cuda.get_device_name(0),
            "driver": _driver(),
            "CUDA of torch": torch.version.cuda,
            "capability": f"{card.major}.{card.minor}",
            "memory, GiB": round(card.total_memory / 2**30, 1),
            "multiprocessors": card.multi_processor_count,
        }
    return found


def _driver() -> str | None:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip().splitlines()
    except (OSError, subprocess.SubprocessError):
        return None
    return listed[0].strip() if listed else None


# --- the tests marked gpu

_NEEDED = ("pytest", "hypothesis", "beartype")
_SLOW = ("test_ssd", "test_ssm_blocks")  # mamba-ssm's kernels of Mamba-2 tune themselves for a minute or two per size


def gpu_tests(settings: Settings, items: Items) -> str:
    """Runs the tests that have no outcome yet by pytest; returns how many passed, failed and were skipped."""
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
    code = pytest.main(arguments, plugins=[_Recorder(items)])
    if code not in (0, 1, 5):  # all passed, some failed, none was left
        raise RuntimeError(f"pytest ended with code {int(code)}; gpu_tests.log says more")
    return outcomes(items)


def marked_files(folder: Path) -> list[str]:
    """The files of tests with the mark: the others need not be importable where only a GPU is to be tried."""
    return [str(file) for file in sorted(folder.rglob("test_*.py")) if "mark.gpu" in file.read_text(encoding="utf-8")]


class _Recorder:
    """A plugin of pytest that writes each test's outcome before the next begins, and leaves out those that have one."""

    def __init__(self, items: Items) -> None:
        self._items = items

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        done = [test for test in items if test.nodeid in self._items]
        left = [test for test in items if test.nodeid not in self._items]
        items[:] = sorted(left, key=lambda test: any(name in test.nodeid for name in _SLOW))
        config.hook.pytest_deselected(items=done)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:  # a file that cannot be imported
            self._fail(report)

    def pytest_runtest_logstart(self, nodeid: str, location: Sequence[Any]) -> None:
        self._items[RUNNING] = {"test": nodeid}

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:  # an error before or after the test is one of the test
            self._fail(report)
        elif report.skipped or (report.when == "call" and report.passed):
            self._items[report.nodeid] = {"outcome": report.outcome, "seconds": report.duration}

    def pytest_runtest_logfinish(self, nodeid: str, location: Sequence[Any]) -> None:
        self._items.pop(RUNNING, None)
        self._items.write()

    def _fail(self, report: Any) -> None:
        crash = getattr(report.longrepr, "reprcrash", None)
        text = str(crash.message if crash is not None else report.longrepr).strip().splitlines() or [""]
        message = text[0] if crash is not None else text[-1]
        self._items[report.nodeid] = {"outcome": "failed", "problem": "failed", "message": message}


if __name__ == "__main__":
    asked = Settings.from_json(sys.stdin.read())
    (stage,) = [stage for stage in STAGES if stage.name == sys.argv[1]]
    function = getattr(import_module(f"slotbench.bench.gpu.{stage.module}"), stage.name)
    sys.exit(run_stage(function, asked, Items(asked.out, stage.name)))
