"""A comparison for programs: one JSON document with every value in full."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slotbench.comparison.records import Cell, Comparison, Metric, Row, RunRecord
from slotbench.comparison.settings import plain_value
from slotbench.files import dump_json
from slotbench.text import one_line

__all__ = ["to_json"]


def to_json(comparison: Comparison) -> str:
    """The comparison as strict JSON, as docs/compare.md describes it; numbers that are not finite are text."""
    document = {
        "title": one_line(comparison.title),
        "command": one_line(comparison.command),
        "keys": [one_line(key) for key in comparison.keys],
        "metrics": [_metric(metric) for metric in comparison.metrics],
        "rows": [_row(row) for row in comparison.rows],
        "notes": [one_line(note) for note in comparison.notes],
    }
    return dump_json(document, indent=1) + "\n"


def _metric(metric: Metric) -> dict[str, Any]:
    return {
        "name": one_line(metric.name),
        "label": one_line(metric.label),
        "higher_is_better": metric.higher_is_better,
        "baselines": _scores(metric.baselines),
        "oracles": _scores(metric.oracles),
    }


def _scores(scores: Mapping[str, float]) -> dict[str, float]:
    return {one_line(name): score for name, score in scores.items()}


def _row(row: Row) -> dict[str, Any]:
    beaten, seeds = row.success or (None, None)
    return {
        "label": one_line(row.label),
        "settings": {one_line(key): _setting(value) for key, value in row.settings.items()},
        "parameters": row.parameters,
        "seconds_per_step": row.seconds_per_step,
        "steps": row.steps,
        "seconds": row.seconds,
        "unfinished": row.unfinished,
        "diverged": row.diverged,
        "success": None if row.success is None else {"seeds": seeds, "beat_the_best_baseline": beaten},
        "runs": [_run(run) for run in row.runs],
        "scores": {one_line(name): _cell(cell) for name, cell in row.cells.items()},
    }


def _setting(value: Any) -> Any:
    """Numbers, truths and null as they are, all else as one types it."""
    return value if value is None or isinstance(value, bool | int | float) else one_line(plain_value(value))


def _run(run: RunRecord) -> dict[str, Any]:
    step = run.info.get("step")
    texts = {name: one_line(getattr(run, name)) for name in ("id", "name", "source", "state")}
    return {**texts, "step": step if isinstance(step, int) else None}


def _cell(cell: Cell) -> dict[str, Any]:
    numbers = {name: getattr(cell, name) for name in ("mean", "std", "low", "high")}
    return {**numbers, "n": len(cell.values), "values": list(cell.values), "is_best": bool(cell.is_best)}
