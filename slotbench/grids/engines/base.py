"""The interface of an engine, which runs the jobs of a grid somewhere and says how they end."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slotbench.errors import UserError

__all__ = ["Engine", "EngineError", "Job", "Outcome", "TimeLimit"]

_SAVING = 30.0  # seconds in which a job saves and ends, and which a start should have before them


class EngineError(UserError):
    """An engine cannot work here: what is missing, and what to install or type instead."""


@dataclass(frozen=True)
class Job:
    """One point to run: a command that trains it, or resumes its training, in its folder.

    The command is idempotent: run again after a kill it resumes, and after the end it does nothing. It ends with exit
    code 0 only when the folder holds `result.json`.

    Attributes:
        id: the point's id, unique within the grid.
        folder: the run folder that the command writes into; exists.
        command: the program and its arguments.
        environment: variables set on top of those of the driver.
        log: file that standard output and error of the command are appended to.
    """

    id: str
    folder: Path
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    log: Path = Path()


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    Attributes:
        id: the job's.
        exit_code: of the command, negative for a signal; None if it never ran, or unknown.
        reason: in a few words where the exit code does not say it: "preempted", "node failed", "time limit", ...
    """

    id: str
    exit_code: int | None
    reason: str = ""


@dataclass(frozen=True)
class TimeLimit:
    """When jobs of a grid begin for the last time, are asked to save and end, and have ended, by the monotonic clock.

    The last half minute is for saving, and none begins in the half minute before; of a short limit a quarter each.

    Attributes:
        last_start: none begins after it.
        stop: those that run are asked to save and end.
        end: those that still run are killed.
    """

    last_start: float = math.inf
    stop: float = math.inf
    end: float = math.inf

    @classmethod
    def after(cls, minutes: float | None) -> TimeLimit:
        """So many minutes from now; None for no limit.

        Raises:
            EngineError: it is not above 0.
        """
        if minutes is None:
            return cls()
        if not 0 < minutes < math.inf:
            raise EngineError(f"--minutes is {minutes:g}; expected a number above 0, such as 8")
        end, part = time.monotonic() + 60 * minutes, min(_SAVING, 60 * minutes / 4)
        return cls(end - 2 * part, end - part, end)


class Engine(ABC):
    """Runs jobs; used by one driver from one thread.

    An engine never decides whether a point is done: the ledger does, from `result.json`.

    Attributes:
        occupied: points that processes of an earlier driver run; the local engine leaves places for them.
    """

    occupied: int = 0

    @property
    def threads(self) -> int | None:
        """Threads of a job where the engine decides them; None leaves them to the driver."""
        return None

    @abstractmethod
    def submit(self, jobs: Sequence[Job]) -> None:
        """Takes jobs over, at once or into a queue of its own.

        Raises:
            EngineError: it cannot work here.
        """

    @abstractmethod
    def poll(self) -> list[Outcome]:
        """The jobs that have ended since the last call; returns at once."""

    @abstractmethod
    def running(self) -> Mapping[str, str]:
        """Jobs that have begun and not ended, with where they run ("pid 123", "slurm job 7_2 on node1")."""

    @abstractmethod
    def cancel(self) -> None:
        """Asks every job to save and end (SIGTERM), waits a short while, and takes back what has not begun."""
