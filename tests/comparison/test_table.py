"""The table of a comparison: rows, columns, statistics, notes."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from made_up_runs import config, made_up, make_run, seeds

from slotbench.comparison.runs import ComparisonError, Runs, UnknownNameError, gain_of_last_quarter
from slotbench.comparison.settings import choose_keys
from slotbench.comparison.sources import read_sources
from slotbench.comparison.statistics import best_of, holm, interval, welch
from slotbench.comparison.table import compare

VALUES = {"SlotSSM": [0.90, 0.91, 0.92], "RIM": [0.3, 0.5, 0.4]}


def joined(*parts: Runs) -> Runs:
    runs = {f"{index}{id}": run for index, part in enumerate(parts) for id, run in part.runs.items()}
    return Runs(runs)


def test_runs_that_differ_by_their_seed_are_one_row():
    found = compare(seeds(VALUES))
    assert [row.label for row in found.rows] == ["SlotSSM", "RIM"]
    assert [column.name for column in found.columns] == ["val/iou", "val/mse", "val/loss"]
    cell = found.rows[1].cells["val/iou"]
    assert (cell.mean, cell.std) == (pytest.approx(0.4), pytest.approx(0.1))
    assert cell.interval == (pytest.approx(0.4 - 0.2484, abs=1e-4), pytest.approx(0.4 + 0.2484, abs=1e-4))
    assert found.columns[0].baselines == {"black": 0.0, "copy": 0.4}
    assert found.columns[0].best_baseline == ("copy", 0.4)


def test_the_best_is_marked_where_it_is_apart():
    found = compare(seeds(VALUES))
    assert [row.cells["val/iou"].is_best for row in found.rows] == [True, False]
    assert [row.cells["val/mse"].is_best for row in found.rows] == [True, False]
    close = compare(seeds({"A": [0.5, 0.6, 0.7], "B": [0.5, 0.55, 0.6]}))
    assert not any(row.cells["val/iou"].is_best for row in close.rows)


def test_the_statistics_are_those_of_scipy():
    stats = pytest.importorskip("scipy.stats")
    a, b = [1.0, 2.0, 3.0], [2.0, 3.0, 4.5, 5.0]
    assert welch(a, b) == pytest.approx(stats.ttest_ind(a, b, equal_var=False).pvalue)
    assert interval(b) == pytest.approx(stats.t.interval(0.95, 3, np.mean(b), stats.sem(b)))
    assert (welch([1, 1], [1, 1]), welch([1, 1], [2, 2]), welch([1, math.nan], [1, 2])) == (1.0, 0.0, 1.0)
    assert math.isnan(interval([1.0])[0])
    assert best_of([[1, 1.1], [], [5, 5.1]], higher=True) == 2
    assert best_of([[1, 1.1], [5.0]], higher=True) is None
    assert list(holm(pd.Series([0.01, 0.04, 0.03]))) == pytest.approx([0.03, 0.06, 0.06])


def test_the_level_of_a_mark_is_divided_by_the_number_of_other_rows(monkeypatch):
    monkeypatch.setattr("slotbench.comparison.statistics.welch", lambda first, second: 0.03)
    assert best_of([[1, 1], [2, 2]], higher=True) == 1
    assert best_of([[1, 1], [2, 2], [3, 3]], higher=True) is None


def test_settings_that_follow_from_a_class_make_no_column():
    table = pd.DataFrame(
        [
            {"model.core": "A", "model.core.dim": "8", "model.encoder.dim": "4", "seed_everything": "0"},
            {"model.core": "A", "model.core.dim": "8", "model.encoder.dim": "5", "seed_everything": "1"},
            {"model.core": "B", "model.core.dim": "9", "model.encoder.dim": "4", "trainer.devices": "2"},
        ]
    )
    keys = choose_keys(table)
    assert (keys.shown, keys.folded) == (["model.core", "model.encoder.dim"], ["model.core.dim"])
    assert keys.execution == ["trainer.devices"]
    assert "trainer.devices" in choose_keys(table, everything=True).shown
    # but the core, whatever the task: it is what studies compare
    tasks = pd.DataFrame([{"model": "A", "model.core": "C", "model.size": "1"}, {"model": "B", "model.core": "D"}])
    assert choose_keys(tasks).shown == ["model.core", "model"]


def test_rows_by_a_chosen_setting_average_over_the_others():
    runs = joined(seeds(VALUES, **{"data.size": "1"}), seeds(VALUES, **{"data.size": "2"}))
    assert len(compare(runs).rows) == 4
    found = compare(runs, keys=["core"])
    assert [(row.label, len(row.runs)) for row in found.rows] == [("SlotSSM", 6), ("RIM", 6)]
    assert "averaged over, besides the seed: data.size (1, 2)" in found.notes
    apart = compare(runs, apart=True)
    assert len(apart.rows) == 12
    assert apart.keys[-1] == "seed_everything"


def test_metrics_are_chosen_by_names_patterns_and_sort():
    runs = seeds(VALUES)
    assert [column.name for column in compare(runs, ["val/*s*"]).columns] == ["val/mse", "val/loss"]
    found = compare(runs, sort="mse")
    assert [column.name for column in found.columns] == ["val/mse", "val/iou", "val/loss"]
    with pytest.raises(UnknownNameError, match="no run has a metric val/ioo"):
        compare(runs, ["val/ioo"])
    with pytest.raises(UnknownNameError, match="no run has a setting colour"):
        compare(runs, keys=["colour"])
    with pytest.raises(ComparisonError, match="no runs"):
        compare(Runs({}))


def test_the_best_validation_counts_as_a_whole(tmp_path):
    rows = [{"step": step, "val/iou": iou, "val/mse": mse} for step, iou, mse in ((1, 0.2, 0.1), (2, 0.8, 0.5))]
    make_run(
        tmp_path / "b" / "one", metrics={"val/iou": 0.3, "val/mse": 0.05}, rows=[*rows, {"step": 3, "val/iou": 0.3}]
    )
    runs = read_sources([str(tmp_path / "b")])
    cells = compare(runs, select="best").rows[0].cells
    assert (cells["val/iou"].mean, cells["val/mse"].mean) == (0.8, 0.5)
    assert compare(runs).rows[0].cells["val/iou"].mean == 0.3


def test_diverged_runs_count_and_their_infinite_scores_do_not():
    runs = seeds(VALUES)
    bad = made_up("bad", {"model.core": "RIM", "seed_everything": "3"}, {"val/iou": math.inf}, "diverged")
    found = compare(Runs({**runs.runs, "bad": bad}))
    row = next(row for row in found.rows if row.label == "RIM")
    assert (len(row.runs), row.unfinished, len(row.cells["val/iou"].values)) == (4, 1, 3)
    notes = " ".join(found.notes)
    assert "RIM: 1 of 4 seeds diverged" in notes
    assert "RIM: 3 of 4 runs have val/iou" in notes
    assert "rows have different seeds: SlotSSM: 0, 1, 2; RIM: 0, 1, 2, 3" in notes


def test_a_killed_run_that_was_made_again_is_left_out():
    runs = seeds({"RIM": [0.3, 0.5]})
    killed = made_up("old", {"model.core": "RIM", "seed_everything": "0"}, {"val/iou": 0.1}, "killed")
    found = compare(Runs({"old": killed, **runs.runs}))
    assert len(found.rows[0].runs) == 2
    assert "finished in another run: old old (killed)" in found.notes[0]
    alone = compare(Runs({"old": killed}))
    assert "not finished: old old (killed)" in alone.notes


def test_the_same_seed_twice_is_told_and_baselines_that_vary_are_left_out():
    runs = joined(seeds({"RIM": [0.3]}), seeds({"RIM": [0.5]}))
    next(iter(runs.runs.values())).headlines = [{"metric": "val/iou", "baselines": {"copy": 0.9, "black": 0.0}}]
    found = compare(runs, ["val/iou"])
    assert found.columns[0].baselines == {"black": 0.0}
    notes = " ".join(found.notes)
    assert "the baseline copy is not the same for all runs, and left out of val/iou" in notes
    assert "RIM-0: the same configuration and seed more than once: seed 0" in notes


def test_the_gain_of_the_last_quarter(tmp_path):
    curve = pd.Series([1.0, 0.5, 0.4, 0.2], index=[25, 50, 75, 100])
    assert gain_of_last_quarter(curve, higher=False) == pytest.approx(0.5)
    assert gain_of_last_quarter(curve, higher=True) == pytest.approx(-0.5)
    assert gain_of_last_quarter(curve.iloc[-1:], higher=True) is None
    rows = [{"step": step - 1, "val/iou": value} for step, value in ((75, 0.4), (100, 0.5))]
    make_run(tmp_path / "runs" / "g" / "a", config(), {"val/iou": 0.5}, rows)
    (tmp_path / "runs" / "g" / "grid.json").write_text('{"points": [{"id": "a"}]}')
    found = compare(read_sources([str(tmp_path / "runs" / "g")]))
    assert any("1 of 1 rows gain 2 % or more of val/iou in the last quarter" in note for note in found.notes)
