"""The columns of a table: which metrics, their names and directions, and which of the values of a run count."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np

from slotbench.comparison.records import RULES, ComparisonError, Metric, RunRecord, UnknownNameError
from slotbench.errors import listing
from slotbench.metric_info import (
    MetricInfo,
    info_of,
    infos_from_record,
    is_reference,
    references_of,
)
from slotbench.runs.oracles import split_references

__all__ = ["choose_metrics", "find_metric", "scores"]

_LOSS = "val/loss"
_AGREE = 0.05
_APART = "; --only KEY=VALUE compares a part of the runs"
_MANY = 4


def choose_metrics(runs: Sequence[RunRecord], wanted: Sequence[str] | None) -> tuple[list[Metric], list[str]]:
    """The columns and notes about them.

    Args:
        runs: at least one.
        wanted: names, or patterns with `*`, with or without "val/"; None for the headlines of the runs and their
            validation loss.

    Raises:
        UnknownNameError: no run has logged it.
    """
    known = _known(runs)
    headlines = _headlines(runs)
    infos = [infos_from_record(run.info.get("metric_infos")) for run in runs]
    together = {name: info for own in reversed(infos) for name, info in own.items()}
    if wanted:
        names = list(dict.fromkeys(name for given in wanted for name in _matching(given, known)))
    else:
        names = [name for name in headlines if name in known]
        names += [_LOSS] if _LOSS in known and _LOSS not in names else []
    # those of one name beside each other
    order = {logged: place for place, logged in reversed(list(enumerate(name.partition(RULES)[0] for name in names)))}
    names.sort(key=lambda name: order[name.partition(RULES)[0]])
    metrics: list[Metric] = []
    left_out: dict[str, list[str]] = {}
    for name in names:
        # baselines of another rule are of another column
        known_of = [
            _references(name, run, own)
            for run, own in zip(runs, infos, strict=True)
            if RULES not in name or name in run.summary
        ]
        baselines, varying = _agreed([baselines for baselines, _ in known_of])
        oracles, differing = _agreed([oracles for _, oracles in known_of])
        metric = headlines.get(name) or _described(name, together)
        metrics.append(replace(metric, baselines=baselines, oracles=oracles))
        for one in [*(f"baseline {one}" for one in varying), *(f"oracle {one}" for one in differing)]:
            left_out.setdefault(one, []).append(name)
    notes = [
        f"the {one} is not the same for all runs, and left out of {listing(of, _MANY)}{_APART}"
        for one, of in left_out.items()
    ]
    return metrics, notes


def find_metric(given: str, runs: Sequence[RunRecord]) -> str:
    """One metric's name, with or without "val/".

    Raises:
        UnknownNameError: no run has logged it.
    """
    known = _known(runs)
    for name in (given, f"val/{given}"):
        if found := [one for one in known if one == name or one.startswith(f"{name}{RULES}")]:
            return found[0]
    raise UnknownNameError("metric", given, known)


def _known(runs: Sequence[RunRecord]) -> list[str]:
    return list(dict.fromkeys(name for run in runs for name in run.summary if not is_reference(name)))


def _matching(given: str, known: Sequence[str]) -> list[str]:
    for pattern in (given, f"val/{given}"):
        by_rules = [name for name in known if name.startswith(f"{pattern}{RULES}")]
        if found := by_rules or ([pattern] if pattern in known else fnmatch.filter(known, pattern)):
            return found
    raise UnknownNameError("metric", given, known)


def _headlines(runs: Sequence[RunRecord]) -> dict[str, Metric]:
    found: dict[str, Metric] = {}
    for run in runs:
        for headline in run.info.get("headlines", ()):
            name = headline["metric"]
            found.setdefault(name, Metric(name, headline.get("label") or name, headline.get("higher_is_better")))
    return found


def _described(name: str, infos: Mapping[str, MetricInfo]) -> Metric:
    info = info_of(name.partition(RULES)[0], infos)
    return Metric(name, name.removeprefix("val/"), info.higher_is_better)


def _references(
    name: str, run: RunRecord, infos: Mapping[str, MetricInfo]
) -> tuple[dict[str, float], dict[str, float]]:
    """What baselines and what oracles score in a run, by the run's headlines or else as they were logged."""
    baselines: dict[str, float] = {}
    oracles: dict[str, float] = {}
    for headline in run.info.get("headlines", ()):
        if headline["metric"] == name:
            own_baselines, own_oracles = split_references(headline)
            baselines, oracles = baselines | own_baselines, oracles | own_oracles
    logged = references_of(name.partition(RULES)[0], run.summary, infos)
    return logged.baselines | baselines, logged.oracles | oracles


def _agreed(given: Sequence[dict[str, float]]) -> tuple[dict[str, float], list[str]]:
    """Scores that are the same for all runs that have them, and the names of the others."""
    found: dict[str, list[float]] = {}
    for own in given:
        for name, value in own.items():
            found.setdefault(name, []).append(value)
    # the mean of equal numbers may not be equal to them
    means = {name: values[0] if len(set(values)) == 1 else fmean(values) for name, values in found.items()}
    varying = [
        name
        for name, values in found.items()
        if len(set(values)) > 1 and not max(values) - min(values) <= _AGREE * max(map(abs, values))
    ]
    return {name: mean for name, mean in means.items() if name not in varying}, varying


# validations beyond these are thinned out
_VALIDATIONS = 2000


def scores(run: RunRecord, columns: Sequence[Metric], select: str) -> dict[str, float]:
    """A run's values of the columns, as far as it has them.

    With "best" they are all of one moment: the validation at which the first column was best, as if its checkpoint had
    been kept. Each column's own best would be a run that there never was.

    Args:
        run: any.
        columns: the first one selects.
        select: "last" or "best".

    Raises:
        ComparisonError: "best", and the direction of the first column is unknown.
    """
    names = [metric.name for metric in columns]
    if select == "last" or not columns:
        return {name: run.summary[name] for name in names if name in run.summary}
    if columns[0].higher_is_better is None:
        raise ComparisonError(
            f"the best validation by {names[0]} is not known: nothing says whether higher is better; "
            "put another metric first with --sort"
        )
    curves = run.curves(_VALIDATIONS)
    steps, values = curves.get(names[0], (np.zeros(0), np.zeros(0)))
    finite = np.isfinite(values)
    if not finite.any():
        return {}
    steps, values = steps[finite], values[finite]
    # the first of equals: the run was that good at that step already
    at = steps[np.argmax(values) if columns[0].higher_is_better else np.argmin(values)]
    found = {}
    for name in names:
        steps, values = curves.get(name, (np.zeros(0), np.zeros(0)))
        place = int(np.searchsorted(steps, at, side="right")) - 1
        if place >= 0:
            found[name] = float(values[place])
    return found
