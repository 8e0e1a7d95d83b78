"""The status of a grid in words: the states of its points as a table, as a line of counts, or as JSON."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from slotbench.grids.expansion import Grid, Point, Stage
from slotbench.grids.grid_folder import GridFolder
from slotbench.grids.ledger import STATES, PointStatus, State
from slotbench.grids.protocol import Choice, choice_lines, choices, protocol_record
from slotbench.grids.values import as_label
from slotbench.text import one_line

__all__ = ["counts", "duration", "number", "points", "stage_name", "status_lines", "status_record"]

_LONGEST = 40
_CODES: Mapping[str, int] = {
    "done": 32,
    "diverged": 31,
    "running": 36,
    "failed": 31,
    "interrupted": 33,
    "killed": 33,
    "waiting": 90,
}


def status_lines(
    grid: Grid, folder: GridFolder, chosen: Sequence[Point], found: Sequence[PointStatus]
) -> Iterator[str]:
    """The table, then why points have failed, and the counts."""
    numbers = {point.id: str(index) for index, point in enumerate(grid.points, 1)}
    keys = [key for key in grid.keys if any(key in point.labels for point in chosen)]
    headlines = {status.headline[0] for status in found if status.headline}
    score = headlines.pop() if len(headlines) == 1 else "headline"
    rows = [["", *keys, "state", "step", "duration", score]]
    for point, status in zip(chosen, found, strict=True):
        labels = [_cut(point.labels.get(key, "")) for key in keys]
        headline = f"{status.headline[0]} " * bool(headlines) + number(status.headline[1]) if status.headline else ""
        rows.append([numbers[point.id], *labels, status.state, _step(status), duration(status.seconds), headline])
    rows = [[one_line(cell) for cell in row] for row in rows]
    lines = list(_columns(rows, left=range(1, len(keys) + 2), state=len(keys) + 1))
    if grid.file.protocol is None:
        yield from lines
    else:
        yield from _in_stages(grid, choices(grid, folder), chosen, lines)
    for point, status in zip(chosen, found, strict=True):
        if status.error:
            yield f"{numbers[point.id]} {status.state}: {one_line(status.error)}"
    yield f"{one_line(folder.path)}: {points(len(found))}, {counts(_counted(found))}"
    if others := folder.other_folders(numbers):
        shown = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
        folders = f"{len(others)} more folder{'s' * (len(others) != 1)}"
        yield f"{folders} of an earlier version of the file: {one_line(shown)}"


def status_record(
    grid: Grid, folder: GridFolder, chosen: Sequence[Point], found: Sequence[PointStatus]
) -> dict[str, Any]:
    """The same for programs."""
    rows = []
    for point, status in zip(chosen, found, strict=True):
        row = {**asdict(status), "folder": str(folder.path / point.id), "labels": point.labels}
        row["headline"] = dict([status.headline]) if status.headline else None
        row |= {"stage": point.stage} if point.stage else {}
        rows.append(row)
    earlier = folder.other_folders(point.id for point in grid.points)
    record = {
        "name": grid.name,
        "folder": str(folder.path),
        "counts": _counted(found),
        "points": rows,
        "earlier": earlier,
    }
    chosen_values = protocol_record(grid, choices(grid, folder))
    return record if chosen_values is None else {**record, "protocol": chosen_values}


def stage_name(grid: Grid, stage: Stage) -> str:
    """A description of a stage of a grid with a protocol."""
    protocol = grid.file.protocol
    if protocol is None:
        return ""
    if stage == "choose":
        where = "".join(f" at {axis} {as_label(value)}" for axis, value in protocol.at.items())
        several = len(protocol.seeds) > 1
        on = (
            f"seeds {', '.join(map(str, protocol.seeds))}, which are"
            if several
            else f"seed {protocol.seeds[0]}, which is"
        )
        mean = "the mean of " if several else ""
        return one_line(f"{protocol.key} is chosen by {mean}{protocol.metric}{where} on {on} not reported")
    return f"the reported seeds, {', '.join(map(str, grid.file.seeds))}, with what was chosen"


def _stage_lines(grid: Grid, found: Sequence[Choice]) -> Iterator[str]:
    """The choices so far, and the number of points that follow from open ones."""
    # of a variant whose first candidate is not done there is nothing to say
    begun = [choice for choice in found if any(score is not None for score in choice.scores)]
    yield from map(one_line, choice_lines(grid, begun))
    if still_open := [choice for choice in found if not choice.is_settled]:
        left = points(sum(choice.following for choice in still_open))
        yield f"{left} of reported seeds will follow from {points(len(still_open), 'variant')} without a choice yet"


def counts(states: dict[State, int]) -> str:
    """ "3 done, 1 failed, 8 waiting": only what there is."""
    return ", ".join(f"{count} {state}" for state, count in states.items() if count) or "none"


def duration(seconds: float | None) -> str:
    """ "4.2 s", "12 min", "3 h 05 min"; nothing for None."""
    if seconds is None or not math.isfinite(seconds):
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def number(value: float) -> str:
    """Four significant digits."""
    return f"{value:.4g}"


def points(count: int, what: str = "point") -> str:
    """ "1 point", "2 points"."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def _in_stages(grid: Grid, found: Sequence[Choice], chosen: Sequence[Point], lines: Sequence[str]) -> Iterator[str]:
    """The lines of a table below a heading for each stage, and what was chosen between the two."""
    heading, *rows = lines
    stages: tuple[Stage, ...] = ("choose", "report")
    for number, stage in enumerate(stages, 1):
        own = [row for row, point in zip(rows, chosen, strict=True) if point.stage == stage]
        yield f"stage {number} of 2: {stage_name(grid, stage)}"
        yield from [heading, *own] if own else ["(no points yet)"]
        if stage == "choose":
            yield from _stage_lines(grid, found)


def _counted(found: Sequence[PointStatus]) -> dict[State, int]:
    return {state: sum(status.state == state for status in found) for state in STATES}


def _columns(rows: Sequence[Sequence[str]], left: Iterable[int], state: int) -> Iterator[str]:
    """Lines of a table; by hand, as a table of rich's takes seconds for a thousand rows."""
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left = set(left)
    for row_index, row in enumerate(rows):
        cells = [
            cell.ljust(width) if index in left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        if coloured and row_index == 0:
            cells = [f"\033[1m{cell}\033[0m" for cell in cells]
        elif coloured:
            cells[state] = f"\033[{_CODES[row[state]]}m{cells[state]}\033[0m"
        yield "  ".join(cells).rstrip()


def _cut(label: str) -> str:
    return label if len(label) <= _LONGEST else f"{label[: _LONGEST - 1]}…"


def _step(status: PointStatus) -> str:
    if status.step is None:
        return ""
    if status.total_steps is None or status.state == "done":
        return str(status.step)
    return f"{status.step}/{status.total_steps}"
