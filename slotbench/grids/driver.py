"""The driver of a grid: starts what is not done, sees how it ends, and writes the ledger. Prints nothing."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from slotbench.errors import FileError
from slotbench.grids.engines.base import Engine, Job, Outcome, TimeLimit
from slotbench.grids.expansion import Point
from slotbench.grids.grid_folder import GridFolder
from slotbench.grids.ledger import RESUMABLE, State, state_after

__all__ = ["Driver", "Listener", "Progress"]

_LOOK = 0.5
"""Seconds between two looks at the files of what runs elsewhere, and between two ticks of the listener."""


@dataclass
class Progress:
    """The states of the points, as the driver knows them.

    Attributes:
        states: of every point, by its id.
        where: the running ones run.
        began: when the running ones were started by this driver (monotonic clock).
        durations: in seconds, over all attempts, of the points that this driver has brought to their end.
        out_of_time: whether the limit has ended the run with points left.
    """

    states: dict[str, State]
    where: dict[str, str] = field(default_factory=dict)
    began: dict[str, float] = field(default_factory=dict)
    durations: list[float] = field(default_factory=list)
    out_of_time: bool = False

    def count(self, *states: State) -> int:
        """How many points are in one of these states."""
        return sum(state in states for state in self.states.values())

    def running(self) -> list[str]:
        """Ids of the points that run, in the order of the grid."""
        return [point_id for point_id, state in self.states.items() if state == "running"]


class Listener(ABC):
    """The interface of a listener that a driver notifies of its points."""

    @abstractmethod
    def began(self, point: Point, where: str) -> None:
        """A point has begun."""

    @abstractmethod
    def ended(self, point: Point, state: State, outcome: Outcome) -> None:
        """A point has ended, well or not."""

    @abstractmethod
    def tick(self, progress: Progress) -> None:
        """Some time has passed."""


class Driver:
    """Runs points with an engine.

    Args:
        folder: of the grid.
        engine: runs them.
        engine_name: for the ledger.
        listener: is notified of what happens.
        patience: seconds between two questions to the engine.
        limit: of the engine's jobs, at which the run ends.
    """

    def __init__(
        self,
        folder: GridFolder,
        engine: Engine,
        engine_name: str,
        listener: Listener,
        patience: float = 0.02,
        limit: TimeLimit | None = None,
    ) -> None:
        self._folder, self._engine, self._engine_name = folder, engine, engine_name
        self._listener, self._patience, self._limit = listener, patience, limit or TimeLimit()
        self._points: dict[str, Point] = {}
        self._attempts: dict[str, int] = {}
        self._jobs: dict[str, Job] = {}
        self._submitted: set[str] = set()
        self._elsewhere: set[str] = set()
        self._held: dict[str, list[Job]] = {}
        self.progress = Progress({})

    def run(self, points: Sequence[Point], jobs: Sequence[Job], states: dict[str, State]) -> Progress:
        """Runs the jobs until each of them has ended, or the limit; waits for points that run already.

        Args:
            points: all that are wanted, done ones too.
            jobs: of those that are to be started if they do not run already; their folders exist.
            states: of the points, as they are now.

        Raises:
            EngineError: the engine cannot work here.
            KeyboardInterrupt: the jobs have been asked to stop, and have stopped or are saving.
        """
        self._points = {point.id: point for point in points}
        self._jobs = {job.id: job for job in jobs}
        self.progress = Progress({point.id: states[point.id] for point in points})
        self._elsewhere = {point.id for point in points if states[point.id] == "running"}
        for point_id in self._elsewhere:
            self.progress.where[point_id] = "another process"
        try:
            self._occupy()
            self._submit_or_hold([job for job in jobs if job.id not in self._elsewhere])
            self._loop()
        except KeyboardInterrupt:
            self._stop()
            raise
        return self.progress

    def _stop(self) -> None:
        """Ends what runs; begins nothing any more."""
        self._held.clear()
        try:
            self._engine.cancel()
        finally:
            self._collect()

    def _loop(self) -> None:
        looked = ticked = -_LOOK
        while True:
            self._collect()
            moment = time.monotonic()
            if self._elsewhere and moment - looked >= _LOOK:
                looked = moment
                self._look_elsewhere()
            if moment - ticked >= _LOOK:
                ticked = moment
                self._listener.tick(self.progress)
            if not self._submitted and not self._elsewhere:
                self._listener.tick(self.progress)
                return
            is_idle = not self._engine.running() and not self._elsewhere
            if moment >= self._limit.stop or (is_idle and moment > self._limit.last_start):
                self._stop()
                self.progress.out_of_time = self.progress.count(*RESUMABLE, "running") > 0
                return
            time.sleep(self._patience)

    def _submit_or_hold(self, jobs: Sequence[Job]) -> None:
        """Submits jobs, except those whose point starts from one that is not done."""
        ready = []
        for job in jobs:
            after = self._points[job.id].after
            if after and self.progress.states.get(after) != "done" and self._folder.point(after).ended() != "done":
                self._held.setdefault(after, []).append(job)
            else:
                ready.append(job)
        self._submit(ready)

    def _submit(self, jobs: Sequence[Job]) -> None:
        if not jobs:
            return
        self._submitted |= {job.id for job in jobs}
        for job in jobs:
            self.progress.states[job.id] = "waiting"
        self._engine.submit(jobs)

    def _collect(self) -> None:
        """Records the jobs that have ended."""
        for outcome in self._engine.poll():
            self._end(outcome)
        for point_id, where in self._engine.running().items():
            if point_id not in self._attempts and point_id in self._submitted:
                self._begin(point_id, where)

    def _begin(self, point_id: str, where: str) -> None:
        try:
            self._attempts[point_id] = self._folder.point(point_id).begin(self._engine_name, where)
        except (OSError, FileError):
            self._attempts[point_id] = 0  # its disk is full; how it ends is known all the same
        self.progress.states[point_id] = "running"
        self.progress.where[point_id] = where
        self.progress.began[point_id] = time.monotonic()
        self._listener.began(self._points[point_id], where)

    def _end(self, outcome: Outcome) -> None:
        folder = self._folder.point(outcome.id)
        self._submitted.discard(outcome.id)
        if outcome.id not in self._attempts and outcome.exit_code is None and folder.is_running():
            # another process has started it first
            self._elsewhere.add(outcome.id)
            self.progress.states[outcome.id] = "running"
            self._occupy()
            return
        if outcome.id not in self._attempts:
            self._begin(outcome.id, "")
        number = self._attempts.pop(outcome.id)
        try:
            if number:
                folder.end(number, outcome.exit_code, outcome.reason)
        except (OSError, FileError) as error:
            outcome = replace(outcome, reason=f"{outcome.reason}; {error}".lstrip("; "))
        began = self.progress.began.pop(outcome.id)
        self._finish(outcome, folder.ended() or state_after(outcome.exit_code, outcome.reason))
        if self.progress.states[outcome.id] == "done":
            self.progress.durations.append(max(folder.status().seconds or 0.0, time.monotonic() - began))

    def _look_elsewhere(self) -> None:
        """Checks points that another process runs: counts those that are over, and starts those that were cut off."""
        for point_id in sorted(self._elsewhere):
            folder = self._folder.point(point_id)
            if folder.is_running():
                continue
            self._elsewhere.discard(point_id)
            folder.settle()
            self._occupy()
            if folder.state() in RESUMABLE and point_id in self._jobs:
                self._submit([self._jobs[point_id]])
            else:
                self._finish(Outcome(point_id, None, "in another process"), folder.state(over=True))

    def _occupy(self) -> None:
        self._engine.occupied = len(self._elsewhere)

    def _finish(self, outcome: Outcome, state: State) -> None:
        self.progress.states[outcome.id] = state
        self.progress.where.pop(outcome.id, None)
        self._listener.ended(self._points[outcome.id], state, outcome)
        # those that start from a point that is not done stay as they are: waiting
        held = self._held.pop(outcome.id, [])
        if state == "done":
            self._submit(held)
