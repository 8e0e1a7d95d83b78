"""What the page of a comparison knows, as plain values for JSON; the pictures apart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from slotbench.comparison.html_curves import CurveTable
from slotbench.comparison.records import Cell, Comparison, Row, RunRecord
from slotbench.runs.folder import plain

__all__ = ["describe"]

SEED = "seed_everything"
_INFO = (
    "step",
    "total_steps",
    "diverged_at",
    "error",
    "created",
    "device",
    "group",
    "seconds",
    "seconds_per_step",
    "command",
)
_ABSENT = object()


def describe(comparison: Comparison, max_points: int) -> dict[str, Any]:
    """The comparison with its curves, numbers rounded to what a page can show.

    Numbers that are not finite are "NaN", "Infinity" or "-Infinity" in the table and null in the curves.

    Args:
        comparison: what to show.
        max_points: most points of a curve.
    """
    runs = comparison.runs
    common = _common_settings(runs)
    labels = short_names(comparison.keys)
    return {
        "title": comparison.title or "Comparison",
        "command": comparison.command,
        "notes": list(comparison.notes),
        "keys": [{"key": key, "label": labels[key]} for key in comparison.keys],
        "metrics": [
            {
                "name": metric.name,
                "label": metric.label or metric.name,
                "higher": metric.higher_is_better,
                "floors": {name: _score(value) for name, value in metric.floors.items()},
                "oracles": {name: _score(value) for name, value in metric.oracles.items()},
            }
            for metric in comparison.metrics
        ],
        "rows": _rows(comparison),
        "runs": [_run(run, common) for run in runs],
        "common": plain(common),
        "order": list(dict.fromkeys(key for run in runs for key in run.settings)),
        "curves": CurveTable.read(comparison, max_points).as_dict(),
    }


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """The shortest ending of each dotted key that no other key of them ends with."""
    names = {}
    for key in keys:
        parts = key.split(".")
        endings = [".".join(parts[-count:]) for count in range(1, len(parts) + 1)]
        others = [other for other in keys if other != key]
        names[key] = next((end for end in endings if not any(f".{o}".endswith(f".{end}") for o in others)), key)
    return names


def _rows(comparison: Comparison) -> list[dict[str, Any]]:
    rows, first = [], 0
    for row in comparison.rows:
        rows.append(
            {
                "label": row.label,
                "settings": plain(row.settings),
                "runs": list(range(first, first + len(row.runs))),
                "cells": {name: _cell(row, name, cell) for name, cell in row.cells.items()},
                "parameters": row.parameters,
                "seconds_per_step": _score(row.seconds_per_step),
                "unfinished": row.unfinished,
                "diverged": row.diverged,
            }
        )
        first += len(row.runs)
    return rows


def _cell(row: Row, name: str, cell: Cell) -> dict[str, Any]:
    return {
        "values": [_score(value) for value in cell.values],
        "by_run": _by_run(row, name, cell),
        "mean": _score(cell.mean),
        "std": _score(cell.std),
        "low": _score(cell.low),
        "high": _score(cell.high),
        "best": cell.is_best,
    }


def _by_run(row: Row, name: str, cell: Cell) -> list[Any]:
    """One value per run of the row, None for a run without one; empty if it cannot be told which run has which."""
    having = [
        (name in run.summary or name in run.best)
        and not (run.state == "diverged" and not math.isfinite(run.summary.get(name, 0.0)))
        for run in row.runs
    ]
    if len(cell.values) == len(row.runs):
        having = [True] * len(row.runs)
    if sum(having) != len(cell.values):
        return []
    values = iter(cell.values)
    return [_score(next(values)) if has else None for has in having]


def _run(run: RunRecord, common: Mapping[str, Any]) -> dict[str, Any]:
    info = {name: plain(run.info[name]) for name in _INFO if run.info.get(name) is not None}
    own = {key: value for key, value in run.settings.items() if key not in common}
    named = {"id": run.id, "name": run.name, "source": run.source, "state": run.state}
    return {**named, "seed": plain(run.settings.get(SEED)), **info, "own": plain(own)}


def _common_settings(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """Settings that all runs have with the same value; a page of many runs holds them once."""
    if len(runs) < 2:
        return {}
    first, *others = runs
    return {
        key: value
        for key, value in first.settings.items()
        if all(_same(run.settings.get(key, _ABSENT), value) for run in others)
    }


def _same(left: Any, right: Any) -> bool:
    # True == 1 == 1.0, but they are different settings
    return type(left) is type(right) and left == right


def _score(value: float | None) -> float | str | None:
    """Seven significant digits: more than anything is shown with, and half the text."""
    if value is None:
        return None
    number = float(value)
    if not math.isfinite(number):
        return plain(number)
    return float(np.format_float_positional(number, precision=7, fractional=False))
