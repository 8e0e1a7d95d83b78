"""Runs slices, each with a time limit, and keeps the results of each.

This process uses no device: whatever does is a process of its own, which may be lost or ended. Here is also the slice
that measures nothing: what `slotbench doctor` says of the machine, and the tests marked gpu.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from slotbench import __version__
from slotbench.bench.gpu.plan import (
    DONE,
    FAILED,
    RUNNING,
    Items,
    OutOfTimeError,
    Settings,
    Slice,
    run_command,
)
from slotbench.bench.gpu.report import outcomes, write_report
from slotbench.bench.harness import OUT_OF_TIME, failure, python
from slotbench.errors import UserError, lines
from slotbench.runs.provenance import git_state, processor
from slotbench.text import one_line

__all__ = ["facts_of", "gpu_tests", "marked_files", "run_slices", "test_outcomes"]


# --- the driver


def run_slices(
    settings: Settings, slices: Sequence[Slice], say: Callable[[str], None], *, restart: bool = False
) -> list[str]:
    """Runs those slices that have no result yet, and writes a page for each.

    Args:
        settings: what the command asked for.
        slices: in this order.
        say: is told a line per slice, its first part when it begins.
        restart: drops the results of these slices first.

    Returns:
        The names of the slices that are not done.

    Raises:
        UserError: no such device is here, or a slice has results of another one.
    """
    facts = facts_of(settings.device)
    if "error" in facts:
        raise UserError(f"{facts['error']}: run this where there is one, or try a slice with --device cpu --quick")
    settings.out.mkdir(parents=True, exist_ok=True)
    left = []
    for index, one in enumerate(slices, start=1):
        if restart:
            for file in settings.out.glob(f"{one.name}.*"):
                shutil.rmtree(file) if file.is_dir() else file.unlink()
        items = Items(settings.out, one.name, 60 * settings.minutes)
        _check_identity(items, settings, facts)
        if items.result["state"] in (DONE, FAILED):
            say(f"{one.name:<4}{items.result['state']} before: {items.result['message']}\n")
        else:
            limit = _minutes(60 * settings.minutes)
            say(f"{one.name:<4}{index} of {len(slices)}, up to {limit}: {one.what} ... ")
            items.on_write = lambda items=items, one=one: _report(one, items, say)  # type: ignore[misc]
            with _sigterm_interrupts():
                _run(settings, one, items, facts)
            say(f"{items.result['state']} in {_minutes(items.result['seconds'])}: {items.result['message']}\n")
        left += [one.name] if items.result["state"] != DONE else []
    return left


def _run(settings: Settings, one: Slice, items: Items, facts: dict[str, Any]) -> None:
    """Runs a slice to its result, whatever becomes of its processes."""
    began, git = time.monotonic(), git_state(Path(__file__).parent)
    commit = f"slotbench {__version__}, no git commit"
    if git is not None:
        commit = f"commit {git['commit'][:12]}{' with changes' if git['dirty'] else ''}"
    date = datetime.now().astimezone().isoformat(timespec="seconds")
    known = {"commit": commit, "date": date, "command": settings.command, "quick": settings.quick, "facts": facts}
    items.write(state="", message="", **known)
    try:
        state, message = DONE, _function(one)(settings, items, **one.arguments)
    except OutOfTimeError as error:
        state, message = OUT_OF_TIME, str(error)
    except Exception as error:
        with open(items.log, "a", encoding="utf-8") as log:
            traceback.print_exc(file=log)
        state, message = FAILED, one_line(failure(error)["message"])
    items.write(state=state, message=message, seconds=time.monotonic() - began)


def _function(one: Slice) -> Callable[..., str]:
    module, _, name = one.stage.partition(".")
    found: Callable[..., str] = getattr(import_module(f"slotbench.bench.gpu.{module}"), name)
    return found


@contextlib.contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """A machine that is taken back sends SIGTERM: the slice is ended as by Ctrl-C, and can be resumed."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _check_identity(items: Items, settings: Settings, facts: dict[str, Any]) -> None:
    """Refuses to add to results of another device: the numbers of a file are of one machine."""
    if "facts" not in items.result:
        return
    now: dict[str, Any] = {"quick": settings.quick}
    if not items.archive.is_file():  # a training goes on anywhere
        now |= {"device": facts["device"], "torch": facts["torch"]}
    before = {**items.result["facts"], "quick": items.result.get("quick")}
    changed = [f"{name} {before.get(name)} in place of {now[name]}" for name in now if before.get(name) != now[name]]
    if changed:
        expected = f"another --out, or --restart to drop {items.path.name}"
        raise UserError(lines(f"{items.path} holds results of {', '.join(changed)}", expected=expected))


