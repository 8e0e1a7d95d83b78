"""`metrics.jsonl` read without parsing every line: what a long run has logged, thinned to a few hundred points."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from slotbench.comparison.records import Curve, thinned, whole
from slotbench.errors import FileError, listing
from slotbench.files import read_bytes
from slotbench.metric_info import is_reference
from slotbench.records import real

__all__ = ["last_values", "read_curves"]

_LARGEST, _MOST_LINES = 1 << 30, 20_000_000
# validations of which the newest values are taken, and expected metrics that are searched for in the whole file
_NEWEST, _SEARCHED = 20_000, 500

_VALIDATION = b'"val/'
_CLOCK = "seconds"
_NO_METRICS = frozenset({"step", "epoch", _CLOCK})
_GOLDEN = (math.sqrt(5) - 1) / 2
_TAIL = 50
_Pairs = tuple[tuple[int, ...], tuple[Any, ...]]


def read_curves(path: Path, limit: int, expected: Collection[str] = ()) -> dict[str, Curve]:
    """Every metric over the steps, baselines and oracles left out, and "seconds", the clock of the run.

    Lines with validation values are thinned only if there are more than `limit` of them; of the others about `limit`
    are parsed. A last line without its end is passed over, and so is, with a warning that names it, a line that is none
    of ours.

    Args:
        path: the file; none is like an empty one.
        limit: points of a curve, at least 2.
        expected: metrics that must not be lost, however rarely they were logged.

    Raises:
        FileError: it is no regular file, may not be read, or has more than a gigabyte or 20 million lines.
    """
    content, ends = _read(path)
    if not len(ends):
        return {}
    validation = _lines_with(content, ends, _VALIDATION)
    others = np.setdiff1d(np.arange(len(ends)), validation, assume_unique=True)
    chosen = np.union1d(_evenly(validation, limit), _jittered(others, limit))
    points = _points(path, content, ends, chosen)
    missing = [name for name in expected if name not in points and not is_reference(name)]
    for name in missing[:_SEARCHED]:
        found = _lines_with(content, ends, json.dumps(name).encode())
        points |= {
            key: pairs for key, pairs in _points(path, content, ends, _evenly(found, limit)).items() if key == name
        }
    curves = {name: _curve(pairs, limit) for name, pairs in points.items()}
    # what was never a number is no metric
    return {name: curve for name, curve in curves.items() if name in expected or not np.isnan(curve[1]).all()}


def last_values(path: Path) -> dict[str, float]:
    """The newest value of every validation metric, baselines and oracles too, and of what else the last lines hold."""
    content, ends = _read(path)
    lines = _lines_with(content, ends, _VALIDATION)
    if len(lines) > _NEWEST:
        # baselines stand in the first one
        lines = np.concatenate([lines[:_TAIL], lines[-_NEWEST:]])
    tail = np.arange(max(0, len(ends) - _TAIL), len(ends))
    last: dict[str, float] = {}
    for row in _rows(path, content, ends, np.union1d(lines, tail)):
        values = ((name, real(value)) for name, value in row.items() if name not in _NO_METRICS)
        last |= {name: value for name, value in values if value is not None}
    return last


def _read(path: Path) -> tuple[bytes, np.ndarray]:
    """The content and where its lines end; what follows the last end is torn."""
    if not path.exists():
        return b"", np.zeros(0, dtype=np.int64)
    content = read_bytes(path, _LARGEST)
    if content.count(b"\n") > _MOST_LINES:
        raise FileError(f"{path} has more than {_MOST_LINES:,} lines")
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


def _evenly(lines: np.ndarray, limit: int) -> np.ndarray:
    return thinned((lines, lines), limit)[0]


def _jittered(lines: np.ndarray, limit: int) -> np.ndarray:
    """About `limit` of them, one from each stretch, and the two ends.

    Not always the same place in the stretch: where two kinds of lines take turns, an even stride would meet one only.
    """
    if len(lines) <= limit:
        return lines
    places = (np.arange(limit) + np.arange(limit) * _GOLDEN % 1) * len(lines) / limit
    return lines[np.union1d(places.astype(np.int64), [0, len(lines) - 1])]


def _rows(path: Path, content: bytes, ends: np.ndarray, lines: np.ndarray) -> list[dict[str, Any]]:
    begins = np.concatenate([[0], ends[:-1] + 1])
    texts = [content[begin:end] for begin, end in zip(begins[lines].tolist(), ends[lines].tolist(), strict=True)]
    try:
        # all at once is several times as fast as one by one
        rows = json.loads(b"[" + b",".join(texts) + b"]")
        if len(rows) != len(texts):
            raise ValueError("a line with two values")
    except (ValueError, RecursionError):
        rows = [_parsed(text) for text in texts]
    good = [isinstance(row, dict) and type(row.get("step")) is int and whole(row["step"]) is not None for row in rows]
    bad = [line + 1 for line, text, ok in zip(lines.tolist(), texts, good, strict=True) if text.strip() and not ok]
    if bad:
        named = f"line {bad[0]}" if len(bad) == 1 else f"lines {listing(map(str, bad), 5)}"
        warnings.warn(f"{path}, {named}: no JSON object with a step; passed over", stacklevel=2)
    return [row for row, ok in zip(rows, good, strict=True) if ok]


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _points(path: Path, content: bytes, ends: np.ndarray, lines: np.ndarray) -> dict[str, _Pairs]:
    # most lines are of one of two or three kinds: turned into columns kind by kind, not value by value
    kinds: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in _rows(path, content, ends, lines):
        kinds.setdefault(tuple(row), []).append(row)
    points: dict[str, _Pairs] = {}
    for names, rows in kinds.items():
        columns = dict(zip(names, zip(*(row.values() for row in rows), strict=True), strict=True))
        for name, values in columns.items():
            if (name == _CLOCK or name not in _NO_METRICS) and not is_reference(name):
                before = points.get(name, ((), ()))
                points[name] = (before[0] + columns["step"], before[1] + values)
    return points


def _curve(pairs: _Pairs, limit: int) -> Curve:
    steps = np.asarray(pairs[0], dtype=np.int64)
    try:
        # takes "NaN" and "Infinity" as what they say, and null as NaN
        values = np.asarray(pairs[1], dtype=np.float64)
        if values.ndim != 1:
            raise ValueError("lists in the place of numbers")
    except (TypeError, ValueError, OverflowError):
        values = np.asarray([math.nan if (value := real(given)) is None else value for given in pairs[1]])
    if len(steps) > 1 and not (np.diff(steps) > 0).all():
        # a step that was logged twice counts as it was logged last
        last = {step: place for place, step in enumerate(pairs[0])}
        order = np.asarray([last[step] for step in sorted(last)])
        steps, values = steps[order], values[order]
    return thinned((steps, values), limit)
