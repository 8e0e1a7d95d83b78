"""The progress of a grid while it runs: bars on a terminal, lines elsewhere, by rich."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from slotbench.errors import one_line
from slotbench.grids.engines import Outcome
from slotbench.grids.expansion import Grid, Point
from slotbench.grids.grid_folder import GridFolder
from slotbench.grids.ledger import STATES, PointStatus, State
from slotbench.grids.status import counts, duration

__all__ = ["Display", "Progress", "print_failure"]

_LINE_EVERY = 60.0


@dataclass
class Progress:
    """States of points by id, when those that run began (monotonic clock), and whether the limit left any."""

    states: dict[str, State]
    began: dict[str, float] = field(default_factory=dict)
    out_of_time: bool = False

    def count(self, *states: State) -> int:
        """How many points are in one of these states."""
        return sum(state in states for state in self.states.values())


def print_failure(folder: GridFolder, point: Point, what: str) -> None:
    """Prints a message about a point, and the last lines of its log."""
    print(f"{point.name} {what}", flush=True)
    log = folder.point(point.id)
    for line in log.last_lines():
        print(f"    {line}", flush=True)
    if log.log.exists():
        print(f"    all of it: {log.log}", flush=True)


class Display:
    """A bar for the grid and one for each running point; where standard output is no terminal, a line per event."""

    def __init__(self, grid: Grid, folder: GridFolder, chosen: Sequence[Point]) -> None:
        from rich import progress

        self._grid, self._folder, self._said = grid, folder, time.monotonic()
        columns = (
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.TextColumn("{task.fields[how]}", markup=False),
            progress.TimeRemainingColumn(compact=True),
        )
        self._bars = progress.Progress(*columns, transient=True)
        self._whole = self._bars.add_task(grid.name, total=len(chosen), how="")
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> None:
        if self._bars.console.is_terminal:
            self._bars.start()

    def __exit__(self, *error: object) -> None:
        self._bars.stop()

    def began(self, point: Point, where: str) -> None:
        """Adds a bar."""
        if not self._bars.console.is_terminal:
            print(f"{point.name} has begun ({where})", flush=True)
        self._tasks[point.id] = self._bars.add_task(point.name, total=1.0, how="starting")

    def ended(self, point: Point, state: State, outcome: Outcome, seconds: float | None) -> None:
        """Says how, so many seconds after it began, with the end of the log of one that has not gone well."""
        if point.id in self._tasks:
            self._bars.remove_task(self._tasks.pop(point.id))
        why = outcome.reason or (f"exit code {outcome.exit_code}" if outcome.exit_code else "")
        what = f"{state}{f' after {duration(seconds)}' if seconds else ''}{f' ({why})' if why else ''}"
        if state in ("failed", "diverged", "killed"):
            print_failure(self._folder, point, what)
        else:
            print(f"{point.name} {what}{_score(self._status(point.id))}", flush=True)

    def tick(self, progress: Progress) -> None:
        """Moves the bars."""
        found = {point_id: self._status(point_id) for point_id in self._tasks}
        shares = {
            point_id: min(1.0, (status.step or 0) / status.total_steps) if status.total_steps else 0.0
            for point_id, status in found.items()
        }
        ended = progress.count("done", "failed", "diverged")
        states = counts({state: progress.count(state) for state in STATES})
        how = f"{progress.count('done')}/{len(progress.states)}: {states}"
        self._bars.update(self._whole, completed=ended + sum(shares.values()), how=how)
        for point_id, status in found.items():
            self._bars.update(self._tasks[point_id], completed=shares[point_id], how=_how(status))
        if not self._bars.console.is_terminal and time.monotonic() - self._said >= _LINE_EVERY:
            self._said = time.monotonic()
            print(
                one_line(f"{states}; {'; '.join(f'{key}: {_how(status)}' for key, status in found.items())}"),
                flush=True,
            )

    def _status(self, point_id: str) -> PointStatus:
        return self._folder.point(point_id).status(self._grid.file.metrics)


def _how(status: PointStatus) -> str:
    """Step, speed and score of a running point."""
    if status.step is None:
        return "starting"
    speed = f", {1 / status.seconds_per_step:.3g} steps/s" if status.seconds_per_step else ""
    return f"step {status.step}{f'/{status.total_steps}' if status.total_steps else ''}{speed}{_score(status)}"


def _score(status: PointStatus) -> str:
    return f", {status.headline[0]} {status.headline[1]:.4g}" if status.headline else ""
