"""Baselines and oracles of a headline as `run.json` holds it; an oracle is given the simulator's own state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from slotbench.io import numbers

__all__ = ["ORACLE", "split_references"]

ORACLE = "oracle (knows the simulator)"
"""What an oracle is called where people read."""


def split_references(headline: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, float]]:
    """The scores of baselines, and those of oracles, by name; what is no number is left out."""
    return _known(headline.get("baselines")), _known(headline.get("oracles"))


def _known(given: Any) -> dict[str, float]:
    return {name: value for name, value in numbers(given).items() if not math.isnan(value)}
