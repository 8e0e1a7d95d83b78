"""Scores by the frames since something was last seen."""

from __future__ import annotations

from slotbench.comparison.absence import baselines_over_absence, over_absence

SCORES = {"val/top1/seen": 0.9, "val/top1/unseen_25-48": 0.5, "val/top1/unseen_97+": 0.2, "val/top1/free": 0.8}
CONE = {"val/baseline/top1/seen/any cone": 0.1, "val/baseline/top1/unseen_97+/any cone": 0.7}
LAST = {"val/baseline/top1/seen/last seen": 1.0, "val/baseline/top1/unseen_97+/last seen": 0.05}


def test_a_point_stands_at_the_first_frame_of_its_bin():
    assert over_absence(SCORES | CONE) == {"absence/top1": {0: 0.9, 25: 0.5, 97: 0.2}}
    assert baselines_over_absence([SCORES | CONE | LAST]) == {
        "absence/top1": {"any cone": {0: 0.1, 97: 0.7}, "last seen": {0: 1.0, 97: 0.05}}
    }


def test_baselines_that_runs_do_not_agree_on_and_single_points_are_left_out():
    elsewhere = CONE | {"val/baseline/top1/seen/any cone": 0.2}
    single = {"val/baseline/top1/seen/uniform": 0.03}
    found = baselines_over_absence([SCORES | CONE | LAST, SCORES, SCORES | elsewhere | LAST | single])
    assert found == {"absence/top1": {"last seen": {0: 1.0, 97: 0.05}}}
    assert over_absence({"val/top1/seen": 0.9}) == {}
