"""Which scores are columns, what they are called, which direction is better, and what trivial answers score."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from slotbench.comparison.records import Metric, RunRecord, UnknownNameError

__all__ = ["choose_metrics", "find_metric"]

_FLOOR, _LOSS = "val/floor/", "val/loss"
_LOWER = frozenset({"loss", "mse", "bce", "nll", "lpips", "fvd", "error"})
_HIGHER = frozenset({"accuracy", "iou", "miou", "ari", "mbo", "psnr", "ssim", "r2"})
# masks can be read off in two ways, and are scored beside the same trivial segmentations
_MASKS = ("decoder", "attention")
_AGREE = 0.05


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
    if wanted:
        names = list(dict.fromkeys(name for given in wanted for name in _matching(given, known)))
    else:
        names = [name for name in headlines if name in known]
        names += [_LOSS] if _LOSS in known and _LOSS not in names else []
    metrics, notes = [], []
    for name in names:
        floors, varying = _floors(name, runs)
        metrics.append(replace(headlines.get(name) or _by_name(name), floors=floors))
        notes += [f"{name}: the floor {floor} is not the same for all runs, and left out" for floor in varying]
    return metrics, notes


def find_metric(given: str, runs: Sequence[RunRecord]) -> str:
    """One metric's name, with or without "val/".

    Raises:
        UnknownNameError: no run has logged it.
    """
    known = _known(runs)
    for name in (given, f"val/{given}"):
        if name in known:
            return name
    raise UnknownNameError("metric", given, known)


def _known(runs: Sequence[RunRecord]) -> list[str]:
    return list(dict.fromkeys(name for run in runs for name in run.summary if not name.startswith(_FLOOR)))


def _matching(given: str, known: Sequence[str]) -> list[str]:
    for pattern in (given, f"val/{given}"):
        if found := [pattern] if pattern in known else fnmatch.filter(known, pattern):
            return found
    raise UnknownNameError("metric", given, known)


def _headlines(runs: Sequence[RunRecord]) -> dict[str, Metric]:
    found: dict[str, Metric] = {}
    for run in runs:
        for headline in _records(run):
            name = str(headline["metric"])
            found.setdefault(name, Metric(name, str(headline.get("label") or name), headline.get("higher_is_better")))
    return found


def _records(run: RunRecord) -> list[dict[str, Any]]:
    headlines = run.info.get("headlines")
    return [item for item in headlines or [] if isinstance(item, dict) and "metric" in item]


def _by_name(name: str) -> Metric:
    words = set(re.split(r"[/_\W]+", name.lower()))
    directions = {False} if words & _LOWER else set()
    directions |= {True} if words & _HIGHER else set()
    return Metric(name, name.removeprefix("val/"), directions.pop() if len(directions) == 1 else None)


def _floors(name: str, runs: Sequence[RunRecord]) -> tuple[dict[str, float], list[str]]:
    """What trivial answers score where all runs agree on it, and the names of the others."""
    found: dict[str, list[float]] = {}
    for run in runs:
        own = dict(floor for headline in _records(run) if headline["metric"] == name for floor in _given(headline))
        for logged, value in run.summary.items():
            if logged.startswith(_FLOOR) and (floor := _floor_name(logged, name)):
                own.setdefault(floor, value)
        for floor, value in own.items():
            found.setdefault(floor, []).append(value)
    # the mean of equal numbers may not be equal to them
    means = {floor: values[0] if len(set(values)) == 1 else fmean(values) for floor, values in found.items()}
    varying = [
        floor
        for floor, values in found.items()
        if max(values) - min(values) > _AGREE * max(map(abs, values), default=0)
    ]
    return {floor: mean for floor, mean in means.items() if floor not in varying}, varying


def _given(headline: dict[str, Any]) -> list[tuple[str, float]]:
    floors = headline.get("floors")
    return [(str(floor), float(value)) for floor, value in floors.items()] if isinstance(floors, dict) else []


def _floor_name(logged: str, metric: str) -> str | None:
    """The floor that `val/floor/...` is of the metric: one part more than the metric has, anywhere but in front."""
    parts, own = logged.removeprefix(_FLOOR).split("/"), metric.removeprefix("val/").split("/")
    if own[-1] in _MASKS and len(parts) == len(own):
        own = own[:-1]
    if len(parts) != len(own) + 1:
        return None
    for index in range(1, len(parts)):
        if parts[:index] + parts[index + 1 :] == own:
            return parts[index]
    return None
