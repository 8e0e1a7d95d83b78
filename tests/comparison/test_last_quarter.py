"""What a table says of the last quarter of the training."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import made_up_runs
import numpy as np
import pytest
from made_up_runs import record

from slotbench.commands.compare import main
from slotbench.comparison.last_quarter import gain_of_last_quarter
from slotbench.comparison.records import Metric
from slotbench.comparison.table import compare

IOU = Metric("val/iou", "IoU", higher_is_better=True)
MSE = Metric("val/mse", "error", higher_is_better=False)


def run(values, steps=(24, 49, 74, 99), name="run", metric="val/iou", **settings):
    """A run whose score has these values after so many steps, counted from 0."""
    found = record(name, {"model.core": "SlotSSM", "seed_everything": 0} | settings, {metric: values[-1]})
    return replace(found, curves=lambda limit: {metric: (np.array(steps), np.array(values, dtype=float))})


def test_the_gain_is_a_share_of_the_larger_value():
    assert gain_of_last_quarter(run([0.1, 0.2, 0.4, 0.5]), IOU) == pytest.approx(0.2)
    assert gain_of_last_quarter(run([0.5, 0.5, 0.5, 0.4]), IOU) == pytest.approx(-0.2)
    assert gain_of_last_quarter(run([9.0, 6.0, 4.0, 3.0], metric="val/mse"), MSE) == pytest.approx(0.25)
    assert gain_of_last_quarter(run([0.0, 0.0, 0.0, 0.0]), IOU) == 0.0


def test_three_quarters_lie_between_two_validations():
    # after 75 of 100 steps: halfway between 0.4 after 50 and 0.8 after 100
    assert gain_of_last_quarter(run([0.4, 0.8], steps=(49, 99)), IOU) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("values", "steps"), [([0.8], [99]), ([0.4, 0.8], [80, 99]), ([0.4, float("nan")], [49, 99]), ([], [])]
)
def test_what_cannot_be_told_is_not_told(values, steps):
    found = record("run", {"model.core": "SlotSSM"}, {})
    found = replace(found, curves=lambda limit: {"val/iou": (np.array(steps), np.array(values, dtype=float))})
    assert gain_of_last_quarter(found, IOU) is None


def note(runs) -> str:
    """The note on the last quarter; empty without one."""
    notes = [one for one in compare(runs, of_grid=True).notes if "last quarter" in one]
    assert len(notes) <= 1
    return notes[0] if notes else ""


def rows(*gains):
    """A row for each, three seeds whose medians are these shares."""
    return [
        run([0.4, 0.4, 1 - gain - shift, 1.0], name=f"{row}-{seed}", seed_everything=seed, **{"model.core": core})
        for row, (core, gain) in enumerate(zip(("SlotSSM", "RIM", "PSB"), gains, strict=False))
        for seed, shift in enumerate((0.0, 0.2, -0.1))
    ]


def test_rows_that_gain_two_per_cent_are_named():
    assert note(rows(0.1, 0.019, 0.02)) == (
        "still improving at the end: 2 of 3 rows gain 2 % or more of val/iou in the last quarter of training: "
        "SlotSSM (10 %); PSB (2 %)"
    )
    assert note(rows(0.1, 0.0)).startswith("still improving at the end: 1 of 2 rows gains 2 %")
    assert note(rows(0.1, 0.3)).endswith(
        "every row gains 2 % or more of val/iou in the last quarter of training, 10 to 30 %"
    )
    assert note(rows(0.01, -0.5)) == "no row gains 2 % or more of val/iou in the last quarter of training"


def test_runs_that_have_not_finished_and_tables_of_no_study_say_nothing():
    unfinished = [replace(one, state="running") for one in rows(0.1)]
    assert note(unfinished) == ""
    assert not any("last quarter" in one for one in compare(rows(0.1)).notes)


def test_the_table_of_a_grid_has_the_note(tmp_path: Path, capsys):
    points = []
    for seed in range(2):
        name = f"seed={seed}"
        scores = [{"step": step, "val/iou": value} for step, value in ((49, 0.2), (74, 0.4), (99, 0.8))]
        made_up_runs.make_run(
            tmp_path / "grid" / name, made_up_runs.config(seed=seed), {"val/iou": 0.8}, scores, id=f"run{seed}"
        )
        points.append({"id": name})
    (tmp_path / "grid" / "grid.json").write_text(json.dumps({"points": points}))
    (tmp_path / "grid" / "grid.yaml").write_text("base: nothing.yaml\nmetrics: [val/iou]\n")
    assert main("compare", [str(tmp_path / "grid"), "--format", "markdown"]) == 0
    out = capsys.readouterr().out
    assert "every row gains 2 % or more of val/iou in the last quarter of training, 50 %" in out
    assert main("compare", [str(tmp_path / "grid" / "seed=0"), "--format", "markdown"]) == 0
    assert "last quarter" not in capsys.readouterr().out
