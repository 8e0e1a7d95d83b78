"""What a comparison is made of: runs as read from wherever they are recorded, and the table over them.

Nothing here imports torch: comparing runs must not need it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Cell", "Comparison", "ComparisonError", "Curve", "Metric", "Row", "RunRecord", "UnknownNameError"]

Curve = tuple[np.ndarray, np.ndarray]
"""Steps and values of one metric, "points" and "points", ascending in step."""


class ComparisonError(ValueError):
    """Runs cannot be read, or cannot be compared as asked: what is wrong, and what to type instead."""


class UnknownNameError(ComparisonError):
    """A metric or a setting that no run has.

    Args:
        kind: "metric" or "setting".
        given: what was asked for.
        known: what there is.
    """

    def __init__(self, kind: str, given: str, known: Sequence[str]) -> None:
        super().__init__(f"no run has a {kind} {given}")
        self.kind = kind
        self.given = given
        self.known = tuple(known)


@dataclass(frozen=True)
class RunRecord:
    """One run, whatever has recorded it.

    Attributes:
        id: unique within the comparison.
        name: what a person calls it.
        source: where it was read: a folder, or an address.
        state: "finished", "diverged", "running", "interrupted", "failed", "killed" or "unknown".
        settings: the configuration, flat, by the keys that one types on the command line: "model.core" is a class's
            name and "model.core.num_slots" an argument of it; `class_path` and `init_args` do not occur.
        summary: the newest value of every metric.
        best: the best value of the headlines, where the run has kept it.
        info: what else the record says: "parameters" (by part, and "total"), "seconds_per_step", "step", "headlines",
            "group", "device", "error", "created", ... Any of them may be absent.
        curves: reads the metrics over the steps, at most so many points of each, evenly thinned; slow, so a function.
        media: pictures and videos of the run, on this machine.
    """

    id: str
    name: str
    source: str
    state: str
    settings: Mapping[str, Any]
    summary: Mapping[str, float]
    best: Mapping[str, float] = field(default_factory=dict)
    info: Mapping[str, Any] = field(default_factory=dict)
    curves: Callable[[int], Mapping[str, Curve]] = lambda limit: {}
    media: Sequence[Path] = ()


@dataclass(frozen=True)
class Metric:
    """A column of scores.

    Attributes:
        name: as logged, such as "val/fg_ari/video/decoder".
        label: for people.
        higher_is_better: None where nobody has said.
        floors: what trivial answers score, by their name.
        oracles: what predictors score that are given the simulator's own state, by their name; no trivial answers.
    """

    name: str
    label: str
    higher_is_better: bool | None = None
    floors: Mapping[str, float] = field(default_factory=dict)
    oracles: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """A metric over the seeds of one row.

    Attributes:
        values: one per run that has it, in the order of the row's runs.
        mean: their mean.
        std: their standard deviation with n - 1; None for a single one.
        low: lower end of Student's 95 % interval of the mean; None for a single one.
        high: its upper end.
        is_best: the best of its column, and better than every other row of it, corrected for their number.
    """

    values: tuple[float, ...]
    mean: float
    std: float | None = None
    low: float | None = None
    high: float | None = None
    is_best: bool = False


@dataclass(frozen=True)
class Row:
    """Runs that differ in nothing but their seed.

    Attributes:
        label: the row's settings in a few words.
        settings: values of the comparison's keys; a key that these runs do not have is absent.
        runs: the runs.
        cells: scores by the metric's name; a metric that no run of the row has is absent.
        parameters: trainable ones; None if unknown.
        seconds_per_step: median over the runs; None if unknown.
        unfinished: how many of the runs have not finished; their scores are in the cells all the same. Runs that have
            diverged are among them; of those, scores that are no finite numbers are in no cell.
        diverged: how many of them have diverged.
    """

    label: str
    settings: Mapping[str, Any]
    runs: Sequence[RunRecord]
    cells: Mapping[str, Cell]
    parameters: int | None = None
    seconds_per_step: float | None = None
    unfinished: int = 0
    diverged: int = 0


@dataclass(frozen=True)
class Comparison:
    """A table of runs, and what is needed to look further.

    Attributes:
        title: what is compared.
        keys: settings that differ between rows, the seed not among them, most telling first.
        metrics: columns, the first one the most telling.
        rows: sorted by the first metric, best first, where its direction is known.
        notes: what a reader has to know: runs left out and why, seeds that are missing, ...
        command: the command line that makes this comparison again.
    """

    title: str
    keys: Sequence[str]
    metrics: Sequence[Metric]
    rows: Sequence[Row]
    notes: Sequence[str] = ()
    command: str = ""

    @property
    def runs(self) -> list[RunRecord]:
        """All runs, row by row."""
        return [run for row in self.rows for run in row.runs]
