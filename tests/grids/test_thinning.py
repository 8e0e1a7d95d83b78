"""Records thinned for an archive: which rows and numbers stay."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from slotbench.grids.thinning import POINTS, thin_evaluation, thin_metrics


def lines(rows) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


@given(training=st.integers(0, 700), validations=st.integers(0, 260))
def test_each_kind_of_row_keeps_its_first_and_last_and_at_most_200_in_order(training, validations):
    rows = [{"step": step, "train/loss": 1.0 / (step + 1)} for step in range(training)]
    rows += [{"step": step, "seconds": 0.5, "val/loss": float(step)} for step in range(validations)]
    kept = [json.loads(line) for line in thin_metrics(lines(rows)).splitlines()]
    for name, count in (("train/loss", training), ("val/loss", validations)):
        steps = [row["step"] for row in kept if name in row]
        assert len(steps) == min(count, POINTS)
        assert steps == sorted(set(steps))
        assert not count or (steps[0], steps[-1]) == (0, count - 1)


def test_numbers_keep_eight_digits_and_damaged_lines_go():
    rows = [{"step": 1234567, "val/loss": 0.123456789, "other": [1.000000001, True], "bad": float("nan")}]
    (kept,) = thin_metrics(lines(rows) + "{half a li\n[1]\n").splitlines()
    assert kept == '{"step": 1234567, "val/loss": 0.12345679, "other": [1.0, true], "bad": NaN}'


def test_evaluations_keep_means_and_intervals_and_no_single_clip():
    score = {"mean": 0.6123456789, "low": 0.5, "high": None}
    clips = {"values": [0.5, 0.75], "weights": [1, 1]}
    record = {
        "record": "slotbench evaluation",
        "rules": {"void": [255], "names": "text"},
        "frames": {"lengths": {"6": 2}},
        "clips": {"scored": 2, "hash": "ab", "names": ["a", "b"]},
        "scores": {"miou/video": score | clips, "half_life": {"mean": 3.0, "ended": {"2": 1}, "held": [1]}},
        "baselines": {"one slot": {"miou/video": score | clips}},
    }
    kept = {"mean": 0.6123456789, "low": 0.5, "high": None}
    assert thin_evaluation(record) == record | {
        "clips": {"scored": 2, "hash": "ab"},
        "scores": {"miou/video": kept, "half_life": {"mean": 3.0}},
        "baselines": {"one slot": {"miou/video": kept}},
    }
    assert thin_evaluation({}) == {}
