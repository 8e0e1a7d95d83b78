"""Runs the stages one after the other, each in a process with a time limit, and keeps what each of them came to."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any

from slotbench import __version__
from slotbench.bench.gpu.machine import device_of
from slotbench.bench.gpu.plan import STAGES, Settings, Stage, limit_of
from slotbench.bench.gpu.records import DONE, FAILED, OUT_OF_TIME, Items, read_result, write_result
from slotbench.bench.gpu.report import write_report
from slotbench.bench.gpu.stage_process import WORK_LEFT
from slotbench.errors import UserError, lines
from slotbench.files import dump_json, read_json_object_or_none, write_atomically
from slotbench.runs.provenance import git_state

__all__ = ["run_day"]

_IDENTITY = "gpu.json"
_LEAST = 20.0  # seconds below which a stage is not begun
_PATIENCE = 20.0  # seconds from the signal that ends a stage to the one that kills it

Say = Callable[[str], None]


def run_day(
    settings: Settings,
    names: Sequence[str],
    say: Say,
    *,
    restart: bool = False,
    command: Callable[[str], list[str]] | None = None,
) -> list[str]:
    """Runs those stages that have no result yet, in the order of the plan, and writes the report after each.

    Args:
        settings: what the command asked for.
        names: of the stages.
        say: is told a line per stage, its first part when it begins.
        restart: drops the results of these stages first.
        command: the process of a stage, for tests.

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
    states: dict[str, str] = {}
    for stage in (stage for stage in STAGES if stage.name in names):
        if restart:
            _drop(settings, stage)
        found = read_result(settings.out, stage.name)
        if found is not None and found["state"] != OUT_OF_TIME:
            states[stage.name] = found["state"]
            say(f"{stage.name:<11}{found['state']} before: {found['message']}\n")
            continue
        limit = limit_of(stage, settings.minutes, deadline - time.monotonic())
        if limit < _LEAST:
            states[stage.name] = OUT_OF_TIME
            say(f"{stage.name:<11}not begun: {max(limit, 0):.0f} s are left\n")
            continue
        say(f"{stage.name:<11}up to {_minutes(limit)} ... ")
        result = _run(replace(settings, seconds=limit), stage, found, (command or _command)(stage.name))
        write_result(settings.out, stage.name, result)
        _report(settings, say)
        states[stage.name] = result["state"]
        say(f"{result['state']} in {_minutes(result['seconds'])}: {result['message']}\n")
    _report(settings, say)
    return [name for name, state in states.items() if state != DONE]


def _command(name: str) -> list[str]:
    return [sys.executable, "-P", "-m", "slotbench.bench.gpu.stage_process", name]


def _run(settings: Settings, stage: Stage, before: dict[str, Any] | None, command: list[str]) -> dict[str, Any]:
    """The result of a stage, whatever becomes of its process."""
    items = Items(settings.out, stage.name)
    if before is not None:  # it ran out of time: what it had is where it resumes
        items.found = before["items"]
    items.message = ""
    items.write()
    began = time.monotonic()
    with open(settings.out / f"{stage.name}.log", "ab") as log, _a_signal_is_an_interrupt():
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        in_time = True
        try:
            process.communicate(settings.to_json().encode(), timeout=settings.seconds)
        except subprocess.TimeoutExpired:
            in_time = False
        finally:
            _end(process)
    seconds = time.monotonic() - began
    message = str((read_json_object_or_none(items.path) or {}).get("message") or "")
    items = Items(settings.out, stage.name)
    if not in_time:
        state, message = OUT_OF_TIME, f"stopped after {_minutes(settings.seconds)}, {items.summary('result')} kept"
    elif process.returncode == 0:
        state = DONE
    elif process.returncode == WORK_LEFT:
        state = OUT_OF_TIME
    else:
        state, message = FAILED, message or f"its process ended with code {process.returncode}; see {stage.name}.log"
    return {
        "stage": stage.name,
        "state": state,
        "message": message,
        "seconds": seconds,
        "limit": settings.seconds,
        "commit": _commit(),
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": settings.command,
        "items": items.found,
    }


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the process with all that it has started: a training writes its checkpoint first."""
    with contextlib.suppress(ProcessLookupError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            until = time.monotonic() + _PATIENCE
            while time.monotonic() < until:
                process.poll()
                os.killpg(process.pid, 0)  # raises where nobody of the group is left
                time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def _a_signal_is_an_interrupt() -> Iterator[None]:
    """A machine that is taken back sends SIGTERM: the stage is ended as by Ctrl-C, and can be resumed."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _check_identity(settings: Settings, device: str, torch: str, overwrite: bool) -> None:
    """Refuses a folder with results of another device: numbers of one folder are of one machine."""
    settings.out.mkdir(parents=True, exist_ok=True)
    path = settings.out / _IDENTITY
    now = {"device": device, "torch": torch, "quick": settings.quick}
    before = read_json_object_or_none(path)
    if before is not None and not overwrite:
        differences = [f"{name} {before.get(name)} in place of {value}" for name, value in now.items()]
        differences = [line for line, name in zip(differences, now, strict=True) if before.get(name) != now[name]]
        if differences:
            raise UserError(
                lines(
                    f"{settings.out} holds results of {', '.join(differences)}",
                    expected="another --out, or --restart of all stages to drop them",
                )
            )
    write_atomically(path, dump_json(now) + "\n")


def _drop(settings: Settings, stage: Stage) -> None:
    for file in (f"{stage.name}.json", f"{stage.name}.part.json", f"{stage.name}.log"):
        (settings.out / file).unlink(missing_ok=True)
    shutil.rmtree(settings.out / stage.name, ignore_errors=True)


def _report(settings: Settings, say: Say) -> None:
    """Writes the page; the numbers are in the stages' files, so a mistake in it must not end the run."""
    try:
        write_report(settings)
    except Exception as error:
        say(f"report.md cannot be written: {type(error).__name__}: {error}\n")


def _commit() -> str:
    """The source that runs, as far as git knows it."""
    git = git_state(Path(__file__).parent)
    if git is None:
        return f"slotbench {__version__}, no git commit"
    return f"commit {git['commit'][:12]}{' with changes' if git['dirty'] else ''}"


def _minutes(seconds: int | float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.1f} min"
