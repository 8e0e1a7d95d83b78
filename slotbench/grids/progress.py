"""The progress of a grid while it runs: bars on a terminal, lines elsewhere, and how long it will still take."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from types import TracebackType
from typing import Any

from slotbench.grids.driver import Listener, Progress
from slotbench.grids.engines.base import Outcome
from slotbench.grids.expansion import Grid, Point
from slotbench.grids.grid_folder import GridFolder
from slotbench.grids.ledger import STATES, PointStatus, State
from slotbench.grids.status import counts, duration, number
from slotbench.text import one_line

__all__ = ["ProgressDisplay", "Remaining", "make_listener", "print_failure", "remaining_seconds"]

_LINE_EVERY = 60.0
_COLOURS: dict[State, str] = {
    "done": "green",
    "diverged": "red",
    "running": "cyan",
    "failed": "red",
    "interrupted": "yellow",
    "killed": "yellow",
    "waiting": "bright_black",
}
_FIRST = 10
"""Steps before which the speed says nothing: the first ones compile kernels."""


def make_listener(grid: Grid, folder: GridFolder, chosen: Sequence[Point], jobs: int | None) -> ProgressDisplay:
    """Bars where standard output is a terminal, lines elsewhere."""
    return _Bars(grid, folder, chosen, jobs) if sys.stdout.isatty() else _Lines(grid, folder, chosen, jobs)


def print_failure(grid_folder: GridFolder, point: Point, what: str, console: Any = None) -> None:
    """Prints a message about a point, and the last lines of its log, dimmed."""
    from rich.console import Console
    from rich.text import Text

    console = console or Console(highlight=False)
    folder = grid_folder.point(point.id)
    console.print(Text.assemble((one_line(point.name), "bold"), one_line(f" {what}")), soft_wrap=True)
    for line in folder.last_lines():
        console.print(Text(f"    {one_line(line)}", style="dim"), soft_wrap=True)
    if folder.log.exists():
        console.print(Text(one_line(f"    all of it: {folder.log}"), style="dim"), soft_wrap=True)


def _ending(state: State, outcome: Outcome, took: float | None) -> str:
    why = outcome.reason
    if not why and outcome.exit_code is not None and state != "done":
        code = outcome.exit_code
        why = f"signal {-code}" if code < 0 else f"exit code {code}"
    words = state if state in ("failed", "done", "diverged") else f"was {state}"
    took_words = f" after {duration(took)}" if took is not None else ""
    return f"{words}{took_words}" + (f" ({why})" if why else "")


class ProgressDisplay(Listener):
    """The display of a grid's progress, within a `with` block; what bars and lines share."""

    def __init__(self, grid: Grid, folder: GridFolder, chosen: Sequence[Point], jobs: int | None) -> None:
        self._grid, self._folder, self._jobs = grid, folder, jobs or 1
        self._began: dict[str, float] = {}
        statuses = [folder.point(point.id).status() for point in chosen]
        self._before = [status.seconds for status in statuses if status.state == "done" and status.seconds]

    def __enter__(self) -> None:
        """Nothing to set up."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to put back."""

    def _took(self, point: Point) -> float | None:
        began = self._began.pop(point.id, None)
        return None if began is None else time.monotonic() - began

    def _statuses(self, progress: Progress) -> list[PointStatus]:
        metrics = self._grid.file.metrics
        return [self._folder.point(point_id).status(metrics) for point_id in progress.running()]

    def _eta(self, progress: Progress, running: Sequence[PointStatus]) -> float | None:
        moment = time.monotonic()
        remaining = [
            Remaining(
                elapsed=moment - progress.began[status.id] if status.id in progress.began else None,
                step=status.step,
                total_steps=status.total_steps,
                seconds_per_step=status.seconds_per_step,
            )
            for status in running
        ]
        finished = progress.durations or self._before
        return remaining_seconds(finished, remaining, progress.count("waiting"), self._jobs)


class _Lines(ProgressDisplay):
    """A line per event, and one per minute."""

    def __init__(self, grid: Grid, folder: GridFolder, chosen: Sequence[Point], jobs: int | None) -> None:
        super().__init__(grid, folder, chosen, jobs)
        self._said = time.monotonic()

    def began(self, point: Point, where: str) -> None:
        self._began[point.id] = time.monotonic()
        print(one_line(f"{point.name} has begun{f' ({where})' if where else ''}"), flush=True)

    def ended(self, point: Point, state: State, outcome: Outcome) -> None:
        what = _ending(state, outcome, self._took(point))
        if state in ("failed", "diverged", "killed"):
            print_failure(self._folder, point, what)
            sys.stdout.flush()
        else:
            print(one_line(f"{point.name} {what if state != 'done' else 'is ' + what}"), flush=True)

    def tick(self, progress: Progress) -> None:
        if time.monotonic() - self._said < _LINE_EVERY:
            return
        self._said = time.monotonic()
        running = self._statuses(progress)
        eta = duration(self._eta(progress, running))
        states: dict[State, int] = {state: progress.count(state) for state in STATES}
        print(f"{counts(states)}{f'; about {eta} to go' if eta else ''}", flush=True)
        for status in running:
            print(one_line(f"  {status.id.rpartition('-')[0]}: {_how(status)}"), flush=True)


