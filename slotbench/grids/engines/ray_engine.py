"""The Ray engine: points of a grid as tasks of Ray, on this machine or on a cluster that Ray already runs on."""

from __future__ import annotations

import importlib.util
import logging
import os
import secrets
import socket
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slotbench.files import dump_json, read_json_object_or_none, write_atomically
from slotbench.grids.engines.base import Engine, EngineError, Job, Outcome
from slotbench.grids.engines.worker import THREAD_VARIABLES, CommandProcess, PointTaken
from slotbench.grids.jobs import cores

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
    the same path, and have slotbench installed.

    Args:
        jobs: points to run at once; None: as many as Ray has room for.
        gpus: of each point, fractions share one; None: one, or an equal share if there are fewer than `jobs`.
        address: of a running cluster, as for `ray.init`; None: RAY_ADDRESS, or a Ray of our own on this machine.

    Raises:
        EngineError: Ray is not installed, or does not start.
    """

    def __init__(self, jobs: int | None = None, gpus: float | None = None, address: str | None = None) -> None:
        if importlib.util.find_spec("ray") is None:
            raise EngineError('--engine ray needs Ray: pip install "slotbench[ray]"; or use --engine local')
        if jobs is not None and jobs < 1:
            raise EngineError(f"--jobs is {jobs}; expected 1 or more")
        self.jobs, self.gpus = jobs, gpus
        self.address = address or os.environ.get("RAY_ADDRESS")
        self._queue: deque[Job] = deque()
        self._tasks: dict[str, _Task] = {}
        self._outcomes: list[Outcome] = []
        self._remote: Any = None

    def submit(self, jobs: Sequence[Job]) -> None:
        """Puts jobs at the end of the queue; Ray is started by the first."""
        self._queue.extend(jobs)
        self._start()

    def poll(self) -> list[Outcome]:
        """The jobs that have ended; submits the next ones to Ray."""
        if self._tasks:
            import ray

            by_reference = {task.reference: task for task in self._tasks.values()}
            ended, _ = ray.wait(list(by_reference), num_returns=len(by_reference), timeout=0)
            for reference in ended:
                task = by_reference[reference]
                del self._tasks[task.job.id]
                self._outcomes.append(_outcome(task))
        self._start()
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def running(self) -> Mapping[str, str]:
        """Jobs that have begun: "ray pid 123 on node1"."""
        begun = {id: read_json_object_or_none(task.job.folder / _BEGIN_FILE) or {} for id, task in self._tasks.items()}
        return {
            id: f"ray pid {begin['pid']} on {begin['host']}"
            for id, begin in begun.items()
            if begin.get("token") == self._tasks[id].token
        }

    def cancel(self) -> None:
        """Empties the queue and interrupts every task, which lets its command save; waits for them."""
        self._queue.clear()
        if not self._tasks:
            return
        import ray

        references = [task.reference for task in self._tasks.values()]
        for reference in references:
            ray.cancel(reference, force=False)
        end = time.monotonic() + _SAVE_SECONDS
        while references and time.monotonic() < end:
            _, references = ray.wait(references, num_returns=len(references), timeout=1)

    def _start(self) -> None:
        while self._queue and (self.jobs is None or len(self._tasks) < self.jobs):
            job = self._queue[0]
            cpus = int(job.environment.get(THREAD_VARIABLES[0], "1"))
            if self._remote is None:
                self._remote = self._connect(cpus)
            token = secrets.token_hex(8)
            self._tasks[job.id] = _Task(job, token, self._remote.options(num_cpus=cpus).remote(job, token))
            self._queue.popleft()

    def _connect(self, cpus: int) -> Any:
        """Ray, started or found, with the function that runs a job there."""
        import ray

        try:
            if not ray.is_initialized() and self.address:
                ray.init(address=self.address, logging_level=logging.ERROR, log_to_driver=False)
            elif not ray.is_initialized():
                # room for as many points as were asked for, whether or not the machine has the cores
                room = cores() if self.jobs is None else self.jobs * cpus
                ray.init(
                    num_cpus=max(cpus, room), include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False
                )
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            where = f"the cluster at {self.address}" if self.address else "a Ray on this machine"
            raise EngineError(
                f"{where} cannot be used: {error}; start one with `ray start --head`, or use --engine local"
            ) from error
        return ray.remote(max_retries=0, num_gpus=self._gpus_of(ray.cluster_resources()))(run_job)

    def _gpus_of(self, resources: Mapping[str, float]) -> float:
        there = resources.get("GPU", 0.0)
        if self.gpus is not None or not there:
            return self.gpus or 0.0
        return 1.0 if self.jobs is None or self.jobs <= there else int(1e4 * there / self.jobs) / 1e4


def run_job(job: Job, token: str) -> int | None:
    """On the node: runs the command to its end and returns its exit code, or None if another process runs the point."""
    try:
        process = CommandProcess(job, without=("SLURM_", "RAY_"))
    except PointTaken:
        return None
    try:
        begin = {"token": token, "pid": process.pid, "host": socket.gethostname()}
        write_atomically(job.folder / _BEGIN_FILE, dump_json(begin))
        code = process.wait()
    except KeyboardInterrupt:  # this is how Ray takes a task back
        code = process.stop(_SAVE_SECONDS)
    return code


def _outcome(task: _Task) -> Outcome:
    import ray

    try:
        code = ray.get(task.reference)
    except ray.exceptions.TaskCancelledError:
        return Outcome(task.job.id, None, "cancelled")
    except ray.exceptions.WorkerCrashedError:
        return Outcome(task.job.id, None, "node failed")
    except ray.exceptions.RayError as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        return Outcome(task.job.id, None, f"Ray: {first}")
    return Outcome(task.job.id, code, "another process runs it" if code is None else "")
