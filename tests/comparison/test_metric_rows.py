"""`metrics.jsonl`: what is kept when it is thinned, and what a torn or odd file does."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotbench.comparison.metric_rows import last_values, read_curves


def write(path, rows, tail=""):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + tail)
    return path


def training(count, every=100):
    rows = [{"step": step, "epoch": 0, "seconds": 0.1, "train/loss": 1 / (1 + step)} for step in range(count)]
    return [
        row | ({"val/loss": row["step"] / 7, "val/baseline/loss/black": 3.0} if (row["step"] + 1) % every == 0 else {})
        for row in rows
    ]


def test_short_files_are_read_whole(tmp_path):
    curves = read_curves(write(tmp_path / "m", training(300)), 400)
    assert set(curves) == {"train/loss", "val/loss", "seconds"}
    steps, values = curves["train/loss"]
    assert steps.tolist() == list(range(300))
    assert values.tolist() == [1 / (1 + step) for step in range(300)]
    assert curves["val/loss"][0].tolist() == [99, 199, 299]


def test_training_is_thinned_and_validation_is_not(tmp_path):
    curves = read_curves(write(tmp_path / "m", training(5000)), 60)
    assert curves["val/loss"][0].tolist() == list(range(99, 5000, 100))
    assert curves["val/loss"][1].tolist() == [step / 7 for step in range(99, 5000, 100)]
    steps, values = curves["train/loss"]
    assert len(steps) == 60
    assert steps[0] == 0
    assert steps[-1] == 4999
    assert (values == 1 / (1 + steps)).all()
    assert np.diff(steps).max() < 4 * 5000 / 60


def test_validations_close_to_one_another_are_all_kept(tmp_path):
    rows = [{"step": step, ("val/loss" if 3000 <= step < 3040 else "train/loss"): 1.0} for step in range(6000)]
    assert read_curves(write(tmp_path / "m", rows), 50)["val/loss"][0].tolist() == list(range(3000, 3040))


def test_a_curve_never_has_more_points_than_asked_for(tmp_path):
    curves = read_curves(write(tmp_path / "m", training(900, every=2)), 50)
    assert max(len(steps) for steps, _ in curves.values()) == 50
    assert curves["val/loss"][0][[0, -1]].tolist() == [1, 899]


def test_lines_that_take_turns_are_both_kept(tmp_path):
    rows = [{"step": n // 2, ("train/loss" if n % 2 else "train/speed"): float(n)} for n in range(8000)]
    curves = read_curves(write(tmp_path / "m", rows), 100)
    assert min(len(steps) for steps, _ in curves.values()) > 25


def test_a_metric_that_was_logged_once_is_found_if_it_is_expected(tmp_path):
    rows = training(5000)
    rows[1234]["train/rare"] = 7.0
    path = write(tmp_path / "m", rows)
    assert read_curves(path, 50, ["train/rare"])["train/rare"][0].tolist() == [1234]


def test_a_torn_last_line_is_passed_over(tmp_path):
    path = write(tmp_path / "m", training(10), '{"step": 10, "train/loss": 0.')
    assert read_curves(path, 50)["train/loss"][0].tolist() == list(range(10))
    whole = write(tmp_path / "n", training(10), '{"step": 10, "val/loss": 0.5}')  # no newline: may be cut off
    assert "val/loss" not in read_curves(whole, 50)


def test_a_line_that_is_no_json_is_passed_over(tmp_path):
    path = tmp_path / "m"
    path.write_bytes(b'{"step": 1, "val/loss": 1.0}\n\0\0\0\n[]\n\n{"step": 2, "val/loss": 2.0}\n')
    with pytest.warns(UserWarning, match=r"m, lines 2, 3: no JSON object with a step; passed over"):
        assert read_curves(path, 50)["val/loss"][1].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000,
        b'{"step": ' + b"9" * 5000 + b"}",
        b'{"step": ' + b"9" * 400 + b', "val/loss": 3.0}',
        b'{"step": true, "val/loss": 3.0}',
        b'{"step": -1, "val/loss": 3.0}',
        b'{"step": [1], "val/loss": 3.0}',
        b'{"step": 5, "val/loss": 3.0}, {"step": 6, "val/loss": 3.0}',
        b'{"val/loss": 3.0}',
        b"\xff\xfe",
    ],
)
def test_a_damaged_line_is_named_and_hides_no_other(tmp_path, line):
    path = tmp_path / "m"
    path.write_bytes(b'{"step": 1, "val/loss": 1.0}\n' + line + b'\n{"step": 2, "val/loss": 2.0}\n')
    with pytest.warns(UserWarning, match="m, line 2: no JSON object with a step"):
        assert read_curves(path, 50)["val/loss"][1].tolist() == [1.0, 2.0]
    with pytest.warns(UserWarning, match="m, line 2"):
        assert last_values(path) == {"val/loss": 2.0}


@pytest.mark.parametrize("value", [b"9" * 400, b'"x"', b"[1, 2]", b"{}", b"null"])
def test_a_value_that_is_no_number_is_none_and_hides_no_other(tmp_path, value):
    path = tmp_path / "m"
    path.write_bytes(b'{"step": 1, "val/loss": ' + value + b'}\n{"step": 2, "val/loss": 2.0}\n')
    values = read_curves(path, 50)["val/loss"][1]
    assert math.isnan(values[0])
    assert values[1] == 2.0
    assert last_values(path) == {"val/loss": 2.0}


def test_no_file_and_an_empty_one_have_no_curves(tmp_path):
    (tmp_path / "empty").touch()
    assert read_curves(tmp_path / "empty", 50) == {}
    assert read_curves(tmp_path / "none", 50) == {}
    assert last_values(tmp_path / "none") == {}


def test_numbers_that_are_not_finite_are_read(tmp_path):
    rows = [{"step": 1, "val/loss": "NaN"}, {"step": 2, "val/loss": "Infinity"}, {"step": 3, "val/loss": 1}]
    values = read_curves(write(tmp_path / "m", rows), 50)["val/loss"][1]
    assert math.isnan(values[0])
    assert values[1:].tolist() == [math.inf, 1.0]


def test_a_step_logged_twice_counts_as_logged_last(tmp_path):
    rows = [{"step": 1, "val/loss": 5.0}, {"step": 2, "val/loss": 6.0}, {"step": 1, "val/loss": 4.0}]
    steps, values = read_curves(write(tmp_path / "m", rows), 50)["val/loss"]
    assert steps.tolist() == [1, 2]
    assert values.tolist() == [4.0, 6.0]


def test_last_values_are_the_newest_with_baselines(tmp_path):
    values = last_values(write(tmp_path / "m", training(1000)))
    assert values == {"train/loss": 1 / 1000, "val/loss": 999 / 7, "val/baseline/loss/black": 3.0}


@given(st.integers(2, 60), st.integers(1, 400))
def test_every_point_is_one_that_was_logged(tmp_path_factory, limit, count):
    path = tmp_path_factory.mktemp("laws") / "m"
    curves = read_curves(write(path, training(count, every=7)), limit)
    for name, (steps, values) in curves.items():
        logged = {row["step"]: row[name] for row in training(count, every=7) if name in row}
        assert 1 <= len(steps) <= limit
        assert [logged[step] for step in steps.tolist()] == values.tolist()
        assert (np.diff(steps) > 0).all()
