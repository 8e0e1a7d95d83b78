"""How long a grid will still take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

__all__ = ["Remaining", "remaining_seconds"]

_FIRST = 10
"""Steps before which the speed says nothing: the first ones compile kernels."""


@dataclass(frozen=True)
class Remaining:
    """What is known of a running point.

    Attributes:
        elapsed: seconds since it was started; None if nobody knows.
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
        """Seconds that it takes from its beginning to its end, if its speed is known."""
        rest = self.rest(None)
        return None if rest is None or self.elapsed is None else rest + self.elapsed


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
