"""From clips to one number: means over samples, intervals over clips, and the half-life of all lives together."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy import stats

from slotbench.metrics.clip_scores import ClipScores
from slotbench.metrics.clip_summary import summaries
from slotbench.metrics.tracking import Tracking


def made(*pairs, **tracking):
    return [ClipScores({} if value is None else {"miou/frame": (value, weight)}) for value, weight in pairs]


def test_clips_of_equal_weight_have_students_interval():
    values = [0.2, 0.5, 0.9, 0.4]
    found = summaries(made(*((value, 3) for value in values)))["miou/frame"]
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert (found.mean, found.low, found.high) == pytest.approx((np.mean(values), low, high))


def test_a_mean_is_over_samples_and_its_interval_sees_how_many_a_clip_has():
    found = summaries(made((0.0, 1), (1.0, 3), (None, 0)))["miou/frame"]
    assert found.mean == 0.75
    assert (found.values, found.weights) == ([0.0, 1.0, None], [1, 3, 0])
    # three samples are off by 1/4, one by 3/4, so each clip by 3/4
    half = stats.t.ppf(0.975, 1) * np.sqrt(2 * 2 * 0.75**2) / 4
    assert (found.low, found.high) == pytest.approx((0.75 - half, 0.75 + half))


def test_intervals_hold_the_mean_as_often_as_they_say():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(400):
        weights = rng.integers(5, 30, 12)
        one = summaries(made(*((float(rng.normal(0.5, 0.1)), int(weight)) for weight in weights)))["miou/frame"]
        hits += one.low <= 0.5 <= one.high
    assert 0.91 < hits / 400 < 0.98


def test_a_single_clip_has_no_interval():
    found = summaries(made((0.5, 2)))["miou/frame"]
    assert (found.mean, found.low, found.high) == (0.5, None, None)


def test_the_half_life_is_of_the_lives_of_all_clips():
    both = (Tracking(ended=Counter({3: 1})), Tracking(held=Counter({9: 1})))
    clips = [ClipScores(tracking=tracking) for tracking in both]
    assert summaries(clips)["half_life"].mean == 3
    alone = summaries(clips[1:])["half_life"]
    assert (alone.mean, alone.beyond) == (float("inf"), 9)
