"""`metrics.jsonl` read without parsing every line: what a long run has logged, thinned to a few hundred points."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from slotbench.comparison.records import Curve

__all__ = ["last_values", "number", "read_curves"]

_VALIDATION, _FLOOR = b'"val/', "val/floor/"
_NO_METRICS = frozenset({"step", "epoch", "seconds"})
_GOLDEN = (math.sqrt(5) - 1) / 2
_TAIL = 50


def read_curves(path: Path, limit: int, expected: Collection[str] = ()) -> dict[str, Curve]:
    """Every metric over the steps, floors left out.

    Lines with validation values are thinned only if there are more than `limit` of them; of the others about `limit`
    are parsed. A last line without its end, and a line that is no JSON, are passed over.

    Args:
        path: the file; none is like an empty one.
        limit: points of a curve, at least 2.
        expected: metrics that must not be lost, however rarely they were logged.
    """
    content, ends = _read(path)
    if not len(ends):
        return {}
    validation = _lines_with(content, ends, _VALIDATION)
    others = np.setdiff1d(np.arange(len(ends)), validation, assume_unique=True)
    chosen = np.union1d(_thinned(validation, limit), _jittered(others, limit))
    points = _points(content, ends, chosen)
    for name in expected:
        if name not in points and not name.startswith(_FLOOR):
            found = _lines_with(content, ends, json.dumps(name).encode())
            points |= {name: _points(content, ends, _thinned(found, limit))[name]} if len(found) else {}
    return {name: _curve(pairs, limit) for name, pairs in points.items()}


def last_values(path: Path) -> dict[str, float]:
    """The newest value of every metric of validation, floors included, and of what else the last lines hold."""
    content, ends = _read(path)
    tail = np.arange(max(0, len(ends) - _TAIL), len(ends))
    last: dict[str, float] = {}
    for row in _rows(content, ends, np.union1d(_lines_with(content, ends, _VALIDATION), tail)):
        values = ((name, number(value)) for name, value in row.items() if name not in _NO_METRICS)
        last |= {name: value for name, value in values if value is not None}
    return last


def number(value: Any) -> float | None:
    """A logged value as a float, non-finite ones from their words; None for what is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and value not in ("NaN", "Infinity", "-Infinity"):
        return None
    return float(value)


def _read(path: Path) -> tuple[bytes, np.ndarray]:
    """The content and where its lines end; what follows the last end is torn."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return b"", np.zeros(0, dtype=np.int64)
    return content, np.flatnonzero(np.frombuffer(content, dtype=np.uint8) == ord("\n"))


def _lines_with(content: bytes, ends: np.ndarray, text: bytes) -> np.ndarray:
    found, position = [], content.find(text)
    while position >= 0:
        line = int(np.searchsorted(ends, position))
        if line == len(ends):
            break
        found.append(line)
        position = content.find(text, int(ends[line]))
    return np.asarray(found, dtype=np.int64)


def _thinned(lines: np.ndarray, limit: int) -> np.ndarray:
    """At most `limit` of them, first and last included."""
    if len(lines) <= limit:
        return lines
    return lines[np.linspace(0, len(lines) - 1, max(2, limit)).round().astype(np.int64)]


def _jittered(lines: np.ndarray, limit: int) -> np.ndarray:
    """About `limit` of them, one from each stretch, and the two ends.

    Not always the same place in the stretch: where two kinds of lines take turns, an even stride would meet one only.
    """
    if len(lines) <= limit:
        return lines
    places = (np.arange(limit) + np.arange(limit) * _GOLDEN % 1) * len(lines) / limit
    return lines[np.union1d(places.astype(np.int64), [0, len(lines) - 1])]


def _rows(content: bytes, ends: np.ndarray, lines: np.ndarray) -> Iterator[dict[str, Any]]:
    for line in lines.tolist():
        text = content[int(ends[line - 1]) + 1 if line else 0 : int(ends[line])]
        try:
            row = json.loads(text)
        except ValueError:
            continue
        if isinstance(row, dict) and isinstance(row.get("step"), int):
            yield row


def _points(content: bytes, ends: np.ndarray, lines: np.ndarray) -> dict[str, list[tuple[int, float]]]:
    points: dict[str, list[tuple[int, float]]] = {}
    for row in _rows(content, ends, lines):
        step = row["step"]
        for name, given in row.items():
            if name not in _NO_METRICS and not name.startswith(_FLOOR) and (value := number(given)) is not None:
                points.setdefault(name, []).append((step, value))
    return points


def _curve(pairs: list[tuple[int, float]], limit: int) -> Curve:
    # a step that was logged twice counts as it was logged last
    by_step = dict(pairs)
    steps = _thinned(np.asarray(sorted(by_step), dtype=np.int64), limit)
    return steps, np.asarray([by_step[step] for step in steps.tolist()], dtype=np.float64)
