"""The ledger of one point: its attempts and its state, read off the files of its folder each time anew.

    POINT/point.json      what the point is
    POINT/attempts.jsonl  one line per attempt that begins, and one per attempt that ends; only ever appended to
    POINT/log.txt         what the attempts have printed
    POINT/result.json     written by `fit` once the run has ended: the point is done if it is there, or has diverged if
                          it says so

The rest is the run folder of that point.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypedDict

from slotbench.errors import FileError
from slotbench.files import (
    append_whole_line,
    check_own_folder,
    cut_torn_line,
    dump_json,
    make_folder,
    open_regular,
    own_file,
    parse_json,
    read_bytes,
    read_json_object_or_none,
    replace_file,
    write_atomically,
)
from slotbench.grids.expansion import Point
from slotbench.locks import is_locked
from slotbench.records import Whole, numbers, valid_part
from slotbench.runs.folder import RunFolder
from slotbench.runs.run_info import RunInfo

__all__ = ["RESUMABLE", "STATES", "Attempt", "PointFolder", "PointStatus", "State", "now", "state_after"]

State = Literal["done", "diverged", "running", "failed", "interrupted", "killed", "waiting"]
STATES: tuple[State, ...] = ("done", "diverged", "running", "failed", "interrupted", "killed", "waiting")
RESUMABLE: tuple[State, ...] = ("waiting", "interrupted", "killed")
"""The states of points that `grid run` begins or resumes without being asked to."""

_STOPPED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


@dataclass(frozen=True)
class Attempt:
    """One start of a point.

    Attributes:
        number: from 1.
        started: ISO time.
        engine: which has started it.
        where: it runs, such as "pid 123".
        ended: ISO time; None until its end is known.
        exit_code: negative for a signal; None if unknown.
        reason: in words, where the exit code does not say it.
    """

    number: Whole
    started: str = ""
    engine: str = ""
    where: str = ""
    ended: str | None = None
    exit_code: int | None = None
    reason: str = ""


class _Event(TypedDict):
    """A line of the ledger: the beginning or the end of an attempt."""

    attempt: Whole


@dataclass(frozen=True)
class PointStatus:
    """The progress of a point.

    Attributes:
        id: the point's.
        state: of the point.
        step: optimiser steps done; None before the first.
        total_steps: that are to be done, if known.
        seconds: that the training has taken so far.
        seconds_per_step: of the run, if known.
        headline: name and newest value of the metric that matters most, if there is one.
        error: what ended it, if it failed or diverged.
        attempts: how often it has been started by a grid.
    """

    id: str
    state: State
    step: int | None = None
    total_steps: int | None = None
    seconds: float | None = None
    seconds_per_step: float | None = None
    headline: tuple[str, float] | None = None
    error: str | None = None
    attempts: int = 0


class PointFolder:
    """The folder of one point, there already or not.

    Args:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = path / "log.txt"
        self.lock = path / ".attempt.lock"

    @property
    def id(self) -> str:
        """The point's."""
        return self.path.name

    def prepare(self, point: Point, command: Sequence[str]) -> None:
        """Creates the folder, and writes a description of the point to it.

        Raises:
            FileError: a link in the folder leads out of it.
            OSError: it cannot be written.
        """
        own_file(self.path.parent, self.path.name)
        make_folder(self.path)
        check_own_folder(self.path)
        record = {
            "id": point.id,
            "settings": point.settings,
            "labels": point.labels,
            "command": list(command),
            "fingerprint": point.fingerprint,
            **({"after": point.after, "into": point.into} if point.after else {}),
        }
        if read_json_object_or_none(self.path / "point.json") != record:
            write_atomically(self.path / "point.json", dump_json(record, indent=2))

    def result(self) -> RunInfo | None:
        """The run's result, written at its end or when it diverged; None before."""
        return RunFolder(self.path).result

    def ended(self) -> State | None:
        """The end of the run, "done" or "diverged", if it has a result."""
        result = self.result()
        return None if result is None else "diverged" if result.get("state") == "diverged" else "done"

    def set_result_aside(self) -> None:
        """Keeps a result under another name, so that the point can be run again."""
        number = 1
        while (self.path / f"result.{number}.json").exists():
            number += 1
        replace_file(self.path / "result.json", self.path / f"result.{number}.json")

    def record(self) -> RunInfo:
        """The run's own record, empty if there is none."""
        return valid_part(read_json_object_or_none(self.path / "run.json") or {}, RunInfo)

    def is_running(self) -> bool:
        """Whether a process has it, started by a grid or by hand."""
        return is_locked(self.lock) or is_locked(self.path / ".lock")

    def attempts(self) -> list[Attempt]:
        """All attempts, oldest first."""
        found: dict[int, dict[str, Any]] = {}
        path = self.path / "attempts.jsonl"
        try:
            text = read_bytes(path).decode("utf-8", errors="replace")
        except FileError:
            return []
        for line in text.splitlines():
            with contextlib.suppress(FileError):  # a line that was cut off by a kill
                event = valid_part(parse_json(line, path), _Event, path)
                found.setdefault(event["attempt"], {}).update(event)
        return [valid_part({**event, "number": number}, Attempt, path) for number, event in sorted(found.items())]

    def begin(self, engine: str, where: str) -> int:
        """Notes that an attempt has begun, and returns its number."""
        number = max((attempt.number for attempt in self.attempts()), default=0) + 1
        self._append({"attempt": number, "started": now(), "engine": engine, "where": where})
        return number

    def end(self, number: int, exit_code: int | None, reason: str = "") -> None:
        """Notes how an attempt has ended."""
        self._append({"attempt": number, "ended": now(), "exit_code": exit_code, "reason": reason})

    def settle(self) -> None:
        """Notes the end of an attempt that ended after its driver was gone."""
        attempts = self.attempts()
        if attempts and attempts[-1].ended is None and not self.is_running():
            ended = self.ended()
            code = None if ended is None else 0 if ended == "done" else 1
            # on a full disk it stays open, which does no harm
            with contextlib.suppress(OSError, FileError):
                self.end(attempts[-1].number, code, "ended after its driver was gone")

    def state(self, over: bool = False) -> State:
        """The state of the point.

        Args:
            over: it is known that its process has ended, whatever children of it still hold the lock.
        """
        if (ended := self.ended()) is not None:
            return ended
        if not over and self.is_running():
            return "running"
        attempts = self.attempts()
        if attempts and attempts[-1].ended is not None:
            return state_after(attempts[-1].exit_code, attempts[-1].reason)
        recorded = self.record().get("state")
        if recorded in ("failed", "interrupted"):
            return "failed" if recorded == "failed" else "interrupted"
        return "killed" if recorded or attempts else "waiting"

    def status(self, metrics: Sequence[str] = ()) -> PointStatus:
        """The state of the point, with its numbers.

        Args:
            metrics: the first of them that the run has is its headline; that of its task if it has none of them.
        """
        if (result := self.result()) is not None:
            diverged = result.get("state") == "diverged"
            return PointStatus(
                self.id,
                "diverged" if diverged else "done",
                step=result.get("step"),
                total_steps=self.record().get("total_steps") if diverged else result.get("step"),
                seconds=result.get("seconds"),
                seconds_per_step=result.get("seconds_per_step"),
                headline=_headline(result, metrics),
                error=result.get("error") if diverged else None,
                attempts=len(self.attempts()),
            )
        state = self.state()
        record = self.record()
        attempts = self.attempts()
        error = None
        if state == "failed":
            last = attempts[-1] if attempts else None
            logged = self.last_lines(1)
            error = record.get("error") or (logged[0] if logged else None) or (last and _ending(last)) or None
        return PointStatus(
            self.id,
            state,
            step=record.get("step"),
            total_steps=record.get("total_steps"),
            seconds=record.get("seconds"),
            seconds_per_step=record.get("seconds_per_step"),
            headline=_headline(record, metrics),
            error=error,
            attempts=len(attempts),
        )

    def last_lines(self, count: int = 8) -> list[str]:
        """The end of the log of the last attempt, as a terminal would show it."""
        try:
            with open_regular(self.log) as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 16384))
                text = file.read().decode("utf-8", errors="replace")
        except (FileError, OSError):
            return []
        lines = [line.rpartition("\r")[2].rstrip() for line in text.replace("\r\n", "\n").split("\n")]
        begun = [index for index, line in enumerate(lines) if line.startswith("=== ")]
        lines = lines[begun[-1] + 1 :] if begun else lines
        return [line for line in lines if line][-count:]

    def _append(self, event: Mapping[str, Any]) -> None:
        path = self.path / "attempts.jsonl"
        cut_torn_line(path)
        append_whole_line(path, dump_json(event))


def now() -> str:
    """This moment, with the time zone."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


def state_after(code: int | None, reason: str = "") -> State:
    """The state of a point without a result, by the end of its last attempt.

    Args:
        code: the exit code, negative for a signal; None if unknown.
        reason: in words.
    """
    if code is None:
        return "interrupted" if reason in ("preempted", "time limit") else "killed"
    number = -code if code < 0 else code - 128
    if number == signal.SIGKILL:
        return "killed"
    return "interrupted" if number in _STOPPED else "failed"


def _ending(attempt: Attempt) -> str:
    code = attempt.exit_code
    if code == 0:
        return "ended without a result"
    if code is not None and code < 0:
        known = {number.value: number.name for number in signal.Signals}
        return f"ended by {known.get(-code, f'signal {-code}')}"
    return attempt.reason or f"exit code {code}"


def _headline(record: RunInfo, metrics: Sequence[str]) -> tuple[str, float] | None:
    known = numbers(record.get("metrics"))
    own = [headline["metric"] for headline in record.get("headlines", ())]
    return next(((name, known[name]) for name in (*metrics, *own) if name in known), None)
