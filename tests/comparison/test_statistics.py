"""Mean, spread, interval and Welch's test, against numpy and scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from slotbench.comparison.records import Cell
from slotbench.comparison.statistics import apart, is_best, summarise, welch

NUMBERS = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=8)


@given(NUMBERS)
def test_mean_and_standard_deviation_are_numpys(values):
    cell = summarise(values)
    assert cell.mean == pytest.approx(np.mean(values))
    assert cell.std == pytest.approx(np.std(values, ddof=1))


@given(NUMBERS)
def test_the_interval_is_scipys(values):
    cell = summarise(values)
    if cell.std == 0.0:
        assert cell.low == cell.high == cell.mean
        return
    low, high = scipy.stats.t.interval(0.95, len(values) - 1, np.mean(values), scipy.stats.sem(values))
    room = 1e-9 * (high - low) + 1e-9
    assert cell.low == pytest.approx(low, abs=room)
    assert cell.high == pytest.approx(high, abs=room)


@pytest.mark.parametrize("count", [2, 3, 5, 10])
def test_the_interval_holds_the_true_mean_in_95_of_100_tables(count):
    tables = np.random.default_rng(count).normal(3.0, 2.0, (4000, count))
    cells = [summarise(values) for values in tables.tolist()]
    covered = np.mean([cell.low <= 3.0 <= cell.high for cell in cells])
    assert 0.93 < covered < 0.97


def test_interval_is_the_same_every_time():
    assert summarise([0.1, 0.7, 0.4]) == summarise([0.1, 0.7, 0.4])


def test_equal_values_have_no_spread_at_all():
    assert summarise([0.4, 0.4, 0.4]) == Cell((0.4, 0.4, 0.4), 0.4, 0.0, 0.4, 0.4)


def test_a_single_value_has_no_spread():
    assert summarise([0.5]) == Cell((0.5,), 0.5)


def test_a_score_that_is_no_number_makes_the_mean_none():
    cell = summarise([0.5, math.nan])
    assert math.isnan(cell.mean)
    assert math.isnan(cell.std)


@given(NUMBERS, NUMBERS)
def test_welch_is_scipys(first, second):
    a, b = np.asarray(first), np.asarray(second)
    if min(a.std(), b.std()) < 1e-6:
        return  # scipy loses its digits there
    assert welch(first, second) == pytest.approx(scipy.stats.ttest_ind(a, b, equal_var=False).pvalue, abs=1e-9)


@pytest.mark.parametrize("scale", [1e-200, 1e-160, 1e150, 1e300])
def test_welch_and_the_mean_at_the_ends_of_the_floats(scale):
    values = [1.0 * scale, 2.0 * scale, 4.0 * scale]
    assert 0.0 <= welch(values, [-value for value in values]) <= 1.0
    assert summarise(values).mean == pytest.approx(7 / 3 * scale)


def test_welch_without_any_spread():
    assert welch([1.0, 1.0], [2.0, 2.0]) == 0.0
    assert welch([1.0, 1.0], [1.0, 1.0]) == 1.0


def test_the_best_is_better_than_every_other_row_by_more_than_the_spread():
    good, bad, worse = summarise([0.90, 0.91, 0.92]), summarise([0.50, 0.52, 0.51]), summarise([0.1, 0.3, 0.2])
    assert is_best(good, [bad, worse])
    assert not is_best(good, [])
    assert not is_best(summarise([0.9, 0.2, 0.6]), [summarise([0.5, 0.4, 0.7])])
    assert not is_best(good, [summarise([0.90, 0.905, 0.91]), worse])


def test_a_single_run_is_never_the_best_and_leaves_nobody_the_best():
    assert not is_best(summarise([0.9]), [summarise([0.1, 0.11])])
    assert not is_best(summarise([0.9, 0.91]), [summarise([0.1])])
    assert not is_best(summarise([0.9, 0.91, 0.92]), [summarise([0.1, 0.11, 0.1]), summarise([0.0])])


def test_more_rows_ask_for_a_larger_difference():
    best, second = summarise([0.60, 0.62, 0.64]), summarise([0.52, 0.55, 0.57])
    p = welch(best.values, second.values)
    assert 0.01 < p < 0.05
    assert is_best(best, [second])
    far = summarise([0.10, 0.11, 0.12])
    assert not is_best(best, [second, *[far] * 9])


def test_among_equal_rows_hardly_one_table_in_twenty_marks_a_best():
    draws = np.random.default_rng(0).normal(size=(1000, 4, 3))
    marked = 0
    for table in draws:
        cells = sorted((summarise(values) for values in table.tolist()), key=lambda cell: -cell.mean)
        marked += is_best(cells[0], cells[1:])
    assert marked < 50


@pytest.mark.parametrize(("first", "second"), [(2, 2), (3, 2), (3, 3)])
def test_two_tables_of_the_same_training_are_apart_as_often_as_the_level_says(first, second):
    draws = np.random.default_rng(1).normal(size=(3000, first + second))
    seen = [apart(summarise(row[:first].tolist()), summarise(row[first:].tolist()), 0.05) for row in draws]
    assert 0.035 < np.mean(seen) < 0.065


def test_means_that_are_apart_are_students():
    values = np.random.default_rng(2).normal(size=(200, 5)) + np.array([0, 0, 0, 1.5, 1.5])
    for row in values:
        p = scipy.stats.ttest_ind(row[:3], row[3:]).pvalue
        assert apart(summarise(row[:3].tolist()), summarise(row[3:].tolist()), 0.05) == (p < 0.05)
