"""A table against one that was stored."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from slotbench.comparison.formats.text_formats import to_csv
from slotbench.comparison.records import ComparisonError, RunRecord
from slotbench.comparison.stored_table import changed_scores
from slotbench.comparison.table import compare


def table(**scores):
    """A comparison of cores, a run for each of their scores."""
    runs = [
        RunRecord(
            id=f"{core}-{seed}",
            name=core,
            source="here",
            state="finished",
            settings={"model.core": core, "seed_everything": seed},
            summary={"val/loss": value},
        )
        for core, values in scores.items()
        for seed, value in enumerate(values)
    ]
    return compare(runs, metrics=["val/loss"])


@pytest.fixture
def stored(tmp_path):
    def store(**scores):
        path = tmp_path / "stored.csv"
        path.write_text(to_csv(table(**scores)))
        return path

    return store


def test_the_same_table_departs_in_nothing(stored):
    assert changed_scores(table(A=[1.0, 1.2], B=[3.0]), stored(A=[1.0, 1.2], B=[3.0])) == []


@pytest.mark.parametrize(("moved", "apart"), [(0.04, False), (0.36, False), (0.6, False), (0.65, True), (-0.65, True)])
def test_a_mean_may_move_as_far_as_students_test_lets_it(stored, moved, apart):
    # the standard deviation is 0.1 in both, so that of a difference of means of two is 0.1; there are two scores, and
    # t(1 - 0.05 / 2 / 2, 2) is 6.2
    values = [1.0, 1.0 + 0.1 * math.sqrt(2)]
    found = changed_scores(table(A=[value + moved for value in values], B=[9.0]), stored(A=values, B=[9.0]))
    assert bool(found) is apart
    assert all("A, val/loss: 1.071 ± 0.1 (2) is stored" in line for line in found)


def test_a_table_with_other_seeds_seldom_departs(stored, tmp_path):
    draws = np.random.default_rng(0).normal(5.0, 1.0, (300, 2, 3, 2))
    departed = 0
    for before, after in draws.tolist():
        path = stored(A=before[0], B=before[1], C=before[2])
        departed += bool(changed_scores(table(A=after[0], B=after[1], C=after[2]), path))
    assert departed <= 0.08 * len(draws)


def test_the_nightly_table_has_students_intervals():
    path = Path(__file__).parents[2] / "experiments/grids/nightly.csv"
    rows = [row for row in csv.DictReader(path.read_text().splitlines()) if row["kind"] == "runs"]
    names = [name for name in rows[0] if f"{name}_n" in rows[0]]
    assert (len(rows), len(names)) == (3, 3)
    for row in rows:
        for name in names:
            mean, std, count, low, high = (float(row[f"{name}{end}"]) for end in ("", "_std", "_n", "_low", "_high"))
            expected = scipy.stats.t.interval(0.95, count - 1, mean, std / math.sqrt(count))
            assert (low, high) == pytest.approx(expected)


def test_single_runs_may_move_by_a_hundredth(stored):
    path = stored(A=[2.0], B=[1.0])
    assert changed_scores(table(A=[2.019], B=[1.0]), path) == []
    assert len(changed_scores(table(A=[2.03], B=[1.0]), path)) == 1


def test_a_row_that_is_gone_is_a_departure_and_a_new_one_is_none(stored):
    (line,) = changed_scores(table(A=[1.0], C=[1.0]), stored(A=[1.0], B=[1.0]))
    assert line == "B, val/loss: 1 is stored, and nothing is there now"


def test_a_run_that_has_diverged_is_a_departure(stored):
    assert len(changed_scores(table(A=[math.nan], B=[1.0]), stored(A=[1.0], B=[1.0]))) == 1
    assert changed_scores(table(A=[math.nan], B=[1.0]), stored(A=[math.nan], B=[1.0])) == []


@pytest.mark.parametrize(
    "cells", ["x,0.1,2", "1.0,?,2", "1.0,0.1,two", "1.0,0.1,1000000000000", "1.0,0.1,-3", "1.0,0.1," + "9" * 5000]
)
def test_a_stored_table_with_a_damaged_cell_is_refused_in_a_sentence(tmp_path, cells):
    path = tmp_path / "stored.csv"
    path.write_text(f"kind,label,parameters,val/loss,val/loss_std,val/loss_n\nruns,A,1,{cells}\n")
    with pytest.raises(ComparisonError, match=r"stored.csv has no number where A has val/loss"):
        changed_scores(table(A=[1.0]), path)


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "kind,label,parameters\nruns,A,1\n"])
def test_what_is_no_stored_table_is_refused(tmp_path, text):
    path = tmp_path / "stored.csv"
    path.write_text(text)
    with pytest.raises(ComparisonError, match=r"expected a table|is no table"):
        changed_scores(table(A=[1.0], B=[2.0]), path)
    with pytest.raises(ComparisonError, match="no file"):
        changed_scores(table(A=[1.0], B=[2.0]), tmp_path / "nowhere.csv")
