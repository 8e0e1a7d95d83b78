"""The SLURM engine: points of a grid as arrays of jobs, through submitit."""

from __future__ import annotations

import getpass
import importlib.util
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slotbench.files import dump_json, make_folder, read_json_object_or_none, remove_file, write_atomically
from slotbench.grids.engines.base import Engine, EngineError, Job, Outcome
from slotbench.grids.engines.slurm_options import SlurmOptions
from slotbench.grids.engines.slurm_task import SlurmTask, end_of
from slotbench.grids.ledger import PointFolder

__all__ = ["SUBMISSION_FILE", "SlurmEngine"]

SUBMISSION_FILE = "slurm.json"

# SLURM refuses larger arrays, unless its MaxArraySize has been raised
_ARRAY_SIZE = 1000
_LOOK_SECONDS = 1.0
_CANCEL_SECONDS = 45.0
# a node's last words may take longer to appear on a shared disk than squeue takes to forget the job
_ASKS_BEFORE_GIVING_UP = 2

_ENDED = {
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

_BEGUN = frozenset({"RUNNING", "COMPLETING", "SUSP_ENDED", "STAGE_OUT", "SIGNALING", "STOPPED"})

_SQUEUE_SECONDS = 60
_AT_ONCE = 100


@dataclass
class _Watched:
    """A submitted job: its submission, and the last answer of squeue."""

    job: Job
    name: str
    index: int
    row: _QueuedJob | None = None
    asks_without_it: int = 0

    @property
    def token(self) -> str:
        return _token(self.name, self.index)


class SlurmEngine(Engine):
    """Points as array jobs of SLURM, requeued by themselves when they are preempted or run into the time limit.

    Before anything is handed to sbatch, each point's folder is told the name of the submission (`slurm.json`). So a
    driver that is started again after a kill finds the jobs of the one before in the queue, by that name, and watches
    them instead of submitting them twice; and learns how those have ended that ended while there was no driver.

    How a job has ended is read from the file that it leaves (`slurm_end.json`); squeue is asked for the jobs that left
    none. sacct, which needs an accounting database, is not used.

    Args:
        options: what each point asks for.
        jobs: points to run at once; None leaves it to SLURM.

    Raises:
        EngineError: submitit or the commands of SLURM are not here.
    """

    def __init__(self, options: SlurmOptions | None = None, jobs: int | None = None) -> None:
        self.options = options or SlurmOptions()
        self.jobs = jobs
        self._watched: dict[str, _Watched] = {}
        self._unseen: list[Outcome] = []
        self._looked = self._asked = float("-inf")
        if importlib.util.find_spec("submitit") is None:
            raise EngineError('--engine slurm needs submitit: pip install "slotbench[grid]"; or use --engine local')
        missing = [name for name in ("sbatch", "srun", "squeue", "scancel", "scontrol") if shutil.which(name) is None]
        if missing:
            raise EngineError(
                f"--engine slurm needs the commands of SLURM, and there is no {', '.join(missing)} here; type it on a "
                "login node of the cluster, or use --engine local"
            )

    @property
    def threads(self) -> int:
        """Of each process of a point: the cores that SLURM gives it, whatever the driver's machine has."""
        return self.options.cpus_per_task or 1

    def submit(self, jobs: Sequence[Job]) -> None:
        """Submits jobs with sbatch, except those that an earlier driver submitted and that have not ended."""
        queue = _ask_squeue()
        if queue is None:
            raise EngineError(
                "squeue does not answer, so the points may be in the queue already; "
                "try `squeue --me` until it does, then the same command again"
            )
        rows = {_token(row.name, row.index): row for row in queue if row.state not in _ENDED}
        new = []
        for job in jobs:
            token = str((read_json_object_or_none(job.folder / SUBMISSION_FILE) or {}).get("token"))
            if (row := rows.get(token)) is not None:
                self._watched[job.id] = _Watched(job, row.name, row.index, row)
            elif (outcome := _unseen_end(job, token)) is not None:
                self._unseen.append(outcome)
            else:
                new.append(job)
        for part in _parts(new):
            self._submit_array(part)

    def poll(self) -> list[Outcome]:
        """The jobs that have ended; looks at most once a second, and asks squeue every `ask_seconds`."""
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return []
        self._looked = now
        outcomes, self._unseen = self._unseen, []
        for watched in list(self._watched.values()):
            end = end_of(watched.job.folder, watched.token)
            if end.get("final"):
                outcomes.append(Outcome(watched.job.id, end["exit_code"], end["reason"]))
                del self._watched[watched.job.id]
        if self._watched and now - self._asked >= self.options.ask_seconds:
            outcomes += self._ask()
        return outcomes

    def running(self) -> Mapping[str, str]:
        """Jobs on a node, by the last answer of squeue: "slurm job 7_2 on node1"."""
        return {
            id: f"slurm job {watched.row.id} on {watched.row.nodes}"
            for id, watched in self._watched.items()
            if watched.row is not None and watched.row.state in _BEGUN
        }

    def cancel(self) -> None:
        """scancel for all: those that wait are gone, those that run save and end, which is waited for."""
        end = time.monotonic() + _CANCEL_SECONDS
        self._ask_rows()
        _take_back(row.id for row in self._rows())
        while time.monotonic() < end and any(row.state not in _ENDED for row in self._rows()):
            time.sleep(_LOOK_SECONDS)
            self._ask_rows()
        # the driver polls once more, and then nothing waits for a node's last output
        for watched in self._watched.values():
            watched.asks_without_it = _ASKS_BEFORE_GIVING_UP
        self._looked = self._asked = float("-inf")

    def _submit_array(self, jobs: Sequence[Job]) -> None:
        import submitit
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        grid = jobs[0].folder.parent
        name = f"slotbench-{re.sub(r'[^A-Za-z0-9_.-]', '-', grid.name)}-{secrets.token_hex(4)}"
        options = self.options
        tasks = [
            SlurmTask(job, _token(name, index), options.num_tasks, options.save_seconds)
            for index, job in enumerate(jobs)
        ]
        # -P: the working folder is not for imports
        python = f"{shlex.quote(sys.executable)} -P"
        executor = submitit.SlurmExecutor(_scripts(grid), max_num_timeout=options.requeues, python=python)
        executor.update_parameters(job_name=name, array_parallelism=self.jobs or _ARRAY_SIZE, **options.for_submitit())
        for job, task in zip(jobs, tasks, strict=True):
            make_folder(job.folder)
            write_atomically(job.folder / SUBMISSION_FILE, dump_json({"token": task.token}))
        try:
            with executor.batch():
                for task in tasks:
                    executor.submit(task)
        except (FailedJobError, FailedSubmissionError) as error:
            for job in jobs:
                remove_file(job.folder / SUBMISSION_FILE)
            raise EngineError(f"sbatch refuses the points: {_errors(str(error))}") from error
        for index, job in enumerate(jobs):
            self._watched[job.id] = _Watched(job, name, index)
        # so that they are soon seen to run
        self._asked = float("-inf")

    def _ask(self) -> list[Outcome]:
        """Updates the states of jobs, and gives up on those that SLURM has ended or forgotten."""
        if not self._ask_rows():
            return []
        outcomes = []
        for watched in list(self._watched.values()):
            state = watched.row.state if watched.row is not None else ""
            if watched.row is not None and state not in _ENDED:
                watched.asks_without_it = 0
                continue
            watched.asks_without_it += 1
            if watched.asks_without_it >= _ASKS_BEFORE_GIVING_UP:
                end = end_of(watched.job.folder, watched.token)
                reason = end.get("reason") or _ENDED.get(state) or "ended without a word"
                outcomes.append(Outcome(watched.job.id, end.get("exit_code"), reason))
                del self._watched[watched.job.id]
        return outcomes

    def _ask_rows(self) -> bool:
        self._asked = time.monotonic()
        queue = _ask_squeue()
        if queue is None:
            return False  # a busy controller: what was known stays true until it answers
        rows = {_token(row.name, row.index): row for row in queue}
        for watched in self._watched.values():
            watched.row = rows.get(watched.token)
        return True

    def _rows(self) -> Iterator[_QueuedJob]:
        return (watched.row for watched in self._watched.values() if watched.row is not None)


def _token(name: str, index: int) -> str:
    return f"{name}/{index}"


def _unseen_end(job: Job, token: str) -> Outcome | None:
    """The failure of a submission that ended while no driver was there to record it."""
    end = end_of(job.folder, token)
    attempts = PointFolder(job.folder).attempts()
    if not end.get("final") or end["exit_code"] is None or (attempts and attempts[-1].exit_code is not None):
        return None
    return Outcome(job.id, end["exit_code"], end["reason"])


def _parts(jobs: Sequence[Job]) -> Iterator[Sequence[Job]]:
    return (jobs[start : start + _ARRAY_SIZE] for start in range(0, len(jobs), _ARRAY_SIZE))


def _scripts(grid: Path) -> Path:
    """Where submitit keeps its scripts and what they print; hidden, since it is no point of the grid."""
    return grid / ".slurm"


def _errors(text: str) -> str:
    """The error of sbatch, without submitit's words around it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.partition("sbatch: error: ")[2] for line in lines if "sbatch: error: " in line]
    return "; ".join(dict.fromkeys(errors)) or next(reversed(lines), "no reason given")


@dataclass(frozen=True)
class _QueuedJob:
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


def _ask_squeue() -> list[_QueuedJob] | None:
    """All jobs of this user that SLURM still knows, or None if it does not answer now."""
    command = ["squeue", f"--user={getpass.getuser()}", "--states=all", "--array", "--noheader"]
    try:
        answer = subprocess.run(
            [*command, "--format=%i|%j|%T|%N|%r"], capture_output=True, text=True, timeout=_SQUEUE_SECONDS, check=True
        )
    except (subprocess.SubprocessError, OSError):
        return None
    rows = (line.strip().split("|") for line in answer.stdout.splitlines())
    return [_QueuedJob(*row) for row in rows if len(row) == 5]


def _take_back(ids: Iterable[str]) -> None:
    """Asks SLURM to end jobs: SIGTERM to those that run, and those that wait are removed."""
    ids = list(ids)
    for start in range(0, len(ids), _AT_ONCE):
        _scancel(ids[start : start + _AT_ONCE])


def _scancel(ids: Sequence[str]) -> None:
    try:
        # --quiet: a job that has ended in the meantime is no error
        subprocess.run(["scancel", "--quiet", *ids], capture_output=True, timeout=_SQUEUE_SECONDS, check=False)
    except (subprocess.SubprocessError, OSError):
        return
