"""The Ray engine: points of a grid as tasks of Ray, on this machine or on a cluster that Ray already runs on."""

from __future__ import annotations

import importlib.util
import logging
import os
import secrets
import socket
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slotbench.grids.engines import THREADS, CommandProcess, Engine, EngineError, Job, Outcome
from slotbench.io import dump_json, read_json_object_or_none, write_atomically

__all__ = ["RayEngine", "run_job"]

_BEGIN_FILE = "ray.json"
_SAVE_SECONDS = 60.0


@dataclass
class _Task:
    """A submitted job: its future, and the word that marks its beginning."""

    job: Job
    token: str
    reference: Any


class RayEngine(Engine):
    """Points as tasks of Ray, each with as many cores as it has threads, and with a GPU where there are any.

    Ray is told to try nothing twice: the ledger decides what is run again. Every node must see the grid's folder under
    the same path, and have slotbench installed. The cluster is that of RAY_ADDRESS, or one started on this machine.

    Args:
        jobs: points to run at once; None: as many as Ray has room for.
    """

    name = "ray"

    def __init__(self, jobs: int | None = None) -> None:
        if importlib.util.find_spec("ray") is None:
            raise EngineError('--engine ray needs Ray: pip install "slotbench[ray]"; or use --engine local')
        if jobs is not None and jobs < 1:
            raise EngineError(f"--jobs is {jobs}; expected 1 or more")
        self.jobs = jobs
        self._queue: deque[Job] = deque()
        self._tasks: dict[str, _Task] = {}
        self._remote: Any = None

    def submit(self, jobs: Sequence[Job]) -> None:
        """Puts jobs at the end of the queue; Ray is started by the first."""
        self._queue.extend(jobs)
        self._start()

    def poll(self) -> list[Outcome]:
        """The jobs that have ended; submits the next ones to Ray."""
        import ray

        by_reference = {task.reference: task for task in self._tasks.values()}
        ended = ray.wait(list(by_reference), num_returns=len(by_reference), timeout=0)[0] if by_reference else []
        outcomes = [_outcome(self._tasks.pop(by_reference[reference].job.id)) for reference in ended]
        self._start()
        return outcomes

    def running(self) -> Mapping[str, str]:
        """Jobs that have begun: "ray pid 123 on node1"."""
        begun = {
            key: read_json_object_or_none(task.job.folder / _BEGIN_FILE) or {} for key, task in self._tasks.items()
        }
        return {
            key: f"ray pid {begin['pid']} on {begin['host']}"
            for key, begin in begun.items()
            if begin.get("token") == self._tasks[key].token
        }

    def cancel(self) -> None:
        """Empties the queue and interrupts every task, which lets its command save; waits for them."""
        import ray

        self._queue.clear()
        references = [task.reference for task in self._tasks.values()]
        for reference in references:
            ray.cancel(reference, force=False)
        if references:
            ray.wait(references, num_returns=len(references), timeout=_SAVE_SECONDS)

    def _start(self) -> None:
        while self._queue and (self.jobs is None or len(self._tasks) < self.jobs):
            job, token = self._queue[0], secrets.token_hex(8)
            cpus = int(job.environment.get(THREADS[0], "1"))
            if self._remote is None:
                self._remote = self._connect(cpus)
            self._tasks[job.id] = _Task(job, token, self._remote.options(num_cpus=cpus).remote(job, token))
            self._queue.popleft()

    def _connect(self, cpus: int) -> Any:
        """Ray, started or found, with the function that runs a job there."""
        import ray

        address, quiet = os.environ.get("RAY_ADDRESS"), {"logging_level": logging.ERROR, "log_to_driver": False}
        # room for as many points as were asked for, whether or not the machine has the cores
        room = len(os.sched_getaffinity(0)) if self.jobs is None else self.jobs * cpus
        where = {"address": address} if address else {"num_cpus": max(cpus, room), "include_dashboard": False}
        try:
            if not ray.is_initialized():
                ray.init(**where, **quiet)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise EngineError(f"Ray cannot be used ({address or 'this machine'}): {error}") from error
        return ray.remote(max_retries=0, num_gpus=self.gpus_of(ray.cluster_resources()))(run_job)

    def gpus_of(self, resources: Mapping[str, float]) -> float:
        """GPUs of each point: one, or an equal share if there are fewer than points at once."""
        there = resources.get("GPU", 0.0)
        return min(1.0, there) if self.jobs is None or self.jobs <= there else int(1e4 * there / self.jobs) / 1e4


def run_job(job: Job, token: str) -> int | None:
    """On the node: runs the command to its end and returns its exit code."""
    process = CommandProcess(job, hidden=("SLURM_", "RAY_"))
    try:
        begin = {"token": token, "pid": process.pid, "host": socket.gethostname()}
        write_atomically(job.folder / _BEGIN_FILE, dump_json(begin))
        return process.wait()
    except KeyboardInterrupt:  # this is how Ray takes a task back
        return process.stop(_SAVE_SECONDS)


def _outcome(task: _Task) -> Outcome:
    import ray

    try:
        return Outcome(task.job.id, ray.get(task.reference))
    except ray.exceptions.TaskCancelledError:
        return Outcome(task.job.id, None, "cancelled")
    except ray.exceptions.RayError as error:
        return Outcome(task.job.id, None, next(iter(str(error).splitlines()), type(error).__name__))
