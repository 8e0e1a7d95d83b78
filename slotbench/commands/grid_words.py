"""Numbers and states of a grid in words."""

from __future__ import annotations

import math

from slotbench.grids.ledger import State

__all__ = ["COLOURS", "counts", "duration", "number", "points"]

COLOURS: dict[State, str] = {
    "done": "green",
    "diverged": "red",
    "running": "cyan",
    "failed": "red",
    "interrupted": "yellow",
    "killed": "yellow",
    "waiting": "bright_black",
}


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


def points(count: int) -> str:
    """ "1 point", "2 points"."""
    return f"{count} point{'' if count == 1 else 's'}"
