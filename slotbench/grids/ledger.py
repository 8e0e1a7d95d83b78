"""The folder of one point, and its state, read off the files each time anew.

    POINT/point.json      what the point is
    POINT/attempts.jsonl  one line per attempt that begins, and one per attempt that ends; only ever appended to
    POINT/log.txt         what the attempts have printed
    POINT/result.json     put in place by `fit` once the run has ended: the point is done if it is there, or has
                          diverged if it says so

The rest is the run folder of that point.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from slotbench.grids.expansion import Point
from slotbench.io import append_line, cut_torn_line, dump_json, is_locked, numbers, write_atomically
from slotbench.io import read_json_object_or_none as read_object
from slotbench.runs.folder import LOCK, RECORD, RESULT

__all__ = ["RESUMABLE", "STATES", "PointFolder", "PointStatus", "State", "now", "state_after"]

State = Literal["done", "diverged", "running", "failed", "interrupted", "killed", "waiting"]
STATES: tuple[State, ...] = ("done", "diverged", "running", "failed", "interrupted", "killed", "waiting")
RESUMABLE: tuple[State, ...] = ("waiting", "interrupted", "killed")
"""The states of points that `grid run` begins or resumes without being asked to."""

_STOPPED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


@dataclass(frozen=True)
class PointStatus:
    """The progress of a point: its state, optimiser steps done and to do, seconds, and the metric that matters most."""

    id: str
    state: State
    step: int | None = None
    total_steps: int | None = None
    seconds: float | None = None
    seconds_per_step: float | None = None
    headline: tuple[str, float] | None = None
    error: str | None = None


class PointFolder:
    """The folder of one point, there already or not."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = path / "log.txt"

    def prepare(self, point: Point, command: Sequence[str]) -> None:
        """Creates the folder, and writes a description of the point to it."""
        self.path.mkdir(parents=True, exist_ok=True)
        record = {
            "id": point.id,
            "settings": dict(point.settings),
            "labels": dict(point.labels),
            "command": list(command),
            "fingerprint": point.fingerprint,
            **({"start": point.start, "into": "model.init_from"} if point.start else {}),
        }
        if read_object(self.path / "point.json") != record:
            write_atomically(self.path / "point.json", dump_json(record, indent=2))

    def result(self) -> dict[str, Any] | None:
        """The run's result, written at its end or when it diverged; None before."""
        return read_object(self.path / RESULT)

    def record(self) -> dict[str, Any]:
        """The run's own record, empty if there is none."""
        return read_object(self.path / RECORD) or {}

    def ended(self) -> State | None:
        """The end of the run, "done" or "diverged", if it has a result."""
        result = self.result()
        return None if result is None else "diverged" if result.get("state") == "diverged" else "done"

    def set_result_aside(self) -> None:
        """Keeps a result under another name, so that the point can be run again."""
        number = 1
        while (self.path / f"result.{number}.json").exists():
            number += 1
        (self.path / RESULT).replace(self.path / f"result.{number}.json")

    def is_running(self) -> bool:
        """Whether a process trains it, started by a grid or by hand."""
        return is_locked(self.path / LOCK)

    def attempts(self) -> list[dict[str, Any]]:
        """All attempts, oldest first: "started", "engine", "where", and once it is known "ended" and "exit_code"."""
        found: dict[int, dict[str, Any]] = {}
        path = self.path / "attempts.jsonl"
        for line in path.read_text().splitlines() if path.exists() else ():
            if line.endswith("}"):  # not one that was cut off by a kill
                event = json.loads(line)
                found.setdefault(event["attempt"], {}).update(event)
        return [event for _, event in sorted(found.items())]

    def begin(self, engine: str, where: str) -> int:
        """Notes that an attempt has begun, and returns its number."""
        number = max((attempt["attempt"] for attempt in self.attempts()), default=0) + 1
        self._append({"attempt": number, "started": now(), "engine": engine, "where": where})
        return number

    def end(self, number: int, exit_code: int | None, reason: str = "") -> None:
        """Notes how an attempt has ended: its exit code, negative for a signal, None if unknown."""
        self._append({"attempt": number, "ended": now(), "exit_code": exit_code, "reason": reason})

    def state(self) -> State:
        """The state of the point."""
        if (ended := self.ended()) is not None:
            return ended
        if self.is_running():
            return "running"
        attempts, recorded = self.attempts(), self.record().get("state")
        if attempts and "ended" in attempts[-1]:
            return state_after(attempts[-1]["exit_code"], attempts[-1]["reason"])
        if recorded in ("failed", "interrupted"):  # its driver was gone before it ended
            return "failed" if recorded == "failed" else "interrupted"
        return "killed" if recorded or attempts else "waiting"

    def status(self, metrics: Sequence[str] = ()) -> PointStatus:
        """The state of the point, with its numbers; its headline is the first of `metrics` it has, or its task's."""
        state, record = self.state(), self.record() | (self.result() or {})
        error = record.get("error") if state in ("failed", "diverged") else None
        if state == "failed" and not error:
            error = next(iter(self.last_lines(1)), None) or self._ending()
        known = numbers(record.get("metrics"))
        own = [headline["metric"] for headline in record.get("headlines") or ()]
        return PointStatus(
            self.path.name,
            state,
            step=record.get("step"),
            total_steps=record.get("total_steps"),
            seconds=record.get("seconds"),
            seconds_per_step=record.get("seconds_per_step"),
            headline=next(((name, known[name]) for name in (*metrics, *own) if name in known), None),
            error=error,
        )

    def last_lines(self, count: int = 8) -> list[str]:
        """The end of the log of the last attempt, as a terminal would show it."""
        if not self.log.exists():
            return []
        with open(self.log, "rb") as file:
            file.seek(max(0, self.log.stat().st_size - 16384))
            text = file.read().decode("utf-8", errors="replace")
        lines = [line.rpartition("\r")[2].rstrip() for line in text.replace("\r\n", "\n").split("\n")]
        begun = [place for place, line in enumerate(lines) if line.startswith("=== ")]
        return [line for line in lines[begun[-1] + 1 if begun else 0 :] if line][-count:]

    def _ending(self) -> str:
        last = next(reversed(self.attempts()), {"reason": "", "exit_code": None})
        return last.get("reason") or f"ended with exit code {last.get('exit_code')} and no result"

    def _append(self, event: Mapping[str, Any]) -> None:
        cut_torn_line(self.path / "attempts.jsonl")
        append_line(self.path / "attempts.jsonl", dump_json(event))


def now() -> str:
    """This moment, with the time zone."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


def state_after(code: int | None, reason: str = "") -> State:
    """The state of a point without a result, by the exit code of its last attempt, or the reason if there is none."""
    if code is None:
        return {"preempted": "interrupted", "timeout": "interrupted", "failed": "failed"}.get(reason, "killed")  # type: ignore[return-value]
    number = -code if code < 0 else code - 128
    return "killed" if number == signal.SIGKILL else "interrupted" if number in _STOPPED else "failed"
