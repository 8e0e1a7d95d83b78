"""The driver of a grid: starts what is not done, sees how it ends, and writes the ledger. Prints nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence

from slotbench.grids.engines import Engine, Job, Outcome, TimeLimit
from slotbench.grids.expansion import Point
from slotbench.grids.grid_folder import GridFolder
from slotbench.grids.ledger import RESUMABLE, State, state_after
from slotbench.grids.progress import Display, Progress

__all__ = ["Driver"]

_LOOK = 0.5
"""Seconds between two looks at the files of what runs elsewhere, and between two ticks of the listener."""


class Driver:
    """Runs points of a grid with an engine until the limit, and tells the listener."""

    def __init__(self, folder: GridFolder, engine: Engine, listener: Display, limit: TimeLimit | None = None) -> None:
        self._folder, self._engine, self._listener = folder, engine, listener
        self._limit = limit or TimeLimit()
        self._points: dict[str, Point] = {}
        self._jobs: dict[str, Job] = {}
        self._attempts: dict[str, int] = {}
        self._submitted: set[str] = set()
        self._elsewhere: set[str] = set()
        self._begun: set[str] = set()
        self.progress = Progress({})

    def run(self, points: Sequence[Point], jobs: Sequence[Job], states: dict[str, State]) -> Progress:
        """Runs jobs of these points to their end, or the limit; waits for points that run already."""
        self._points, self._jobs = {point.id: point for point in points}, {job.id: job for job in jobs}
        self.progress = Progress({point.id: states[point.id] for point in points})
        self._elsewhere = {point.id for point in points if states[point.id] == "running"}
        self._engine.occupied = len(self._elsewhere)
        try:
            self._submit([job for job in jobs if job.id not in self._elsewhere])
            self._loop()
        except KeyboardInterrupt:
            self._stop()
            raise
        return self.progress

    def _stop(self) -> None:
        try:
            self._engine.cancel()
        finally:
            self._collect()

    def _loop(self) -> None:
        looked = -_LOOK
        while True:
            self._collect()
            moment = time.monotonic()
            if moment - looked >= _LOOK:
                looked = moment
                self._look_elsewhere()
                self._listener.tick(self.progress)
            if not self._submitted and not self._elsewhere:
                return
            is_idle = not self._engine.running() and not self._elsewhere
            if moment >= self._limit.stop or (is_idle and moment > self._limit.last_start):
                self._stop()
                self.progress.out_of_time = self.progress.count(*RESUMABLE, "running") > 0
                return
            time.sleep(self._engine.patience)

    def _submit(self, jobs: Sequence[Job]) -> None:
        self._submitted |= {job.id for job in jobs}
        self.progress.states |= {job.id: "waiting" for job in jobs}
        if jobs:
            self._engine.submit(jobs)

    def _collect(self) -> None:
        """Records the jobs that have ended, and those that have begun."""
        for outcome in self._engine.poll():
            self._end(outcome)
        for point_id, where in self._engine.running().items():
            if point_id not in self._attempts and point_id in self._submitted:
                self._begin(point_id, where)

    def _begin(self, point_id: str, where: str) -> None:
        try:
            self._attempts[point_id] = self._folder.point(point_id).begin(self._engine.name, where)
        except OSError:
            self._attempts[point_id] = 0  # its disk is full; how it ends is known all the same
        self._begun.add(point_id)
        self.progress.states[point_id] = "running"
        self.progress.began[point_id] = time.monotonic()
        self._listener.began(self._points[point_id], where)

    def _end(self, outcome: Outcome) -> None:
        folder = self._folder.point(outcome.id)
        self._submitted.discard(outcome.id)
        if outcome.id not in self._attempts:
            self._begin(outcome.id, "")
        number = self._attempts.pop(outcome.id)
        if number:
            try:
                folder.end(number, outcome.exit_code, outcome.reason)
            except OSError as error:
                outcome = Outcome(outcome.id, outcome.exit_code, f"{outcome.reason} {error}".strip())
        if folder.ended() is None and outcome.exit_code not in (0, None) and folder.is_running():
            # another process had started it first, or its workers have not ended yet
            self._elsewhere.add(outcome.id)
            self._engine.occupied = len(self._elsewhere)
            return
        self._finish(outcome, folder.ended() or state_after(outcome.exit_code, outcome.reason))

    def _look_elsewhere(self) -> None:
        """Checks points that another process runs: counts those that are over, and starts those that were cut off."""
        for point_id in sorted(self._elsewhere):
            state = self._folder.point(point_id).state()
            if state == "running":
                continue
            self._elsewhere.discard(point_id)
            self._engine.occupied = len(self._elsewhere)
            if state in RESUMABLE and point_id in self._jobs.keys() - self._begun:
                self._submit([self._jobs[point_id]])
            else:
                self._finish(Outcome(point_id, None, "in another process"), state)

    def _finish(self, outcome: Outcome, state: State) -> None:
        began = self.progress.began.pop(outcome.id, None)
        self.progress.states[outcome.id] = state
        self._listener.ended(self._points[outcome.id], state, outcome, began and time.monotonic() - began)
