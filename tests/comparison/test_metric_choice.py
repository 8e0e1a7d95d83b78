"""Columns of scores: which, their direction, their baselines."""

from __future__ import annotations

import pytest
from made_up_runs import record, seeds

from slotbench.comparison.metric_choice import choose_metrics, find_metric
from slotbench.comparison.records import UnknownNameError

LOGGED = {
    "val/rollout_mse": 0.2,
    "val/rollout_mse/step_05": 0.1,
    "val/fg_ari/video/decoder": 0.5,
    "val/fg_ari/video/attention": 0.6,
    "val/live_slots": 7.0,
    "val/baseline/rollout_mse/black": 0.3,
    "val/baseline/rollout_mse/constant velocity, walls": 0.05,
    "val/baseline/rollout_mse/black/step_05": 0.25,
    "val/baseline/fg_ari/video/grid 3x3": 0.4,
}


def names(metrics):
    return [metric.name for metric in metrics]


def columns(wanted, runs=None):
    return choose_metrics(runs or [record("a", {}, LOGGED, headlines=[])], wanted)[0]


def test_headlines_and_then_the_validation_loss():
    metrics = columns(None, seeds("RIM", [0.5]))
    assert names(metrics) == ["val/iou", "val/mse", "val/loss"]
    assert metrics[0].label == "where: IoU"
    assert [metric.higher_is_better for metric in metrics] == [True, False, False]
    assert metrics[0].baselines == {"black": 0.0, "copy": 0.4}


def test_a_headline_that_nobody_has_logged_is_no_column():
    assert columns(None, [record("a", {}, {"val/loss": 1.0})])[0].name == "val/loss"


def test_names_and_patterns_with_and_without_their_prefix():
    assert names(columns(["val/live_slots", "rollout_mse"])) == ["val/live_slots", "val/rollout_mse"]
    assert names(columns(["fg_ari/*"])) == ["val/fg_ari/video/decoder", "val/fg_ari/video/attention"]
    assert names(columns(["val/fg*", "val/*"]))[0] == "val/fg_ari/video/decoder"
    assert not any("baseline" in name for name in names(columns(["*"])))


def test_an_unknown_metric_names_what_there_is():
    with pytest.raises(UnknownNameError) as error:
        columns(["val/rolout"])
    assert "val/rollout_mse" in error.value.known
    assert not any("baseline" in name for name in error.value.known)
    with pytest.raises(UnknownNameError):
        find_metric("rolout", [record("a", {}, LOGGED)])


@pytest.mark.parametrize(
    ("name", "higher"),
    [
        ("val/rollout_mse/step_05", False),
        ("val/loss", False),
        ("val/lpips/frame", False),
        ("val/colour_accuracy", True),
        ("val/fg_ari/video/decoder", True),
        ("val/miou", True),
        ("val/psnr", True),
        ("val/live_slots", None),
        ("val/psnr_loss", None),
    ],
)
def test_direction_by_name_where_it_is_known(name, higher):
    assert columns([name], [record("a", {}, {name: 0.5}, headlines=[])])[0].higher_is_better is higher


def test_baselines_as_they_were_logged():
    assert columns(["rollout_mse"])[0].baselines == {"black": 0.3}
    assert columns(["rollout_mse/step_05"])[0].baselines == {"black": 0.25}
    assert columns(["fg_ari/video/decoder"])[0].baselines == {"grid 3x3": 0.4}
    assert columns(["fg_ari/video/attention"])[0].baselines == {"grid 3x3": 0.4}


@pytest.mark.parametrize("logged", ["val/baseline/mse/constant velocity", "val/oracle/mse/constant velocity"])
def test_an_oracle_is_no_baseline_in_runs_of_any_age(logged):
    runs = [record("a", {}, {"val/mse": 0.1, logged: 0.01, "val/baseline/mse/black": 0.3}, headlines=[])]
    (metric,), _ = choose_metrics(runs, ["mse"])
    assert (metric.baselines, metric.oracles) == ({"black": 0.3}, {"constant velocity": 0.01})
    assert "oracle" not in " ".join(name.name for name in choose_metrics(runs, ["*"])[0])
    given = [{"metric": "val/mse", "label": "error", "baselines": {"black": 0.3, "generator, last two frames": 0.0}}]
    (metric,), _ = choose_metrics([record("b", {}, {"val/mse": 0.1}, headlines=given)], None)
    assert (metric.baselines, metric.oracles) == ({"black": 0.3}, {"generator, last two frames": 0.0})


def test_baselines_that_differ_between_runs_are_left_out_with_a_note():
    runs = [record(str(value), {}, {"val/mse": 0.1, "val/baseline/mse/x": value}, headlines=[]) for value in (0.2, 0.5)]
    metrics, notes = choose_metrics(runs, ["mse"])
    assert metrics[0].baselines == {}
    assert "the baseline x is not the same" in notes[0]
