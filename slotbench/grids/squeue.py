"""What SLURM says of our jobs, by its own commands."""

from __future__ import annotations

import getpass
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["BEGUN", "ENDED", "QueuedJob", "ask", "take_back"]

ENDED = {
    "COMPLETED": "",
    "FAILED": "failed",
    "TIMEOUT": "time limit",
    "CANCELLED": "cancelled",
    "NODE_FAIL": "node failed",
    "OUT_OF_MEMORY": "out of memory",
    "BOOT_FAIL": "node did not start",
    "DEADLINE": "deadline passed",
    "PREEMPTED": "preempted",
    "REVOKED": "revoked",
}
"""States from which a job does not come back, and what they mean for a point."""

BEGUN = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "STAGE_OUT", "SIGNALING", "STOPPED"})

_SECONDS = 60
_AT_ONCE = 100


@dataclass(frozen=True)
class QueuedJob:
    """One line of squeue.

    Attributes:
        id: "7", or "7_2" for an element of an array.
        name: given to sbatch; all elements of an array have the same.
        state: "PENDING", "RUNNING", ...
        nodes: where it runs; empty if nowhere.
        reason: why it waits.
    """

    id: str
    name: str
    state: str
    nodes: str
    reason: str

    @property
    def index(self) -> int:
        """The place in the array; 0 for a job that is none."""
        return int(self.id.partition("_")[2] or 0)


def ask() -> list[QueuedJob] | None:
    """All jobs of this user that SLURM still knows, or None if it does not answer now."""
    command = ["squeue", f"--user={getpass.getuser()}", "--states=all", "--array", "--noheader"]
    try:
        answer = subprocess.run(
            [*command, "--format=%i|%j|%T|%N|%r"], capture_output=True, text=True, timeout=_SECONDS, check=True
        )
    except (subprocess.SubprocessError, OSError):
        return None
    rows = (line.strip().split("|") for line in answer.stdout.splitlines())
    return [QueuedJob(*row) for row in rows if len(row) == 5]


def take_back(ids: Iterable[str]) -> None:
    """Asks SLURM to end jobs: SIGTERM to those that run, and those that wait are removed."""
    ids = list(ids)
    for start in range(0, len(ids), _AT_ONCE):
        _scancel(ids[start : start + _AT_ONCE])


def _scancel(ids: Sequence[str]) -> None:
    try:
        # --quiet: a job that has ended in the meantime is no error
        subprocess.run(["scancel", "--quiet", *ids], capture_output=True, timeout=_SECONDS, check=False)
    except (subprocess.SubprocessError, OSError):
        return
