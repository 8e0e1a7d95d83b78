"""The curves of a comparison's page: which, how many points, and how their numbers are written."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_comparisons import ERROR, SCORE, made_up

from slotbench.comparison.page.curves import CurveTable
from slotbench.comparison.records import Comparison, Curve, Metric, Row, RunRecord, thinned


def _run(number: int = 0, **fields: Any) -> RunRecord:
    return RunRecord(f"id-{number}", f"run {number}", f"runs/{number}", "finished", {}, {}, **fields)


def _comparison(*runs: RunRecord, metrics: tuple[Metric, ...] = ()) -> Comparison:
    return Comparison("of runs", [], metrics, [Row(run.name, {}, [run], {}) for run in runs])


def _curves_of(length: int, names: list[str]) -> Any:
    steps = np.arange(length)
    return lambda limit: {name: thinned((steps, np.sin(steps / 50)), limit) for name in names}


def test_steps_that_several_curves_share_are_held_once():
    comparison = made_up(cores=2, slots=(4,), seeds=3, points=40)
    table = CurveTable.read(comparison, 400)
    assert len(table.steps) == 2
    assert len(table.values[SCORE]) == 6
    position, values = table.values["train/loss"][0]
    assert table.steps[position] == list(range(10, 401, 10))
    assert len(values) == 40


def test_the_metrics_of_the_table_come_first_and_clocks_are_no_metric():
    table = CurveTable.read(made_up(), 400)
    assert table.metrics == [SCORE, ERROR, "train/loss", "val/other"]
    series, hours = table.clocks[0]
    assert hours[-1] == pytest.approx(6 * table.steps[series][-1] / 3600, rel=1e-4)


def test_further_metrics_share_the_room_that_is_left():
    others = [f"other/{number:02}" for number in range(20)]
    runs = [_run(number, curves=_curves_of(1000, [SCORE, *others])) for number in range(4)]
    comparison = _comparison(*runs, metrics=(Metric(SCORE, "score"),))
    table = CurveTable.read(comparison, 300, most_points=4 * (300 + 20 * 50))
    assert {len(values) for _, values in table.values[SCORE].values()} == {300}
    assert {len(values) for name in others for _, values in table.values[name].values()} == {50}
    assert table.left_out == []
    series, _ = table.values[others[0]][0]
    assert (table.steps[series][0], table.steps[series][-1]) == (0, 999)


def test_metrics_for_which_there_is_no_room_are_named():
    others = [f"other/{number:02}" for number in range(20)]
    runs = [_run(number, curves=_curves_of(1000, [SCORE, *others])) for number in range(4)]
    comparison = _comparison(*runs, metrics=(Metric(SCORE, "score"),))
    table = CurveTable.read(comparison, 400, most_points=4 * (100 + 16 * 5))
    assert {len(values) for _, values in table.values[SCORE].values()} == {100}
    assert table.metrics == [SCORE, *others[:5]]
    assert table.left_out == others[5:]


def test_curves_are_read_once_and_with_the_limit():
    asked = []

    def curves(limit: int) -> Mapping[str, Curve]:
        asked.append(limit)
        return {"train/loss": (np.arange(3), np.ones(3))}

    CurveTable.read(_comparison(_run(curves=curves)), 123)
    assert asked == [123]


@given(st.lists(st.floats(), min_size=1, max_size=20))
def test_curves_keep_five_digits_and_gaps_where_no_number_is(given_values):
    values = np.array(given_values)
    run = _run(curves=lambda limit: {"train/loss": (np.arange(len(values)), values)})
    ((_, shown),) = CurveTable.read(_comparison(run), 400).values["train/loss"].values()
    for value, number in zip(given_values, shown, strict=True):
        if math.isfinite(value):
            assert number == pytest.approx(value, rel=1e-4, abs=1e-290)
        else:
            assert number is None


def test_numbers_of_curves_are_short():
    values = np.random.default_rng(0).normal(size=500) * 10.0 ** np.random.default_rng(1).integers(-6, 7, 500)
    run = _run(curves=lambda limit: {"train/loss": (np.arange(500), values)})
    ((_, shown),) = CurveTable.read(_comparison(run), 500).values["train/loss"].values()
    assert all(len(re.sub(r"e.*|[-.]", "", repr(number)).strip("0")) <= 5 for number in shown)


def test_thinning_keeps_the_ends_and_the_spacing():
    steps, values = thinned((np.arange(1000), np.arange(1000.0)), 10)
    assert list(steps) == [0, 111, 222, 333, 444, 555, 666, 777, 888, 999]
    assert list(values) == list(steps)
