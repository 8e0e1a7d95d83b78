"""The Ray engine: points of a grid as tasks of Ray, on this machine or on a cluster that Ray already runs on."""

from __future__ import annotations

import importlib.util
import logging
import os
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from slotbench.grids.engines import THREADS, CommandProcess, Engine, EngineError, Job, Outcome

__all__ = ["RayEngine", "run_job"]

_SAVE_SECONDS = 60.0


class RayEngine(Engine):
    """Points as tasks of Ray, each with as many cores as it has threads, and with a GPU where there are any.

    The cluster is that of RAY_ADDRESS, or one started on this machine; its nodes see the grid's folder under one path.
    """

    name = "ray"

    def __init__(self, jobs: int | None = None) -> None:
        if importlib.util.find_spec("ray") is None:
            raise EngineError('--engine ray needs Ray: pip install "slotbench[ray]"; or use --engine local')
        if jobs is not None and jobs < 1:
            raise EngineError(f"--jobs is {jobs}; expected 1 or more")
        self.jobs = jobs
        self._queue: deque[Job] = deque()
        self._tasks: dict[str, Any] = {}
        self._remote: Any = None

    def submit(self, jobs: Sequence[Job]) -> None:
        """Puts jobs at the end of the queue; Ray is started by the first."""
        self._queue.extend(jobs)
        self._start()

    def poll(self) -> list[Outcome]:
        """The jobs that have ended; submits the next ones to Ray."""
        import ray

        waiting = list(self._tasks.values())
        ended = ray.wait(waiting, num_returns=len(waiting), timeout=0)[0] if waiting else []
        outcomes = [_outcome(key, reference) for key, reference in self._tasks.items() if reference in ended]
        for outcome in outcomes:
            del self._tasks[outcome.id]
        self._start()
        return outcomes

    def running(self) -> Mapping[str, str]:
        """Jobs that Ray has."""
        return dict.fromkeys(self._tasks, "ray")

    def cancel(self) -> None:
        """Empties the queue and interrupts every task, which lets its command save; waits for them."""
        import ray

        self._queue.clear()
        references = list(self._tasks.values())
        for reference in references:
            ray.cancel(reference, force=False)
        if references:
            ray.wait(references, num_returns=len(references), timeout=_SAVE_SECONDS)

    def _start(self) -> None:
        while self._queue and (self.jobs is None or len(self._tasks) < self.jobs):
            job = self._queue[0]
            cpus = int(job.environment.get(THREADS[0], "1"))
            if self._remote is None:
                self._remote = self._connect(cpus)
            self._tasks[job.id] = self._remote.options(num_cpus=cpus).remote(job)
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


def run_job(job: Job) -> int | None:
    """On the node: runs the command to its end and returns its exit code."""
    process = CommandProcess(job, hidden=("SLURM_", "RAY_"))
    try:
        return process.wait()
    except KeyboardInterrupt:  # this is how Ray takes a task back
        return process.stop(_SAVE_SECONDS)


def _outcome(key: str, reference: Any) -> Outcome:
    import ray

    try:
        return Outcome(key, ray.get(reference))
    except ray.exceptions.TaskCancelledError:
        return Outcome(key, None, "cancelled")
    except ray.exceptions.RayError as error:
        return Outcome(key, None, next(iter(str(error).splitlines()), type(error).__name__))
