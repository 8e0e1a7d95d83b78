"""Oracles apart from baselines: predictors that are given the simulator's own state are no trivial answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["ONCE_AMONG_FLOORS", "ORACLE", "split_references"]

ORACLE = "oracle (knows the simulator)"
"""What an oracle is called where people read."""

ONCE_AMONG_FLOORS = frozenset({"generator, last two frames", "constant velocity", "constant velocity, walls"})
"""Oracles that older runs have logged as trivial answers, under `<stage>/floor/`."""


def split_references(headline: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, float]]:
    """What trivial answers score, and what oracles do, by name, from a headline's record of any age.

    Args:
        headline: a record as `run.json` holds it; what is no number in it is left out.
    """
    floors, oracles = _numbers(headline.get("floors")), _numbers(headline.get("oracles"))
    old = {name: floors.pop(name) for name in list(floors) if name in ONCE_AMONG_FLOORS}
    return floors, {**old, **oracles}


def _numbers(given: Any) -> dict[str, float]:
    found = {}
    for name, value in given.items() if isinstance(given, Mapping) else ():
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            continue
        try:
            number = float(value)
        except (ValueError, OverflowError):
            continue
        if not math.isnan(number):
            found[str(name)] = number
    return found
