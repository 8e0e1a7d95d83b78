"""The stages of a GPU day, what its command asked for, and the file of a stage.

A piece of work of a stage is an *item*, by a key of its own; an item with a "problem" has failed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slotbench.files import dump_json, read_json_object_or_none, write_atomically

__all__ = ["MINUTES", "STAGES", "Items", "OutOfTimeError", "Settings", "Stage", "limit_of", "problem_of", "run_command"]

DONE, FAILED = "done", "failed"
"""The states of a stage that has ended, beside `OUT_OF_TIME`."""

MINUTES = 40.0
"""Minutes that the whole day may take by default; the limits of the stages are shares of it."""

UNAVAILABLE = "not available"
"""The problem of a kernel that cannot run here: not installed, for another device, or refused after a trial."""

RUNNING = "running"
"""Key of the test that has begun and not ended: it is there at the end where a test has taken the process down."""

_PATIENCE = 20.0  # seconds from the signal that ends a command to the one that kills it


@dataclass(frozen=True)
class Stage:
    """One stage: the function of its name, with settings and items as arguments.

    Attributes:
        name: of the function and of the files.
        module: of this folder, in which the function is.
        what: it does, in a line.
        minutes: it may take of 40; None for the rest of the time.
        planned: minutes that it is expected to take.
    """

    name: str
    module: str
    what: str
    minutes: float | None
    planned: float


STAGES = (
    Stage("machine", "day", "device, driver, versions, and the report of slotbench doctor", 3, 1.5),
    Stage("gpu_tests", "day", "the tests marked gpu", 5, 3),
    Stage("kernels", "kernels", "every kernel of slotbench.ops against the others", 6, 5),
    Stage("cores", "training", "slotbench bench cores on the device", 6, 5),
    Stage("training", "training", "training at the papers' sizes, a model of each family, fp32 and bf16-mixed", 10, 9),
    Stage("experiment", "training", "one experiment to its end, with scores and baselines", None, 10),
)
"""In the order in which they run."""


@dataclass(frozen=True)
class Settings:
    """What the command asked for.

    Attributes:
        out: folder of all results.
        device: "cuda" or "cpu".
        quick: tiny sizes: to see that every stage runs.
        minutes: of the whole day.
        command: as it was typed.
    """

    out: Path
    device: str = "cuda"
    quick: bool = False
    minutes: float = MINUTES
    command: str = "slotbench bench gpu"


def limit_of(stage: Stage, minutes: float, left: float) -> float:
    """Seconds that a stage may take.

    Args:
        stage: the stage.
        minutes: of the whole day.
        left: seconds until the day has to end.
    """
    return left if stage.minutes is None else min(60 * stage.minutes * minutes / MINUTES, left)


class OutOfTimeError(RuntimeError):
    """The time of a stage is up, with work left that another run of the command can do."""


class Items(dict[str, dict[str, Any]]):
    """The items of a stage by key, in `OUT/STAGE.json` after every change; those of an interrupted stage are there.

    Args:
        out: folder of all results.
        stage: its name.
        seconds: that the stage may take from now on.

    Attributes:
        result: what the file has beside them: "state" (`DONE`, `FAILED` or `OUT_OF_TIME` once the stage has ended),
            "message", "seconds", "limit", "commit", "date" and "command".
        log: the file of what the commands of the stage print.
        deadline: of the stage, by the monotonic clock.
    """

    def __init__(self, out: Path, stage: str, seconds: float = 0.0) -> None:
        self.path, self.log = out / f"{stage}.json", out / f"{stage}.log"
        self.deadline = time.monotonic() + seconds
        self.result = {"stage": stage, "state": "", "message": "", **(read_json_object_or_none(self.path) or {})}
        found = self.result.pop("items", None)
        super().__init__(found if isinstance(found, dict) else {})

    def left(self) -> float:
        """Seconds that are left."""
        return self.deadline - time.monotonic()

    def __setitem__(self, key: str, item: dict[str, Any]) -> None:
        super().__setitem__(key, item)
        self.write()

    def write(self, **result: Any) -> None:
        """Writes the file in one step, with changes to the result."""
        self.result |= result
        write_atomically(self.path, dump_json({**self.result, "items": dict(self)}, indent=1) + "\n")

    def summary(self, noun: str) -> str:
        """How many there are, and how many of them failed: "10 runs, 1 failed"."""
        failed = sum(problem_of(item) is not None for item in self.values())
        return f"{len(self)} {noun}{'s' * (len(self) != 1)}{f', {failed} failed' if failed else ''}"


def problem_of(item: dict[str, Any]) -> str | None:
    """What went wrong, in a line; None if nothing did."""
    return ": ".join(str(item[key]) for key in ("problem", "message") if item.get(key)) if item.get("problem") else None


def run_command(command: Sequence[str], seconds: float, log: Path) -> int | None:
    """The exit code of a command, whose output is added to a log; None if its time was up.

    It is ended then, as by an interrupt, with all that it has started: a training writes its checkpoint first.
    """
    with open(log, "ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            return process.wait(max(seconds, 0.0))
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
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