def _report(one: Slice, items: Items, say: Callable[[str], None]) -> None:
    """Writes the page; the numbers are in the JSON, so a mistake in it must not end the slice."""
    try:
        write_report(one, items)
    except Exception as error:
        say(f"{one.name}.md cannot be written: {type(error).__name__}: {error}\n")


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.1f} min"


# --- the machine


def _doctor(seconds: float) -> dict[str, Any]:
    """What `slotbench doctor` finds, which runs every kernel once."""
    try:
        done = subprocess.run(python("slotbench", "doctor", "--json"), capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"problem": OUT_OF_TIME, "message": f"longer than {seconds:.0f} s"}
    try:
        # what a library prints when it is imported comes first
        report = json.loads(done.stdout[max(0, done.stdout.find("{\n")) :])
        return {"exit_code": done.returncode, "failing": report["failing"], "findings": report["findings"]}
    except (KeyError, ValueError):
        return {"problem": "error", "message": _last_line(done)}


def facts_of(kind: str) -> dict[str, Any]:
    """Device, versions and environment, of a process that gives the device back; or an "error".

    Args:
        kind: "cuda" or "cpu".
    """
    done = subprocess.run(python(__name__, kind), capture_output=True, text=True)
    try:
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        found = {"error": f"torch does not start here: {_last_line(done)}"}
    return found


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def _facts(kind: str) -> dict[str, Any]:
    try:
        import torch
    except Exception as error:
        return {"error": f"torch does not start here: {(str(error).strip().splitlines() or [type(error).__name__])[0]}"}
    if kind == "cuda" and not torch.cuda.is_available():
        return {"error": f"torch {torch.__version__} finds no CUDA device here"}
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
    """Asks doctor, runs the tests that have no outcome yet; returns how many passed, failed and were skipped."""
    if "doctor" not in items.result:
        items.write(doctor=_doctor(items.left() / 2))
    files = sorted(marked_files(Path("tests")), key=lambda file: any(name in file for name in _SLOW))
    if not files:
        raise RuntimeError("no file of tests/ here is marked gpu: run the command in a checkout of slotbench")
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise RuntimeError(f"{', '.join(missing)} cannot be imported; the tests need pip install '.[test]'")
    # a slice that was killed has what its log says
    done = test_outcomes(items.log.read_text(errors="replace") if items.log.is_file() else "")
    # the options of pyproject.toml ask for pytest-xdist, and for warnings of one torch
    command = python("pytest", *files, "-m", "gpu", "-o", "addopts=", "-o", "console_output_style=classic")
    command += ["-W", "default", "-v", "-ra", "--durations=20", "--continue-on-collection-errors"]
    command += ["-p", "no:cacheprovider", *(f"--deselect={name}" for name in done if name != RUNNING and "::" in name)]
    code = run_command(["env", "COLUMNS=1000", *command], items.left(), items.log)
    items.clear()
    items.update(test_outcomes(items.log.read_text(errors="replace")))
    if code is None:
        raise OutOfTimeError(outcomes(items))
    if code not in (0, 1, 5):  # all passed, some failed, none was left
        raise RuntimeError(f"pytest ended with code {code}; {items.log.name} says more")
    items.pop(RUNNING, None)
    return outcomes(items)


def marked_files(folder: Path) -> list[str]:
    """The files of tests with the mark: the others need not be importable where only a GPU is to be tried."""
    return [str(file) for file in sorted(folder.rglob("test_*.py")) if "mark.gpu" in file.read_text(encoding="utf-8")]


def test_outcomes(log: str) -> dict[str, dict[str, Any]]:
    """The outcome of every test in what `pytest -v -ra` has printed, and the test that had begun at the end."""
    found: dict[str, dict[str, Any]] = {}
    messages: dict[str, str] = {}
    file = ""
    for line in log.splitlines():
        if match := re.match(r"_+ ERROR collecting (\S+) _+$", line):
            file = match[1]
        elif file and line.startswith("E   "):
            messages[file] = line[4:].strip()
        elif match := re.match(r"(?:FAILED|ERROR) (\S+\.py(?:::.+?)?)(?: - (.*))?$", line):
            message = match[2] or messages.get(match[1], "")
            found[match[1]] = {"outcome": "failed", "problem": "failed", "message": message}
        elif match := re.match(r"(\S+\.py::.+?) (PASSED|FAILED|SKIPPED|ERROR)\b", line):
            found.pop(RUNNING, None)
            failed = {"outcome": "failed", "problem": "failed", "message": ""}
            found[match[1]] = failed if match[2] in ("FAILED", "ERROR") else {"outcome": match[2].lower()}
        elif match := re.match(r"(\S+\.py::\S+)", line):
            found[RUNNING] = {"test": match[1]}
    return found


if __name__ == "__main__":
    print(json.dumps(_facts(sys.argv[1])))
