"""`docs/scripts/contrasts.py`: the tests behind the verdicts of `docs/results.md`."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path

import pytest

from slotbench.comparison.records import ComparisonError

ROOT = Path(__file__).parents[2]
STUDY = {
    "sides": {"one": {"model.core": "A"}, "other": {"model.core": "B"}, "guess": "val/baseline/score/guess"},
    "scores": [{"score": "score", "metric": "val/score", "pairs": [["one", "other"], ["one", "guess"]]}],
}


@pytest.fixture(scope="module")
def made():
    sys.path.insert(0, str(ROOT / "docs" / "scripts"))
    import contrasts

    return contrasts


@pytest.fixture
def runs(made):
    scores = {"A": [1.0, 2.0, 3.0], "B": [2.0, 3.0, 4.5]}
    baseline = {"val/baseline/score/guess": 5.0}
    return [
        made.Scored({"model.core": core}, {"val/score": value} | baseline)
        for core, values in scores.items()
        for value in values
    ]


def test_welch_and_the_one_sample_test_are_those_of_scipy(made, runs):
    stats = pytest.importorskip("scipy.stats")
    welch, one_sample = made.contrasts(STUDY, runs)
    expected = stats.ttest_ind([1, 2, 3], [2, 3, 4.5], equal_var=False)
    assert welch.p == pytest.approx(expected.pvalue)
    middle, half = welch.difference
    interval = expected.confidence_interval()
    assert (middle - half, middle + half) == pytest.approx((interval.low, interval.high))
    expected = stats.ttest_1samp([1, 2, 3], 5.0)
    assert one_sample.p == pytest.approx(expected.pvalue)
    middle, half = one_sample.difference
    assert middle + half + 5 == pytest.approx(expected.confidence_interval().high)
    assert welch.holm == pytest.approx(max(2 * one_sample.p, welch.p))


def test_holm_corrects_step_by_step(made):
    assert made.holm([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.09, 0.09, 0.5])
    assert made.holm([0.6, 0.7]) == [1.0, 1.0]


def test_what_was_read_off_a_run_is_a_score(made, tmp_path):
    assert made.probed(tmp_path) == {}
    trained, alone = {"error": 2.0}, {"error": 2.5}
    written = {
        "probe": {"factors": {"colour": {"linear": 0.5, "baselines": {"most common": 0.2}}}},
        "probe-fields": {"scores": {"states": {"place": 0.75}}},
        "probe-switched": {
            "scores": {"as trained": trained, "without module 0": alone, "without module 1": {"error": 5.5}}
        },
    }
    for name, record in written.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(record))
    found = made.probed(tmp_path)
    assert (found["colour/linear"], found["states/place"]) == (0.5, 0.75)
    assert found["without module 0, change/error"] == 0.5
    assert found["without a module, change/error"] == 2.0


def test_a_side_without_runs_is_named(made, runs):
    study = STUDY | {"sides": STUDY["sides"] | {"other": {"model.core": "C"}}}
    with pytest.raises(ComparisonError, match="no run of other has val/score"):
        made.contrasts(study, runs)


def test_numbers_have_three_digits(made):
    def of(first, second):
        return made.rows([made.Contrast("score", ("a", "b"), (first, second), 0.0123, 0.0004)])[0]

    assert of([0.1, 0.2], [0.3, 0.4]).split(" | ")[1:3] == ["a 0.150 ± 0.071 (n = 2)", "b 0.350 ± 0.071 (n = 2)"]
    assert of([20.0, 22.0], [30.0]).split(" | ")[1:3] == ["a 21.0 ± 1.4 (n = 2)", "b 30.0"]
    assert of([20.0, 22.0], [30.0]).endswith("| 0.01 | < 0.001 |")


def test_every_study_names_a_grid_with_records_and_sides_that_are_there(made):
    for name, study in made.read_studies().items():
        pairs = [pair for given in study["scores"] for pair in given["pairs"]]
        assert {side for pair in pairs for side in pair} <= set(study["sides"]), name
        for grid in made.grids_of(study):
            assert (made.GRIDS / f"{grid}.yaml").is_file(), name


def test_what_is_read_off_the_records_of_slot_counts_is_in_the_results(made):
    """The one archive that is read as it is: its numbers are on the page."""
    study = made.read_studies()["slot_counts"]
    found = {(c.score, c.names): c.difference[0] for c in made.contrasts(study, made.runs_of(study, Path("none")))}
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    line = next(line for line in page.splitlines() if "the weighted mean loses" in line)
    loss = found["change of FG-ARI, 7 to 15 slots", ("mean", "no change")]
    better = found["change of FG-ARI, 7 to 15 slots", ("sum", "mean")]
    assert [float(number) for number in re.findall(r"(?:mean|sum) ([-+]\d\.\d{3})", line)] == [
        pytest.approx(loss, abs=0.0006),
        pytest.approx(better, abs=0.0006),
    ]
    assert math.isfinite(loss)
