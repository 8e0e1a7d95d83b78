"""Means over clips with confidence intervals, as values and for an evaluation record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from slotbench.metrics.clip_scores import ClipScores
from slotbench.metrics.tracking import Tracking

__all__ = ["Summary", "counted", "scores_as_record", "summaries"]


@dataclass(frozen=True)
class Summary:
    """One score over all clips.

    Attributes:
        mean: over all samples; in tracking the ratio of the counts of all clips.
        low: lower end of Student's 95 % interval of the mean, the clips being what varies; None for a single clip.
        high: its upper end.
        values: of each clip; None where it has no sample.
        weights: samples of each clip.
        beyond: of the half-life, frames that it is longer than, where clips are too short to show it; `mean` is then
            infinite.
    """

    mean: float
    low: float | None
    high: float | None
    values: Sequence[float | None] = ()
    weights: Sequence[int] = ()
    beyond: int | None = None


def summaries(clips: Sequence[ClipScores]) -> dict[str, Summary]:
    """Every score of a set of clips by name, and "half_life", which has no value per clip."""
    names = list(dict.fromkeys(name for clip in clips for name in clip.values))
    found = {}
    for name in names:
        pairs = [clip.values.get(name, (None, 0)) for clip in clips]
        found[name] = _summary([value for value, _ in pairs], [weight for _, weight in pairs])
    tracking = sum((clip.tracking for clip in clips), Tracking())
    if (half_life := tracking.half_life) is not None:
        longest = max((*tracking.ended, *tracking.held))
        found["half_life"] = Summary(half_life, None, None, beyond=longest if np.isinf(half_life) else None)
    return found


def counted(clips: Sequence[ClipScores]) -> Counter[str]:
    """Counts of special samples over all clips."""
    total: Counter[str] = Counter()
    for clip in clips:
        total.update(clip.counts)
    return total


def scores_as_record(clips: Sequence[ClipScores]) -> dict[str, Any]:
    """Every score by name: mean and interval, and what they are the mean of, clip by clip; plain values."""
    record: dict[str, Any] = {}
    for name, one in summaries(clips).items():
        record[name] = {"mean": one.mean, "low": one.low, "high": one.high}
        if name == "half_life":
            lives = [(clip.tracking.ended, clip.tracking.held) for clip in clips]
            record[name] |= {
                "mean": None if one.beyond is not None else one.mean,
                "longer_than": one.beyond,
                "ended": [dict(sorted(ended.items())) for ended, _ in lives],
                "held": [dict(sorted(held.items())) for _, held in lives],
            }
        else:
            record[name] |= {"values": list(one.values), "weights": list(one.weights)}
    return record


def _summary(values: Sequence[float | None], weights: Sequence[int]) -> Summary:
    """Mean of all samples, and its interval from how much the clips differ (a ratio of two means, linearised)."""
    known = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None]
    value, weight = np.array(known, dtype=np.float64).T
    mean = float((value * weight).sum() / weight.sum())
    low = high = None
    if len(known) > 1:
        away = weight * (value - mean)
        error = np.sqrt(len(known) / (len(known) - 1) * np.square(away).sum()) / weight.sum()
        half = float(stdtrit(len(known) - 1, 0.975)) * float(error)
        low, high = mean - half, mean + half
    return Summary(mean, low, high, values, weights)
