"""The columns of a table: which metrics, their labels and directions, what learns nothing beside them."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from slotbench.comparison.runs import ComparisonError, Run, Runs, UnknownNameError
from slotbench.metric_info import info_of, is_reference, references_of

__all__ = ["Column", "choose_columns", "find_metric", "references_by_name", "scores_of"]

_LOSS, _MOST = "val/loss", 6
_AGREE = 0.05  # what learns nothing scores the same in all runs, but for its clips


@dataclass(frozen=True)
class Column:
    """A column of scores.

    Attributes:
        name: as logged, such as "val/fg_ari/video/decoder".
        label: for people.
        higher_is_better: the direction; None where it is unknown or neither is better.
        baselines: what predictors that learn nothing score, by their name.
        oracles: what predictors score that are given the simulator's own state; no baselines.
    """

    name: str
    label: str
    higher_is_better: bool | None = None
    baselines: Mapping[str, float] = field(default_factory=dict)
    oracles: Mapping[str, float] = field(default_factory=dict)

    @property
    def best_baseline(self) -> tuple[str, float] | None:
        """Name and score of the best one; None without one or without a direction."""
        if self.higher_is_better is None or not self.baselines:
            return None
        return (max if self.higher_is_better else min)(self.baselines.items(), key=lambda item: item[1])


def choose_columns(runs: Runs, wanted: Sequence[str] | None = None) -> tuple[list[Column], list[str]]:
    """The columns, and notes about them.

    Args:
        runs: at least one.
        wanted: names or patterns, "val/" may be left out; None for the headlines of the runs and their loss.

    Raises:
        UnknownNameError: no run has logged it.
    """
    known = [name for name in runs.scores if not is_reference(name)]
    headlines: dict[str, Mapping[str, Any]] = {}
    for run in runs.runs.values():
        for headline in run.headlines:
            headlines.setdefault(headline["metric"], headline)
    if wanted:
        names = [name for given in wanted for name in _matching(given, known)]
    else:
        names = [name for name in headlines or known if name in known and name.startswith("val/")]
        names = [*(names if headlines else names[:_MOST]), *([_LOSS] * (_LOSS in known))]
    columns: list[Column] = []
    varying: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        column = _described(name, headlines.get(name), runs)
        found = [_references(name, run) for run in runs.runs.values()]
        baselines, other = _agreed([baselines for baselines, _ in found])
        oracles, others = _agreed([oracles for _, oracles in found])
        columns.append(replace(column, baselines=baselines, oracles=oracles))
        for reference in [*other, *(f"oracle {one}" for one in others)]:
            varying.setdefault(reference, []).append(name)
    part = "; --only KEY=VALUE compares a part of the runs"
    notes = [
        f"the baseline {one} is not the same for all runs, and left out of {', '.join(of[:4])}{part}"
        for one, of in varying.items()
    ]
    return columns, notes


def find_metric(given: str, runs: Runs) -> str:
    """One metric's name, with or without "val/".

    Raises:
        UnknownNameError: no run has logged it.
    """
    return _matching(given, [name for name in runs.scores if not is_reference(name)])[0]


def _matching(given: str, known: Sequence[str]) -> list[str]:
    for pattern in (given, f"val/{given}"):
        if found := [pattern] if pattern in known else fnmatch.filter(known, pattern):
            return found
    raise UnknownNameError("metric", given, known)


def _described(name: str, headline: Mapping[str, Any] | None, runs: Runs) -> Column:
    if headline is not None:
        return Column(name, headline.get("label") or name.removeprefix("val/"), headline.get("higher_is_better"))
    infos = {key: info for run in reversed(runs.runs.values()) for key, info in run.infos.items()}
    return Column(name, name.removeprefix("val/"), info_of(name, infos).higher_is_better)


def _references(name: str, run: Run) -> tuple[dict[str, float], dict[str, float]]:
    """What baselines and oracles score beside a metric, by the run's headlines or else as they were logged."""
    if not run.infos:
        baselines, oracles = references_by_name(name, run.scores)
    else:
        baselines, oracles = references_of(name, run.scores, run.infos)
    for headline in run.headlines:
        if headline["metric"] == name:
            baselines = (headline.get("baselines") or {}) | baselines
            oracles = (headline.get("oracles") or {}) | oracles
    return baselines, oracles


def references_by_name(name: str, scores: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """Baselines and oracles of runs without a record of their metrics: theirs is the score's name and one part more.

    >>> references_by_name("val/miou/video/decoder", {"val/baseline/miou/video/grid": 0.2})
    ({'grid': 0.2}, {})
    """
    plain = re.sub(r"/(?:decoder|attention|mask_decoder)$", "", name.removeprefix("val/"))
    found: tuple[dict[str, float], dict[str, float]] = {}, {}
    for logged, value in scores.items():
        if not logged.startswith(("val/baseline/", "val/oracle/")):
            continue
        parts = logged.split("/")[2:]
        for place in range(1, len(parts)):
            if "/".join(parts[:place] + parts[place + 1 :]) == plain:
                found[logged.startswith("val/oracle/")][parts[place]] = value
    return found


def _agreed(given: Sequence[Mapping[str, float]]) -> tuple[dict[str, float], list[str]]:
    """Scores that are the same for all runs that have them, and the names of the others."""
    table = pd.DataFrame(given, dtype=float)
    table = table.where(np.isfinite(table))
    columns = {name: table[name].dropna() for name in table}
    # the mean of equal numbers may not be equal to them
    means = {n: float(v.iloc[0] if v.nunique() == 1 else v.mean()) for n, v in columns.items() if len(v)}
    varying = [name for name in means if np.ptp(columns[name]) > _AGREE * table[name].abs().max()]
    return {name: mean for name, mean in means.items() if name not in varying}, varying


def scores_of(runs: Runs, columns: Sequence[Column], select: str = "last") -> pd.DataFrame:
    """The scores that count, a line a run.

    With "best" they are all of one validation: the one at which the first column was best.

    Args:
        runs: any.
        columns: the first one selects.
        select: "last" or "best".

    Raises:
        ComparisonError: "best", and the direction of the first column is unknown.
    """
    names = [column.name for column in columns]
    if select == "last" or not columns:
        return runs.scores.reindex(columns=names)
    if columns[0].higher_is_better is None:
        raise ComparisonError(
            f"the best validation by {names[0]} is not known: nothing says whether higher is better; "
            "put another metric first with --sort"
        )
    lines = {}
    for id, run in runs.runs.items():
        curves = run.curves().reindex(columns=["step", *names]).groupby("step").last()
        first = curves[names[0]][np.isfinite(curves[names[0]])]
        if len(first):
            at = first.idxmax() if columns[0].higher_is_better else first.idxmin()
            lines[id] = curves.loc[:at].ffill().iloc[-1]
    return pd.DataFrame(lines, index=names).T.reindex(index=runs.scores.index)