class _Bars(ProgressDisplay):
    """One bar for the grid, and a line per running point."""

    def __init__(self, grid: Grid, folder: GridFolder, chosen: Sequence[Point], jobs: int | None) -> None:
        super().__init__(grid, folder, chosen, jobs)
        from rich.console import Console
        from rich.live import Live

        self._console = Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def __enter__(self) -> None:
        self._live.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def began(self, point: Point, where: str) -> None:
        self._began[point.id] = time.monotonic()

    def ended(self, point: Point, state: State, outcome: Outcome) -> None:
        from rich.text import Text

        what = _ending(state, outcome, self._took(point))
        if state in ("failed", "diverged", "killed"):
            print_failure(self._folder, point, what, self._console)
        else:
            status = self._folder.point(point.id).status(self._grid.file.metrics)
            score = f"  {status.headline[0]} {number(status.headline[1])}" if status.headline else ""
            self._console.print(
                Text.assemble((one_line(point.name), _COLOURS[state]), one_line(f" {what}{score}")), soft_wrap=True
            )

    def tick(self, progress: Progress) -> None:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        running = self._statuses(progress)
        total = len(progress.states)
        partly = sum(_share(status) for status in running)
        eta = duration(self._eta(progress, running))
        states: dict[State, int] = {state: progress.count(state) for state in STATES}
        top = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=total, completed=progress.count("done", "failed", "diverged") + partly, width=30)
        top.add_row(
            Text(one_line(self._grid.name), style="bold"),
            bar,
            Text(f"{progress.count('done')}/{total}"),
            Text(f"{counts(states)}{f'; about {eta} to go' if eta else ''}"),
        )
        below = Table.grid(padding=(0, 1))
        for status in running:
            below.add_row(
                "  ",
                Text(one_line(status.id.rpartition("-")[0]), style="cyan", overflow="ellipsis", no_wrap=True),
                ProgressBar(total=1.0, completed=_share(status), width=12),
                Text(one_line(_how(status)), no_wrap=True),
            )
        self._live.update(Group(top, below), refresh=True)


def _share(status: PointStatus) -> float:
    return min(1.0, status.step / status.total_steps) if status.step and status.total_steps else 0.0


def _how(status: PointStatus) -> str:
    """Step, speed and score of a running point."""
    if status.step is None:
        return "starting"
    out = [f"step {status.step}{f'/{status.total_steps}' if status.total_steps else ''}"]
    if status.seconds_per_step:
        out.append(f"{1 / status.seconds_per_step:.3g} steps/s")
    if status.headline:
        out.append(f"{status.headline[0]} {number(status.headline[1])}")
    return ", ".join(out)


@dataclass(frozen=True)
class Remaining:
    """Progress and speed of a running point.

    Attributes:
        elapsed: seconds since it was started; None if unknown.
        step: optimiser steps done; None before the first.
        total_steps: that are to be done, if known.
        seconds_per_step: if known.
    """

    elapsed: float | None
    step: int | None
    total_steps: int | None
    seconds_per_step: float | None

    def rest(self, typical: float | None) -> float | None:
        """Seconds until it ends: from its own speed, or else from how long a point takes."""
        if self.step and self.total_steps and self.step >= min(_FIRST, self.total_steps // 10):
            left = max(0, self.total_steps - self.step)
            if self.seconds_per_step:
                return left * self.seconds_per_step
            if self.elapsed:
                return left * self.elapsed / self.step
        if typical is None:
            return None
        return max(0.0, typical - (self.elapsed or 0.0))

    def whole(self) -> float | None:
        """Seconds that it takes from its beginning to its end, if its speed is known; a resumed one began earlier."""
        rest = self.rest(None)
        if rest is None or self.elapsed is None:
            return None
        return max(rest + self.elapsed, (self.total_steps or 0) * (self.seconds_per_step or 0.0))


def remaining_seconds(finished: Sequence[float], running: Sequence[Remaining], waiting: int, jobs: int) -> float | None:
    """Seconds until the last point ends.

    Args:
        finished: seconds that points have taken.
        running: those that run.
        waiting: how many have not begun.
        jobs: how many run at the same time.

    Returns:
        None as long as nothing is known.
    """
    wholes = [whole for point in running if (whole := point.whole()) is not None]
    typical = fmean(finished) if finished else (fmean(wholes) if wholes else None)
    rests = [point.rest(typical) for point in running]
    if typical is None and (waiting or None in rests):
        return None
    known = [rest for rest in rests if rest is not None]
    work = sum(known) + waiting * (typical or 0.0)
    return max([work / max(1, jobs), *known], default=0.0)
