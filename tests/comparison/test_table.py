"""Rows, their order, what is marked, and what the notes say."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from made_up_runs import record, seeds

from slotbench.comparison.records import ComparisonError, UnknownNameError
from slotbench.comparison.table import compare, regrouped

GOOD, MIDDLE, BAD = [0.90, 0.91, 0.92], [0.60, 0.62, 0.61], [0.3, 0.5, 0.4]


def labels(comparison):
    return [row.label for row in comparison.rows]


def test_seeds_are_one_row_and_the_best_comes_first():
    comparison = compare([*seeds("RIM", BAD), *seeds("SlotSSM", GOOD), *seeds("PSB", MIDDLE)])
    assert labels(comparison) == ["SlotSSM", "PSB", "RIM"]
    assert comparison.keys == ["model.core"]
    cell = comparison.rows[0].cells["val/iou"]
    assert cell.values == tuple(GOOD)
    assert cell.mean == pytest.approx(0.91)
    assert cell.std == pytest.approx(0.01)
    assert [row.parameters for row in comparison.rows] == [1500] * 3
    assert comparison.notes == []


def test_where_lower_is_better_the_lowest_comes_first():
    comparison = compare([*seeds("RIM", BAD), *seeds("SlotSSM", GOOD)], metrics=["mse"])
    assert labels(comparison) == ["SlotSSM", "RIM"]
    assert comparison.rows[0].cells["val/mse"].is_best


def test_rows_are_named_by_the_fewest_settings_that_tell_them_apart():
    def run(core, dim, width):
        return record(f"{core}{dim}", {"model.core": core, "data.dim": dim, "data.width": width}, {"val/iou": 0.5})

    together = compare([run("RIM", 8, 1), run("S5", 16, 2)])
    assert (labels(together), together.keys) == (["RIM", "S5"], ["model.core", "data.dim", "data.width"])
    crossed = compare([run("RIM", 8, 1), run("RIM", 16, 2), run("S5", 16, 2)])
    assert labels(crossed) == ["RIM, dim=8", "RIM, dim=16", "S5, dim=16"]


def test_rows_of_a_direction_that_nobody_knows_keep_their_order():
    runs = [record(str(n), {"model.core": f"C{n}"}, {"val/slots": float(n)}) for n in (2, 3, 1)]
    assert labels(compare(runs, metrics=["slots"])) == ["C2", "C3", "C1"]


def test_the_best_is_marked_only_beyond_the_spread():
    clear = compare([*seeds("RIM", BAD), *seeds("SlotSSM", GOOD)])
    assert [row.cells["val/iou"].is_best for row in clear.rows] == [True, False]
    close = compare([*seeds("RIM", [0.85, 0.93, 0.89]), *seeds("SlotSSM", GOOD)])
    assert not any(row.cells["val/iou"].is_best for row in close.rows)
    single = compare([*seeds("RIM", BAD), *seeds("SlotSSM", GOOD[:1])])
    assert not any(cell.is_best for row in single.rows for cell in row.cells.values())


def test_the_best_is_compared_with_the_second_best():
    comparison = compare([*seeds("PSB", [0.905, 0.915, 0.90]), *seeds("RIM", BAD), *seeds("SlotSSM", GOOD)])
    assert not any(row.cells["val/iou"].is_best for row in comparison.rows)


def test_the_order_of_the_runs_does_not_matter():
    runs = [*seeds("RIM", BAD), *seeds("SlotSSM", GOOD)]
    one, other = compare(runs), compare(runs[::-1])
    assert [(row.label, row.cells) for row in one.rows] == [(row.label, row.cells) for row in other.rows]


def test_a_diverged_row_comes_last_and_is_never_best():
    comparison = compare([*seeds("RIM", [math.nan, 0.5, 0.5]), *seeds("PSB", BAD), *seeds("SlotSSM", GOOD)])
    assert labels(comparison) == ["SlotSSM", "PSB", "RIM"]
    assert math.isnan(comparison.rows[-1].cells["val/iou"].mean)
    assert comparison.rows[0].cells["val/iou"].is_best


def test_chosen_keys_average_over_the_others_and_say_so():
    runs = [run for slots in (4, 8) for run in seeds("RIM", BAD, **{"model.core.num_slots": slots})]
    runs += seeds("SlotSSM", GOOD, **{"model.core.num_slots": 4})
    assert len(compare(runs).rows) == 3
    comparison = compare(runs, keys=["core"])
    assert labels(comparison) == ["SlotSSM", "RIM"]
    assert len(comparison.rows[1].cells["val/iou"].values) == 6
    assert any("averaged over" in note and "model.core.num_slots (4, 8)" in note for note in comparison.notes)
    by_slots = compare(runs, keys=["num_slots"])
    assert sorted(labels(by_slots)) == ["num_slots=4", "num_slots=8"]


def test_sorting_by_another_metric_puts_it_first():
    runs = [*seeds("RIM", BAD), *seeds("SlotSSM", GOOD)]
    comparison = compare(runs, sort="loss")
    assert [metric.name for metric in comparison.metrics] == ["val/loss", "val/iou", "val/mse"]
    chosen = compare(runs, metrics=["iou", "loss"], sort="loss")
    assert [metric.name for metric in chosen.metrics] == ["val/loss", "val/iou"]


def with_curves(run, **curves):
    steps = np.arange(1, 1 + len(next(iter(curves.values()))))
    return replace(run, curves=lambda limit: {f"val/{name}": (steps, np.asarray(v)) for name, v in curves.items()})


def test_the_best_validation_is_one_moment():
    run = with_curves(seeds("RIM", [0.5])[0], iou=[0.1, 0.9, 0.5], mse=[0.3, 0.2, 0.1], loss=[3.0, 2.0, 1.0])
    best = compare([run], select="best").rows[0].cells
    assert (best["val/iou"].mean, best["val/mse"].mean, best["val/loss"].mean) == (0.9, 0.2, 2.0)
    by_error = compare([run], metrics=["mse", "iou"], select="best").rows[0].cells
    assert (by_error["val/mse"].mean, by_error["val/iou"].mean) == (0.1, 0.5)
    assert compare([run]).rows[0].cells["val/iou"].mean == 0.5


def test_the_best_validation_passes_over_what_is_no_number():
    run = with_curves(seeds("RIM", [0.5])[0], iou=[math.nan, 0.2, 0.1])
    assert compare([run], metrics=["iou"], select="best").rows[0].cells["val/iou"].mean == 0.2


def test_the_best_needs_a_direction():
    with pytest.raises(ComparisonError, match="--sort"):
        compare([record("a", {"model.core": "RIM"}, {"val/slots": 3.0})], metrics=["slots"], select="best")


def test_runs_apart_have_their_seed_as_a_column():
    comparison = compare([*seeds("RIM", BAD), *seeds("SlotSSM", GOOD)], apart=True)
    assert comparison.keys == ["model.core", "seed_everything"]
    assert [row.cells["val/iou"].mean for row in comparison.rows] == sorted([*BAD, *GOOD], reverse=True)
    assert len(set(labels(comparison))) == 6


def test_runs_that_have_not_finished_count_and_are_named():
    runs = seeds("RIM", BAD)
    runs[1] = replace(runs[1], state="running", info={**runs[1].info, "step": 40, "total_steps": 100})
    runs[2] = replace(runs[2], state="failed", summary={}, info={"error": "ValueError: no"})
    row, notes = (comparison := compare(runs)).rows[0], " / ".join(comparison.notes)
    assert row.unfinished == 2
    assert row.cells["val/iou"].values == (0.3, 0.5)
    assert "is running at step 40 of 100; its scores are of its last validation" in notes
    assert "is failed (ValueError: no); it has no validation yet" in notes
    assert "2 of 3 runs have val/iou" in notes


def test_scores_that_as_many_runs_lack_are_one_note():
    both = {"val/iou": 0.5, "val/loss": 1.0}
    runs = [
        record(f"{core}-{seed}", {"model.core": core, "seed_everything": seed}, summary)
        for core in ("RIM", "SlotSSM")
        for seed, summary in enumerate(({}, both, both))
    ]
    notes = compare(runs, metrics=["iou", "loss"]).notes
    assert [note for note in notes if "runs have" in note] == ["RIM, SlotSSM: 2 of 3 runs have val/iou, val/loss"]


def test_a_run_that_was_made_again_and_finished_is_left_out():
    first = replace(seeds("RIM", [0.1])[0], id="killed", state="killed")
    comparison = compare([first, *seeds("RIM", BAD), *seeds("SlotSSM", GOOD)])
    assert [len(row.runs) for row in comparison.rows] == [3, 3]
    assert any("killed" in note and "left out" in note for note in comparison.notes)
    assert len(compare([first, *seeds("RIM", BAD)], apart=True).rows) == 4


def test_the_same_seed_twice_is_said():
    again = replace(seeds("RIM", [0.4])[0], id="again")
    comparison = compare([again, *seeds("RIM", BAD)])
    assert any("more than once: seed 0 (2 runs)" in note for note in comparison.notes)


def test_rows_with_different_seeds_are_said():
    comparison = compare([*seeds("RIM", BAD), *seeds("SlotSSM", GOOD[:2])])
    assert any("RIM: 0, 1, 2" in note and "SlotSSM: 0, 1" in note for note in comparison.notes)


def test_arguments_that_differ_with_the_core_are_said():
    runs = [*seeds("RIM", BAD, **{"model.core.dim": 64, "model.core.top_k": 4})]
    runs += seeds("SlotSSM", GOOD, **{"model.core.dim": 72})
    comparison = compare(runs)
    assert comparison.keys == ["model.core"]
    assert any(note == "with model.core differ: dim (64, 72)" for note in comparison.notes)


def test_how_a_run_is_executed_makes_no_row():
    runs = seeds("RIM", BAD, **{"trainer.devices": 1}) + seeds("RIM", [0.6], **{"trainer.devices": 2})
    runs[-1] = replace(runs[-1], settings={**runs[-1].settings, "seed_everything": 3})
    comparison = compare(runs)
    assert len(comparison.rows) == 1
    assert any("not counted as differences: trainer.devices (1, 2)" in note for note in comparison.notes)
    assert len(compare(runs, everything=True).rows) == 2


def test_runs_without_a_configuration_are_rows_of_their_own():
    runs = [record("a", {}, {"val/iou": 0.1}, problem="has no config.yaml"), record("b", {}, {"val/iou": 0.2})]
    comparison = compare([*runs, *seeds("RIM", BAD)])
    assert sorted(labels(comparison)) == ["RIM", "a", "b"]
    assert any("has no config.yaml" in note for note in comparison.notes)


def test_equal_labels_are_numbered():
    runs = [record(str(n), {}, {"val/iou": n / 10}) for n in (1, 2)]
    assert labels(compare([replace(run, name="balls") for run in runs])) == ["balls (2)", "balls"]


def test_what_cannot_be_compared():
    with pytest.raises(ComparisonError, match="no runs"):
        compare([])
    with pytest.raises(UnknownNameError):
        compare(seeds("RIM", BAD), metrics=["val/nothing"])
    with pytest.raises(UnknownNameError):
        compare(seeds("RIM", BAD), keys=["model.cor"])


def test_rows_put_together_by_a_setting_are_those_of_the_runs_compared_by_it():
    runs = [
        run
        for core, values in (("RIM", BAD), ("SlotSSM", GOOD))
        for dim in (8, 16)
        for run in seeds(core, [value + dim / 1000 for value in values], **{"model.core.dim": dim})
    ]
    whole = compare(runs)
    assert len(whole.rows) == 4
    for key in whole.keys:
        by_key = compare(runs, keys=[key])
        rows = regrouped(whole, key)
        assert [row.label for row in rows] == labels(by_key)
        for row, expected in zip(rows, by_key.rows, strict=True):
            assert {run.id for run in row.runs} == {run.id for run in expected.runs}
            assert row.success == expected.success
            for name, cell in expected.cells.items():
                assert sorted(row.cells[name].values) == sorted(cell.values)
                assert row.cells[name].low == pytest.approx(cell.low)
                assert row.cells[name].is_best == cell.is_best
