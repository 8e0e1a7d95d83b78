"""The status of a grid in words: the states of its points as a table, and as a line of counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from slotbench.errors import one_line
from slotbench.grids.expansion import Grid, Point, Stage
from slotbench.grids.grid_file import as_label
from slotbench.grids.grid_folder import GridFolder
from slotbench.grids.ledger import STATES, PointStatus, State
from slotbench.grids.protocol import choice_lines, choices

__all__ = ["counts", "duration", "points", "stage_name", "status_lines"]

_LONGEST = 40


def status_lines(
    grid: Grid, folder: GridFolder, chosen: Sequence[Point], found: Sequence[PointStatus]
) -> Iterator[str]:
    """The table, then why points have failed, and the counts."""
    numbers = {point.id: str(place) for place, point in enumerate(grid.points, 1)}
    keys = [key for key in grid.keys if any(key in point.labels for point in chosen)]
    rows = [["", *keys, "state", "step", "duration", "score"]]
    for point, status in zip(chosen, found, strict=True):
        labels = [one_line(point.labels.get(key, ""))[:_LONGEST] for key in keys]
        step = "" if status.step is None else str(status.step)
        if step and status.total_steps and status.state != "done":
            step += f"/{status.total_steps}"
        score = f"{status.headline[0]} {status.headline[1]:.4g}" if status.headline else ""
        rows.append([numbers[point.id], *labels, status.state, step, duration(status.seconds), score])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    heading, *table = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
    stages: tuple[Stage, ...] = ("choose", "report") if grid.file.protocol else ("",)
    for number, stage in enumerate(stages, 1):
        own = [line for line, point in zip(table, chosen, strict=True) if point.stage == stage]
        if stage:
            yield f"stage {number} of 2: {stage_name(grid, stage)}"
        yield from [heading, *own] if own else ["(no points yet)"]
        if stage == "choose":
            yield from _choices_so_far(grid, folder)
    for status in found:
        if status.error:
            yield f"{numbers[status.id]} {status.state}: {one_line(status.error)}"
    yield f"{folder.path}: {points(len(found))}, {counts(Counter(status.state for status in found))}"


def stage_name(grid: Grid, stage: Stage) -> str:
    """A description of a stage of a grid with a protocol."""
    protocol = grid.file.protocol
    if protocol is None:
        return ""
    if stage == "choose":
        where = "".join(f" at {axis} {as_label(value)}" for axis, value in protocol.at.items())
        seeds = f"seed{'s' * (len(protocol.seeds) > 1)} {', '.join(map(str, protocol.seeds))}"
        return f"{protocol.key} is chosen by {protocol.metric}{where} on {seeds}, not reported"
    return f"the reported seeds, {', '.join(map(str, grid.file.seeds))}, with what was chosen"


def counts(states: Mapping[State, int]) -> str:
    """ "3 done, 1 failed, 8 waiting": only what there is."""
    return ", ".join(f"{states[state]} {state}" for state in STATES if states.get(state)) or "none"


def duration(seconds: float | None) -> str:
    """ "4.2 s", "12 min", "3 h 05 min"; nothing for None."""
    if seconds is None or seconds < 60:
        return "" if seconds is None else f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def points(count: int, what: str = "point") -> str:
    """ "1 point", "2 points"."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def _choices_so_far(grid: Grid, folder: GridFolder) -> Iterator[str]:
    """The choices so far, and the number of points that follow from open ones."""
    found = choices(grid, folder)
    # of a variant whose first candidate is not done there is nothing to say
    yield from choice_lines(grid, [choice for choice in found if any(score is not None for score in choice.scores)])
    if still_open := [choice for choice in found if None in choice.scores]:
        left = points(sum(choice.following for choice in still_open))
        yield f"{left} of reported seeds will follow from {points(len(still_open), 'variant')} without a choice yet"
