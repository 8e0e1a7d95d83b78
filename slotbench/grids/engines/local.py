"""The local engine: points of a grid as processes on this machine, so many at a time."""

from __future__ import annotations

import math
import os
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from slotbench.grids.engines import CommandProcess, Engine, EngineError, Job, Outcome, TimeLimit
from slotbench.runs.launch import DEVICE_SHARE_VARIABLE

__all__ = ["LocalEngine", "cards"]

_PATIENCE = 120.0
# variables that a scheduler or an outer run has set do not concern the jobs
_HIDDEN = ("SLURM_", "SLOTBENCH_RUN_DIR")


class LocalEngine(Engine):
    """Runs jobs on this machine, each in a session of its own: Ctrl-C on the terminal does not reach them.

    Where several run at a time and there are CUDA devices, each sees one of them, and is told how many share it.
    """

    name, patience = "local", 0.02

    def __init__(self, jobs: int, limit: TimeLimit = TimeLimit()) -> None:  # noqa: B008  it is frozen
        if jobs < 1:
            raise EngineError(f"--jobs is {jobs}; expected 1 or more")
        self._jobs, self._limit = jobs, limit
        self._queue: deque[Job] = deque()
        self._running: dict[str, CommandProcess] = {}
        self._ended: list[Outcome] = []
        self._cards = cards() if jobs > 1 else []
        self._card_of: dict[str, str] = {}

    def submit(self, jobs: Sequence[Job]) -> None:
        """Puts jobs at the end of the queue."""
        self._queue.extend(jobs)
        self._start()

    def poll(self) -> list[Outcome]:
        """The jobs that have ended; starts the next ones in their places."""
        for job_id, process in list(self._running.items()):
            if process.exit_code is not None:
                del self._running[job_id]
                self._ended.append(Outcome(job_id, process.exit_code))
        self._start()
        ended, self._ended = self._ended, []
        return ended

    def running(self) -> Mapping[str, str]:
        """Jobs that run, with their processes."""
        return {job_id: f"pid {process.pid}" for job_id, process in self._running.items()}

    def cancel(self) -> None:
        """Empties the queue, sends SIGTERM to every job and waits; kills them if interrupted, or at the limit."""
        self._queue.clear()
        for process in self._running.values():
            # not to the whole group: the workers that load the data are needed until the step is finished
            process.terminate()
        until = min(time.monotonic() + _PATIENCE, self._limit.end)
        try:
            for process in self._running.values():
                process.wait(until - time.monotonic())
        except KeyboardInterrupt:
            self.kill()
            raise
        if time.monotonic() >= self._limit.end:
            self.kill()

    def kill(self) -> None:
        """Ends every job at once, and what it has started."""
        for process in self._running.values():
            process.kill()
        for process in self._running.values():
            process.wait()

    def _start(self) -> None:
        while self._queue and len(self._running) + self.occupied < self._jobs:
            if time.monotonic() > self._limit.last_start:
                return
            job = self._queue.popleft()
            if self._cards:
                taken = Counter(self._card_of[job_id] for job_id in self._running)
                card = self._card_of[job.id] = min(self._cards, key=lambda card: taken[card])
                share = {DEVICE_SHARE_VARIABLE: str(math.ceil(self._jobs / len(self._cards)))}
                job = replace(job, environment={"CUDA_VISIBLE_DEVICES": card, **share, **job.environment})
            try:
                self._running[job.id] = CommandProcess(job, _HIDDEN, own_session=True)
            except OSError as error:
                # a full disk, or no such program: the other points may do better
                self._ended.append(Outcome(job.id, 1, f"could not be started: {error}"))


def cards() -> list[str]:
    """The CUDA devices that this process may use, as `CUDA_VISIBLE_DEVICES` names them; found without torch."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [card.strip() for card in visible.split(",") if card.strip() not in ("", "-1")]
    numbers = (path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*"))
    return sorted((number for number in numbers if number.isdigit()), key=int)
