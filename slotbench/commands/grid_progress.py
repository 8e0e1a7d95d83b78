"""How a grid gets on, while it runs: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from slotbench.commands.grid_opening import OpenGrid
from slotbench.commands.grid_words import COLOURS, counts, duration, number
from slotbench.grids.driver import Listener, Progress
from slotbench.grids.engine import Outcome
from slotbench.grids.estimate import Remaining, remaining_seconds
from slotbench.grids.expansion import Point
from slotbench.grids.ledger import STATES, PointStatus, State
from slotbench.text import one_line

__all__ = ["Shown", "make_listener", "print_failure"]

_LINE_EVERY = 60.0


def make_listener(opened: OpenGrid, chosen: Sequence[Point], jobs: int | None) -> Shown:
    """The one that fits what we print to."""
    return _Bars(opened, chosen, jobs) if sys.stdout.isatty() else _Lines(opened, chosen, jobs)


def print_failure(opened: OpenGrid, point: Point, what: str, console: Any = None) -> None:
    """What has happened to a point, and the last lines of its log, dimmed."""
    from rich.console import Console
    from rich.text import Text

    console = console or Console(highlight=False)
    folder = opened.folder.point(point.id)
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


class Shown(Listener):
    """Shows how a grid gets on from entering to leaving it; this is what both ways of showing need."""

    def __init__(self, opened: OpenGrid, chosen: Sequence[Point], jobs: int | None) -> None:
        self._opened, self._chosen, self._jobs = opened, chosen, jobs or 1
        self._began: dict[str, float] = {}
        self._before = [
            seconds
            for point in chosen
            if (result := opened.folder.point(point.id).result()) and (seconds := result.get("seconds"))
        ]

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
        metrics = self._opened.grid.file.metrics
        return [self._opened.folder.point(point_id).status(metrics) for point_id in progress.running()]

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


class _Lines(Shown):
    """A line per event, and one per minute."""

    def __init__(self, opened: OpenGrid, chosen: Sequence[Point], jobs: int | None) -> None:
        super().__init__(opened, chosen, jobs)
        self._said = time.monotonic()

    def began(self, point: Point, where: str) -> None:
        self._began[point.id] = time.monotonic()
        print(one_line(f"{point.name} has begun{f' ({where})' if where else ''}"), flush=True)

    def ended(self, point: Point, state: State, outcome: Outcome) -> None:
        what = _ending(state, outcome, self._took(point))
        if state in ("failed", "diverged", "killed"):
            print_failure(self._opened, point, what)
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


class _Bars(Shown):
    """One bar for the grid, and a line per running point."""

    def __init__(self, opened: OpenGrid, chosen: Sequence[Point], jobs: int | None) -> None:
        super().__init__(opened, chosen, jobs)
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
            print_failure(self._opened, point, what, self._console)
        else:
            status = self._opened.folder.point(point.id).status(self._opened.grid.file.metrics)
            score = f"  {status.headline[0]} {number(status.headline[1])}" if status.headline else ""
            self._console.print(
                Text.assemble((one_line(point.name), COLOURS[state]), one_line(f" {what}{score}")), soft_wrap=True
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
            Text(one_line(self._opened.grid.name), style="bold"),
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
