"""Baselines and oracles of a headline, told apart: an oracle is given the simulator's own state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from slotbench.metric_info import ONCE_AMONG_BASELINES
from slotbench.records import numbers

__all__ = ["ORACLE", "split_references"]

ORACLE = "oracle (knows the simulator)"
"""What an oracle is called where people read."""


def split_references(headline: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, float]]:
    """The scores of baselines, and those of oracles, by name, from a headline's record of any version.

    Args:
        headline: a record as `run.json` holds it; what is no number in it is left out.
    """
    baselines, oracles = _known(headline.get("baselines", headline.get("floors"))), _known(headline.get("oracles"))
    old = {name: baselines.pop(name) for name in list(baselines) if name in ONCE_AMONG_BASELINES}
    return baselines, {**old, **oracles}


def _known(given: Any) -> dict[str, float]:
    return {name: value for name, value in numbers(given).items() if not math.isnan(value)}
