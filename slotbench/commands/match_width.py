"""Finds the width at which something comes closest to a budget of parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["RefusedError", "Search", "find_width"]

_LARGEST_WIDTH = 1 << 17
# Widths refused in a row before the search gives up: more than any product of heads and groups in use.
_PATIENCE = 256


class RefusedError(ValueError):
    """A width that the constructor does not take; the message says why."""


@dataclass(frozen=True)
class Search:
    """The two accepted widths that enclose the budget, with the parameters at each; one of them may be missing.

    Attributes:
        below: (width, parameters) of the largest width within the budget.
        above: (width, parameters) of the smallest width over it.
        problem: why there is neither.
    """

    below: tuple[int, int] | None
    above: tuple[int, int] | None
    problem: str = ""

    def nearest(self, budget: int) -> tuple[int, int] | None:
        """The one whose parameters are closer to the budget; the smaller one of two that are equally close."""
        found = [side for side in (self.below, self.above) if side is not None]
        return min(found, key=lambda side: abs(side[1] - budget)) if found else None


def find_width(count: Callable[[int], int], budget: int, step: int = 1) -> Search:
    """Bisects over the accepted multiples of `step`; the number of parameters must not fall as the width grows.

    Args:
        count: parameters at a width; raises `RefusedError` for one that is not accepted.
        budget: parameters to come close to.
        step: widths are multiples of it.
    """
    largest = _LARGEST_WIDTH // step
    refusal = ""

    def first_accepted(start: int, stop: int) -> tuple[int, int] | None:
        """(multiple, parameters) of the first accepted width from `start` on, before `stop`."""
        nonlocal refusal
        for multiple in range(start, min(stop, start + _PATIENCE)):
            try:
                return multiple, count(multiple * step)
            except RefusedError as error:
                refusal = refusal or str(error)
        return None

    below: tuple[int, int] | None = None
    above: tuple[int, int] | None = None
    start = 1
    while above is None:
        found = first_accepted(start, largest + 1)
        if found is None:
            break
        if found[1] > budget:
            above = found
        else:
            below = found
            start = 2 * found[0]
    if above is None and below is None:
        return Search(None, None, refusal)
    # every accepted width from `low` to `high` is still in question
    low = below[0] + 1 if below else 1
    high = above[0] if above else low
    while low < high:
        middle = (low + high) // 2
        found = first_accepted(middle, high)
        if found is None:
            high = middle
        elif found[1] > budget:
            above, high = found, middle
        else:
            below, low = found, found[0] + 1
    return Search(
        below=(below[0] * step, below[1]) if below else None,
        above=(above[0] * step, above[1]) if above else None,
    )
