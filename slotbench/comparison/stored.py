"""A comparison against a table that was stored: whether scores have moved by more than their spread."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slotbench.comparison.keys import plain_value
from slotbench.comparison.records import Cell, Comparison, ComparisonError, Row

__all__ = ["FACTOR", "departures"]

FACTOR = 3.0
"""How many standard errors of the difference two means may lie apart."""

_LEAST = 0.01
"""A difference of so small a share of the stored mean is none: seeds that agree to the last digit have no spread."""


def departures(comparison: Comparison, path: Path) -> list[str]:
    """What of the stored table is not so any more, a sentence each; nothing if all of it still is.

    Two means of n and m runs are apart if they differ by more than `FACTOR` times s sqrt(1/n + 1/m), with s the pooled
    standard deviation of the runs of both, and by more than a hundredth of the stored one. What is stored and not there
    any more is a departure too; what is new is none.

    Args:
        comparison: as it is now.
        path: a table that `slotbench compare ... --out FILE.csv` wrote.

    Raises:
        ComparisonError: there is no such file, or it is no such table, or no row of it has a score.
    """
    found, compared = [], 0
    for stored in _read(path):
        label, row = stored["label"], _row_of(stored, comparison)
        for name in [name for name in stored if f"{name}_n" in stored and stored[name]]:
            compared += 1
            before = _cell(stored, name)
            after = row.cells.get(name) if row else None
            if after is None:
                found.append(f"{label}, {name}: {before.mean:.4g} is stored, and nothing is there now")
            elif _are_apart(before, after):
                found.append(f"{label}, {name}: {_say(before)} is stored, and now it is {_say(after)}")
    if not compared:
        raise ComparisonError(f"{path} has no scores: expected a table of slotbench compare ... --out {path.name}")
    return found


def _read(path: Path) -> list[dict[str, str]]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ComparisonError(f"no file {path}: expected a table of slotbench compare ... --out {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ComparisonError(f"{path} cannot be read: {error}") from error
    table = list(csv.DictReader(text.splitlines()))
    if not table or not {"kind", "label", "parameters"} <= set(table[0]):
        raise ComparisonError(f"{path} is no table of slotbench compare ... --out FILE.csv")
    return [row for row in table if row["kind"] == "runs"]


def _row_of(stored: Mapping[str, str], comparison: Comparison) -> Row | None:
    """The row of the same settings: what they are called depends on what else is compared."""
    columns = list(stored)
    keys = columns[columns.index("label") + 1 : columns.index("parameters")]
    for row in comparison.rows:
        settings = row.runs[0].settings
        if all(_text(settings.get(key)) == stored[key] for key in keys) and (keys or row.label == stored["label"]):
            return row
    return None


def _text(value: Any) -> str:
    return "" if value is None else str(plain_value(value))


def _cell(row: Mapping[str, str], name: str) -> Cell:
    """Mean, deviation, and as many values as there were runs; which they were is not stored."""
    mean, std, count = float(row[name]), row.get(f"{name}_std"), int(row[f"{name}_n"] or 1)
    return Cell((float(row[name]),) * count, mean, float(std) if std else None)


def _are_apart(before: Cell, after: Cell) -> bool:
    if math.isnan(before.mean) or math.isnan(after.mean):
        return math.isnan(before.mean) != math.isnan(after.mean)
    spreads = [(len(cell.values) - 1, cell.std) for cell in (before, after) if cell.std is not None]
    freedom = sum(count for count, _ in spreads)
    pooled = math.sqrt(sum(count * std**2 for count, std in spreads) / freedom) if freedom else 0.0
    error = pooled * math.sqrt(1 / len(before.values) + 1 / len(after.values))
    return abs(after.mean - before.mean) > max(FACTOR * error, _LEAST * abs(before.mean))


def _say(cell: Cell) -> str:
    spread = "" if cell.std is None else f" ± {cell.std:.2g}"
    return f"{cell.mean:.4g}{spread} ({len(cell.values)})"
