"""Runs of a comparison as pandas frames, one line a run: facts, settings and scores."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from slotbench.errors import UserError
from slotbench.metric_info import MetricInfo

__all__ = [
    "FACTS",
    "ComparisonError",
    "Protocol",
    "Run",
    "Runs",
    "UnknownNameError",
    "gain_of_last_quarter",
    "plain_value",
]

FACTS = (
    *("name", "source", "state", "group", "step", "seconds", "seconds_per_step", "parameters"),
    *("diverged_at", "error", "created", "device", "command", "gain_in_last_quarter"),
)
"""What is known of a run besides its settings and scores."""


class ComparisonError(UserError, ValueError):
    """Runs that cannot be read, or cannot be compared as asked."""


class UnknownNameError(ComparisonError):
    """A metric or a setting that no run has.

    Args:
        kind: "metric" or "setting".
        given: what was asked for.
        known: what there is.
    """

    def __init__(self, kind: str, given: str, known: Sequence[str]) -> None:
        super().__init__(f"no run has a {kind} {given}")
        self.kind, self.given, self.known = kind, given, tuple(known)


@dataclass(frozen=True)
class Protocol:
    """A setting that a grid has chosen for every variant on seeds that are not reported.

    Attributes:
        key: the setting.
        values: the candidates, as text.
        seeds: on which it was chosen.
        metric: by which.
        variants: "label", "chosen" and "diverged" of each variant.
    """

    key: str
    values: Sequence[Any] = ()
    seeds: Sequence[Any] = ()
    metric: str = ""
    variants: Sequence[Mapping[str, Any]] = ()


@dataclass
class Run:
    """One run as it was read.

    Attributes:
        id: unique within a comparison.
        facts: by the names of `FACTS`, as far as they are known.
        settings: the flat configuration, values as text; null is absent.
        scores: the newest value of every metric.
        infos: what the metrics are, by name without the stage.
        headlines: scores that the run is told by, as `run.json` has them.
        curves: reads all that was logged, a line per step.
        media: images and videos on this machine.
    """

    id: str
    facts: dict[str, Any]
    settings: dict[str, str]
    scores: dict[str, float]
    infos: Mapping[str, MetricInfo] = field(default_factory=dict)
    headlines: Sequence[Mapping[str, Any]] = ()
    curves: Callable[[], pd.DataFrame] = pd.DataFrame
    media: Sequence[Path] = ()


@dataclass
class Runs:
    """All runs of a comparison.

    Attributes:
        runs: by their id.
        metrics: columns that a grid file asks for.
        title: what they have in common.
        notes: what was found and left out.
        protocol: of the grid, where it is one grid that has one.
        is_grid: all of them are of grids, and are told if they still improve at the end.
    """

    runs: dict[str, Run]
    metrics: Sequence[str] = ()
    title: str = ""
    notes: Sequence[str] = ()
    protocol: Protocol | None = None
    is_grid: bool = False

    def __post_init__(self) -> None:
        ids = pd.Index(list(self.runs), dtype=object)
        self.facts = pd.DataFrame([run.facts for run in self.runs.values()], index=ids).reindex(columns=list(FACTS))
        self.settings = pd.DataFrame([run.settings for run in self.runs.values()], index=ids, dtype=object)
        self.scores = pd.DataFrame([run.scores for run in self.runs.values()], index=ids, dtype=float)

    def __len__(self) -> int:
        return len(self.runs)

    def chosen(self, keep: Sequence[bool] | pd.Series) -> Runs:
        """A part of the runs.

        Args:
            keep: for each run, in order.
        """
        return replace(self, runs={id: run for (id, run), kept in zip(self.runs.items(), keep, strict=True) if kept})

    def table(self) -> pd.DataFrame:
        """Everything in one frame, a line a run."""
        return pd.concat([self.facts.dropna(axis=1, how="all"), self.settings, self.scores], axis=1).rename_axis("run")


def plain_value(value: Any) -> str:
    """A setting as one types it."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def gain_of_last_quarter(curve: pd.Series, higher: bool) -> float | None:
    """How much better a score is at the end than after three quarters of the steps, as a share of the larger value.

    An error that halves gains 0.5, and so does an accuracy that doubles; what became worse gains less than nothing.

    Args:
        curve: the score by the number of steps done.
        higher: higher is better.

    Returns:
        None without a validation before the last quarter.
    """
    curve = curve[np.isfinite(curve)]
    if not len(curve) or curve.index[0] > 0.75 * curve.index[-1]:
        return None
    before, after = float(np.interp(0.75 * curve.index[-1], curve.index, curve)), float(curve.iloc[-1])
    change = after - before if higher else before - after
    return change / max(abs(before), abs(after)) if change else 0.0
