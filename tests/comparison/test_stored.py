"""A table against one that was stored."""

import math

import pytest

from slotbench.comparison.records import ComparisonError, RunRecord
from slotbench.comparison.stored import departures
from slotbench.comparison.table import compare
from slotbench.comparison.text_formats import to_csv


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
    assert departures(table(A=[1.0, 1.2], B=[3.0]), stored(A=[1.0, 1.2], B=[3.0])) == []


@pytest.mark.parametrize(("moved", "apart"), [(0.04, False), (0.2, False), (0.36, True), (-0.5, True)])
def test_a_mean_may_move_by_three_standard_errors_of_the_difference(stored, moved, apart):
    # the standard deviation is 0.1 in both, so that of a difference of means of two is 0.1
    values = [1.0, 1.0 + 0.1 * math.sqrt(2)]
    found = departures(table(A=[value + moved for value in values], B=[9.0]), stored(A=values, B=[9.0]))
    assert bool(found) is apart
    assert all("A, val/loss: 1.071 ± 0.1 (2) is stored" in line for line in found)


def test_single_runs_may_move_by_a_hundredth(stored):
    path = stored(A=[2.0], B=[1.0])
    assert departures(table(A=[2.019], B=[1.0]), path) == []
    assert len(departures(table(A=[2.03], B=[1.0]), path)) == 1


def test_a_row_that_is_gone_is_a_departure_and_a_new_one_is_none(stored):
    (line,) = departures(table(A=[1.0], C=[1.0]), stored(A=[1.0], B=[1.0]))
    assert line == "B, val/loss: 1 is stored, and nothing is there now"


def test_a_run_that_has_diverged_is_a_departure(stored):
    assert len(departures(table(A=[math.nan], B=[1.0]), stored(A=[1.0], B=[1.0]))) == 1
    assert departures(table(A=[math.nan], B=[1.0]), stored(A=[math.nan], B=[1.0])) == []


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "kind,label,parameters\nruns,A,1\n"])
def test_what_is_no_stored_table_is_refused(tmp_path, text):
    path = tmp_path / "stored.csv"
    path.write_text(text)
    with pytest.raises(ComparisonError, match=r"expected a table|is no table"):
        departures(table(A=[1.0], B=[2.0]), path)
    with pytest.raises(ComparisonError, match="no file"):
        departures(table(A=[1.0], B=[2.0]), tmp_path / "nowhere.csv")
