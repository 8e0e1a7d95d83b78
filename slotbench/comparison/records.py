"""The data model of a comparison: runs as read from wherever they are recorded, and the table over them.

Nothing here imports torch: comparing runs must not need it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from slotbench.errors import UserError
from slotbench.runs.run_info import RunInfo

__all__ = [
    "RULES",
    "Cell",
    "Comparison",
    "ComparisonError",
    "Curve",
    "Metric",
    "Row",
    "RunDetails",
    "RunRecord",
    "ScoredBy",
    "UnknownNameError",
    "thinned",
    "whole",
]

RULES = " ("
"""What a metric's name and the rules that tell it apart from others of the name have between them."""

Curve = tuple[np.ndarray, np.ndarray]
"""Steps and values of one metric, "points" and "points", ascending in step."""


class ComparisonError(UserError, ValueError):
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
class ScoredBy:
    """How a score of masks was made, as its evaluation record says.

    Attributes:
        rules: every rule by name, "frames" of a video among them.
        said_of_clips: how many clips of which data, in a few words.
        clips: what is the same for the same clips alone; None if unknown.
    """

    rules: Mapping[str, str]
    said_of_clips: str = ""
    clips: str | None = None


class RunDetails(RunInfo, total=False):
    """The record of a run, with what a comparison and Weights & Biases add to it."""

    project: str
    job_type: str
    tags: list[str]
    problem: str


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
        media: images and videos of the run, on this machine.
        scored_by: of scores of masks, the rules and clips by the metric's name, as far as records say it.
    """

    id: str
    name: str
    source: str
    state: str
    settings: Mapping[str, Any]
    summary: Mapping[str, float]
    best: Mapping[str, float] = field(default_factory=dict)
    info: RunDetails = field(default_factory=RunDetails)
    curves: Callable[[int], Mapping[str, Curve]] = lambda limit: {}
    media: Sequence[Path] = ()
    scored_by: Mapping[str, ScoredBy] = field(default_factory=dict)


@dataclass(frozen=True)
class Metric:
    """A column of scores.

    Attributes:
        name: as logged, such as "val/fg_ari/video/decoder", and behind it the rules where there are several.
        label: for people.
        higher_is_better: the direction; None where it is unknown or neither is better.
        baselines: what predictors that learn nothing score, by their name.
        oracles: what predictors score that are given the simulator's own state, by their name; no baselines.
    """

    name: str
    label: str
    higher_is_better: bool | None = None
    baselines: Mapping[str, float] = field(default_factory=dict)
    oracles: Mapping[str, float] = field(default_factory=dict)

    @property
    def logged(self) -> str:
        """The name that it was logged under."""
        return self.name.partition(RULES)[0]

    @property
    def rules(self) -> str:
        """The rules that tell it apart from others of the name; empty where there are none."""
        return self.name.partition(RULES)[2].removesuffix(")")


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
        steps: optimiser steps of the finished runs; None if they differ or are unknown.
        seconds: that one of them took to train, median; None if unknown.
        success: how many seeds beat the best baseline of the first metric, and of how many; None without a baseline.
    """

    label: str
    settings: Mapping[str, Any]
    runs: Sequence[RunRecord]
    cells: Mapping[str, Cell]
    parameters: int | None = None
    seconds_per_step: float | None = None
    unfinished: int = 0
    diverged: int = 0
    steps: int | None = None
    seconds: float | None = None
    success: tuple[int, int] | None = None


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
        has_protocol: the rows are those of a grid with a protocol, and say success, interval and budget.
    """

    title: str
    keys: Sequence[str]
    metrics: Sequence[Metric]
    rows: Sequence[Row]
    notes: Sequence[str] = ()
    command: str = ""
    has_protocol: bool = False

    @property
    def runs(self) -> list[RunRecord]:
        """All runs, row by row."""
        return [run for row in self.rows for run in row.runs]


def whole(value: Any) -> int | None:
    """A number of steps or of parameters; None for what can be none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value < 2**53 and value == int(value) else None


def thinned(curve: Curve, limit: int) -> Curve:
    """At most `limit` points of a curve, two at least: evenly spaced by position, first and last included."""
    steps, values = curve
    if len(steps) <= limit:
        return curve
    kept = np.unique(np.linspace(0, len(steps) - 1, max(2, limit)).round().astype(np.int64))
    return steps[kept], values[kept]
