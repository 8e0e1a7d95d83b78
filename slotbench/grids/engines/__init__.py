"""Engines, which run the jobs of a grid somewhere and say how they end. submitit and Ray, extras, are imported late."""

from __future__ import annotations

import math
import os
import shlex
import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slotbench.errors import UserError
from slotbench.grids.ledger import now

__all__ = ["ENGINES", "STOPPED", "THREADS", "CommandProcess", "Engine", "EngineError", "Job", "Outcome", "TimeLimit"]

ENGINES = ("local", "slurm", "ray")
STOPPED = frozenset({128 + signal.SIGTERM, 128 + signal.SIGINT, -signal.SIGTERM, -signal.SIGINT, -signal.SIGUSR2})
"""Exit codes of a command that a signal has stopped, so that it can be resumed."""
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

_SAVING = 30.0  # seconds in which a job saves and ends, and which a start should have before them


class EngineError(UserError):
    """An engine cannot work here: what is missing, and what to install or type instead."""


@dataclass(frozen=True)
class Job:
    """One point to run: a command that trains it, or resumes its training, in its folder, which exists."""

    id: str
    folder: Path
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        """The file that output and errors of the command are appended to."""
        return self.folder / "log.txt"


@dataclass(frozen=True)
class Outcome:
    """How a job ended: the exit code, negative for a signal; None if unknown, then the reason says it in words."""

    id: str
    exit_code: int | None
    reason: str = ""


@dataclass(frozen=True)
class TimeLimit:
    """When jobs of a grid begin for the last time, are asked to save and end, and have ended, by the monotonic clock.

    The last half minute is for saving, and none begins in the half minute before; of a short limit a quarter each.
    """

    last_start: float = math.inf
    stop: float = math.inf
    end: float = math.inf

    @classmethod
    def after(cls, minutes: float | None) -> TimeLimit:
        """So many minutes from now; None for no limit."""
        if minutes is None:
            return cls()
        if not 0 < minutes < math.inf:
            raise EngineError(f"--minutes is {minutes:g}; expected a number above 0, such as 8")
        end, part = time.monotonic() + 60 * minutes, min(_SAVING, 60 * minutes / 4)
        return cls(end - 2 * part, end - part, end)


class Engine(ABC):
    """Runs jobs, with `patience` seconds between two polls; leaves places for points that run already, `occupied`."""

    name = ""
    threads: int | None = None
    patience = 1.0
    occupied = 0

    @abstractmethod
    def submit(self, jobs: Sequence[Job]) -> None:
        """Takes jobs over, at once or into a queue of its own."""

    @abstractmethod
    def poll(self) -> list[Outcome]:
        """The jobs that have ended since the last call; returns at once."""

    @abstractmethod
    def running(self) -> Mapping[str, str]:
        """Jobs that have begun and not ended, with where they run ("pid 123", "slurm job 7_2 on node1")."""

    @abstractmethod
    def cancel(self) -> None:
        """Asks every job to save and end (SIGTERM), waits a short while, and takes back what has not begun."""


class CommandProcess:
    """A job's command as a child process, without environment variables that begin with `hidden`.

    May be used from a signal handler: nothing here waits for a lock that the interrupted code could hold.
    """

    def __init__(
        self, job: Job, hidden: tuple[str, ...] = (), threads: str | None = None, own_session: bool = False
    ) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith(hidden or ("\0",))}
        environment |= {**job.environment, **(dict.fromkeys(THREADS, threads) if threads else {})}
        with open(job.log, "ab") as log:
            log.write(f"=== {now()} {shlex.join(job.command)}\n".encode())
            log.flush()
            self._process = subprocess.Popen(
                list(job.command),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=own_session,
            )
        self.pid = self._process.pid
        self.exit_code: int | None = None
        threading.Thread(target=self._reap, daemon=True).start()

    def _reap(self) -> None:
        self.exit_code = self._process.wait()

    def wait(self, seconds: float = math.inf) -> int | None:
        """The exit code, negative for a signal, or None if the command is still running after that many seconds."""
        end = time.monotonic() + seconds
        while self.exit_code is None and time.monotonic() < end:
            time.sleep(0.05)
        return self.exit_code

    def terminate(self) -> None:
        """Asks it to save and end."""
        if self.exit_code is None:
            os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Ends it at once, and in a session of its own what it has started."""
        if self.exit_code is None:
            (os.killpg if os.getpgid(self.pid) == self.pid else os.kill)(self.pid, signal.SIGKILL)

    def stop(self, seconds: float) -> int | None:
        """Asks it to save and end, and kills it if it has not after that many seconds; returns the exit code."""
        self.terminate()
        if self.wait(seconds) is None:
            self.kill()
        return self.wait()
