"""Regression check against a stored table: which scores have changed by more than their spread."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slotbench.comparison.records import Cell, Comparison, ComparisonError, Row
from slotbench.comparison.settings import plain_value
from slotbench.comparison.statistics import apart
from slotbench.errors import FileError
from slotbench.files import read_text
from slotbench.text import csv_cell
from slotbench.yaml_files import CONFIG_LIMIT

__all__ = ["LEVEL", "changed_scores"]

LEVEL = 0.05
"""False-positive rate of the whole table: how often unchanged trainings with other seeds are reported as changed."""

_MOST_RUNS = 1_000_000
_SMALLEST = 0.01
"""Relative difference that is never a change: seeds that agree to the last digit have no spread."""


def changed_scores(comparison: Comparison, path: Path) -> list[str]:
    """The scores of a stored table that have changed, a sentence each; empty if none has.

    Means of n and m runs differ if Student's two-sided t-test with n + m - 2 degrees of freedom says so at `LEVEL`
    divided by the number of stored scores (Bonferroni), and if they differ by more than one per cent of the stored one.
    With two or three runs they must be many standard errors apart. Where neither has a spread, one per cent decides
    alone. A stored score that is missing now counts as changed; a new one does not.

    Args:
        comparison: as it is now.
        path: a table that `slotbench compare ... --out FILE.csv` wrote.

    Raises:
        ComparisonError: there is no such file, or it is no such table, or no row of it has a score.
    """
    pairs = []
    for stored in _read(path):
        row = _row_of(stored, comparison)
        for name in [name for name in stored if f"{name}_n" in stored and stored[name]]:
            before = _cell(stored, name, path)
            pairs.append((f"{stored['label']}, {name}", before, row.cells.get(name) if row else None))
    if not pairs:
        raise ComparisonError(f"{path} has no scores: expected a table of slotbench compare ... --out {path.name}")
    found = []
    for what, before, after in pairs:
        if after is None:
            found.append(f"{what}: {before.mean:.4g} is stored, and nothing is there now")
        elif _has_changed(before, after, LEVEL / len(pairs)):
            found.append(f"{what}: {_say(before)} is stored, and now it is {_say(after)}")
    return found


def _read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        raise ComparisonError(f"no file {path}: expected a table of slotbench compare ... --out {path}")
    try:
        table = list(csv.DictReader(read_text(path, CONFIG_LIMIT).splitlines()))
    except (FileError, csv.Error) as error:
        raise ComparisonError(f"{path} cannot be read as a table of slotbench compare: {error}") from error
    if not table or not {"kind", "label", "parameters"} <= set(table[0]):
        raise ComparisonError(f"{path} is no table of slotbench compare ... --out FILE.csv")
    # a line that is cut off lacks its last cells
    return [{name: row[name] or "" for name in row if name is not None} for row in table if row["kind"] == "runs"]


def _row_of(stored: Mapping[str, str], comparison: Comparison) -> Row | None:
    """The row of the same settings: what they are called depends on what else is compared."""
    columns = list(stored)
    keys = columns[columns.index("label") + 1 : columns.index("parameters")]
    for row in comparison.rows:
        settings = row.runs[0].settings
        if all(_text(settings.get(key)) == stored[key] for key in keys) and (
            keys or _text(row.label) == stored["label"]
        ):
            return row
    return None


def _text(value: Any) -> str:
    return "" if value is None else str(csv_cell(plain_value(value)))


def _cell(row: Mapping[str, str], name: str, path: Path) -> Cell:
    """Mean, deviation, and as many values as there were runs; which they were is not stored."""
    try:
        mean, std, count = float(row[name]), row.get(f"{name}_std"), int(row[f"{name}_n"] or 1)
        if not 1 <= count <= _MOST_RUNS:
            raise ValueError(f"{count} runs")
        return Cell((mean,) * count, mean, float(std) if std else None)
    except ValueError as error:
        raise ComparisonError(f"{path} has no number where {row['label']} has {name}: {error}") from error


def _has_changed(before: Cell, after: Cell, level: float) -> bool:
    if math.isnan(before.mean) or math.isnan(after.mean):
        return math.isnan(before.mean) != math.isnan(after.mean)
    if abs(after.mean - before.mean) <= _SMALLEST * abs(before.mean):
        return False
    has_spread = before.std is not None or after.std is not None
    return apart(before, after, level) if has_spread else True


def _say(cell: Cell) -> str:
    spread = "" if cell.std is None else f" ± {cell.std:.2g}"
    return f"{cell.mean:.4g}{spread} ({len(cell.values)})"
