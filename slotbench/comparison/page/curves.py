"""The curves of a page: which metrics, how many points of each, and their numbers in few characters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slotbench.comparison.records import Comparison, Curve, thinned

__all__ = ["MOST_POINTS", "CurveTable"]

MOST_POINTS = 200_000
"""Points of all curves together; about seven characters each."""

_FEWEST, _FEWEST_OF_TABLE = 16, 100
_NO_METRICS = ("step", "epoch", "seconds", "hours")
_LOSSES = ("train/loss", "val/loss")
_DIGITS = 5


@dataclass
class CurveTable:
    """Curves by metric and run, with each series of steps held once, however many metrics were logged at it.

    Attributes:
        metrics: their names, those of the table first.
        left_out: metrics for which there was no room.
        steps: the different series of steps.
        values: metric -> position of the run in the comparison -> position in `steps`, and the values.
        clocks: position of the run -> position in `steps`, and the hours.
    """

    metrics: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    steps: list[list[int | float]] = field(default_factory=list)
    values: dict[str, dict[int, tuple[int, list[float | None]]]] = field(default_factory=dict)
    clocks: dict[int, tuple[int, list[float | None]]] = field(default_factory=dict)
    _known: dict[bytes, int] = field(default_factory=dict)

    @classmethod
    def read(cls, comparison: Comparison, max_points: int, most_points: int = MOST_POINTS) -> CurveTable:
        """Reads the curves of every run, one run at a time.

        Args:
            comparison: whose runs.
            max_points: most points of a curve.
            most_points: of all curves together. The table's metrics and the losses take three quarters of them at most,
                but 100 points each; further metrics have what is left, 16 points each at least, and those that no room
                is left for are in `left_out`, the last by name first.
        """
        table = cls()
        first = [*dict.fromkeys([*(metric.name for metric in comparison.metrics), *_LOSSES])]
        runs = comparison.runs
        fair = 3 * most_points // 4 // max(1, len(runs) * len(first))
        first_limit = min(max_points, max(_FEWEST_OF_TABLE, fair))
        # which other metrics are logged, and how often, is unknown before reading: read all, keep the further metrics
        # as thin as they might have to be in the end
        others: dict[str, dict[int, Curve]] = {}
        used = 0
        limit = max_points
        for position, run in enumerate(runs):
            curves = run.curves(max_points)
            curves = {name: thinned(curve, first_limit) if name in first else curve for name, curve in curves.items()}
            limit = min(limit, _limit(curves, first, max_points, most_points // len(runs)))
            for name, curve in curves.items():
                if name in first:
                    used += len(curve[0])
                    table._add(name, position, curve)
                elif name not in _NO_METRICS:
                    others.setdefault(name, {})[position] = thinned(curve, limit)
            if "seconds" in curves:
                steps, seconds = thinned(curves["seconds"], max_points)
                table.clocks[position] = (table._steps(steps), _rounded(seconds / 3600))
        for name in sorted(others):
            curves_of = {position: thinned(curve, limit) for position, curve in others[name].items()}
            used += sum(len(curve[0]) for curve in curves_of.values())
            if used > most_points:
                table.left_out.append(name)
                continue
            for position, curve in curves_of.items():
                table._add(name, position, curve)
        table.metrics = [name for name in first if name in table.values] + sorted(set(table.values) - set(first))
        return table

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "metrics": self.metrics,
            "left_out": self.left_out,
            "steps": self.steps,
            "values": self.values,
            "clocks": self.clocks,
        }

    def _add(self, name: str, position: int, curve: Curve) -> None:
        if len(curve[0]):
            self.values.setdefault(name, {})[position] = (self._steps(curve[0]), _rounded(curve[1]))

    def _steps(self, steps: np.ndarray) -> int:
        steps = np.asarray(steps, dtype=float)
        key = steps.tobytes()
        if key not in self._known:
            self._known[key] = len(self.steps)
            whole = bool(np.all(steps == np.rint(steps)))
            self.steps.append(steps.astype(np.int64).tolist() if whole else steps.tolist())
        return self._known[key]


def _limit(curves: Mapping[str, Curve], first: list[str], max_points: int, share: int) -> int:
    """Points that each further curve of this run may have so that all of the run's stay within `share`."""
    room = share - sum(min(max_points, len(curves[name][0])) for name in first if name in curves)
    lengths = sorted(len(curve[0]) for name, curve in curves.items() if name not in (*first, *_NO_METRICS))
    for done, length in enumerate(lengths):
        if length * (len(lengths) - done) > room:
            return max(_FEWEST, room // (len(lengths) - done))
        room -= length
    return max_points


def _rounded(values: np.ndarray) -> list[float | None]:
    """Five significant digits; None where there is no finite number."""
    values = np.asarray(values, dtype=float)
    finite = np.isfinite(values)
    digits = np.zeros_like(values)
    np.log10(np.abs(values), out=digits, where=finite & (values != 0))
    decimals = _DIGITS - 1 - np.floor(digits).clip(-300, 300)
    # dividing by a whole power of ten gives the number that has the short text; multiplying by a negative one does not
    up, down = 10.0 ** decimals.clip(0, 300), 10.0 ** (-decimals).clip(0, 300)
    safe = np.where(finite, values, 0.0)
    rounded = np.rint(safe * up / down) * down / up
    return [number if is_finite else None for number, is_finite in zip(rounded.tolist(), finite.tolist(), strict=True)]
