"""Records of a run reduced to what comparisons read: curves of at most 200 points, means in place of single clips."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from slotbench.errors import FileError
from slotbench.files import parse_json

__all__ = ["POINTS", "thin_evaluation", "thin_metrics"]

POINTS = 200
"""Most rows kept of each kind, by the metrics that they hold."""

_DIGITS = 8
_NOT_METRICS = frozenset({"step", "epoch", "seconds"})
_OF_SINGLE_CLIPS = ("names", "values", "weights", "ended", "held")


def thin_metrics(text: str, points: int = POINTS) -> str:
    """The rows of a `metrics.jsonl`, at most `points` of each kind, evenly spaced, the first and the last among them.

    A kind is a set of metrics: rows of training and of validation are thinned apart. Numbers keep eight significant
    digits; the last values in full are in `result.json`. Damaged lines are left out, as readers skip them.
    """
    rows = []
    for line in text.splitlines():
        with contextlib.suppress(FileError):
            row = parse_json(line, "a row")
            if isinstance(row, dict):
                rows.append(row)
    kinds: dict[frozenset[str], list[int]] = {}
    for index, row in enumerate(rows):
        kinds.setdefault(frozenset(row) - _NOT_METRICS, []).append(index)
    kept = sorted(index for indices in kinds.values() for index in _spread(indices, points))
    return "".join(f"{json.dumps(_rounded(rows[index]))}\n" for index in kept)


def thin_evaluation(record: dict[str, Any]) -> dict[str, Any]:
    """An evaluation record without the values of single clips: rules, numbers of clips, means and intervals stay."""
    parts = ("clips", "scores", "baselines")
    return {name: _without_clips(value) if name in parts else value for name, value in record.items()}


def _without_clips(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {
        key: _without_clips(one)
        for key, one in value.items()
        if not (key in _OF_SINGLE_CLIPS and isinstance(one, list | dict))
    }


def _spread(indices: list[int], points: int) -> list[int]:
    if len(indices) <= points:
        return indices
    return [indices[round(place * (len(indices) - 1) / (points - 1))] for place in range(points)]


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list) else value
