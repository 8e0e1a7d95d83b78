"""Mean, spread, interval and Welch's test, against numpy and scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from slotbench.comparison.records import Cell
from slotbench.comparison.statistics import differ, summarise, welch

NUMBERS = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=8)


@given(NUMBERS)
def test_mean_and_standard_deviation_are_numpys(values):
    cell = summarise(values)
    assert cell.mean == pytest.approx(np.mean(values))
    assert cell.std == pytest.approx(np.std(values, ddof=1))


@given(NUMBERS)
def test_interval_lies_within_the_values_and_around_the_mean(values):
    cell = summarise(values)
    room = 1e-9 * max(map(abs, values))
    assert min(values) - room <= cell.low <= cell.mean + room
    assert cell.mean - room <= cell.high <= max(values) + room


def test_interval_is_that_of_scipys_percentile_bootstrap():
    values = np.random.default_rng(3).normal(size=12)
    expected = scipy.stats.bootstrap(
        (values,), np.mean, method="percentile", n_resamples=20_000, rng=np.random.default_rng(1)
    ).confidence_interval
    cell = summarise(values.tolist())
    assert cell.low == pytest.approx(expected.low, abs=0.04)
    assert cell.high == pytest.approx(expected.high, abs=0.04)


def test_interval_is_the_same_every_time():
    assert summarise([0.1, 0.7, 0.4]) == summarise([0.1, 0.7, 0.4])


def test_equal_values_have_no_spread_at_all():
    assert summarise([0.4, 0.4, 0.4]) == Cell((0.4, 0.4, 0.4), 0.4, 0.0, 0.4, 0.4)


def test_a_single_value_has_no_spread():
    assert summarise([0.5]) == Cell((0.5,), 0.5)


def test_a_diverged_run_makes_the_mean_no_number():
    cell = summarise([0.5, math.nan])
    assert math.isnan(cell.mean)
    assert math.isnan(cell.std)


@given(NUMBERS, NUMBERS)
def test_welch_is_scipys(first, second):
    a, b = np.asarray(first), np.asarray(second)
    if min(a.std(), b.std()) < 1e-6:
        return  # scipy loses its digits there
    assert welch(first, second) == pytest.approx(scipy.stats.ttest_ind(a, b, equal_var=False).pvalue, abs=1e-9)


def test_welch_without_any_spread():
    assert welch([1.0, 1.0], [2.0, 2.0]) == 0.0
    assert welch([1.0, 1.0], [1.0, 1.0]) == 1.0


def test_two_rows_differ_beyond_their_spread_or_not():
    assert differ(summarise([0.90, 0.91, 0.92]), summarise([0.50, 0.52, 0.51]))
    assert not differ(summarise([0.9, 0.2, 0.6]), summarise([0.5, 0.4, 0.7]))


def test_a_single_run_never_differs():
    assert not differ(summarise([0.9]), summarise([0.1, 0.11]))
    assert not differ(summarise([0.9, 0.91]), summarise([0.1]))
