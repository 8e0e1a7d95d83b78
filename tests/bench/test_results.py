"""The file of a bench holds what was measured, and knows which of it still holds."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from bench_jobs import settings

from slotbench.bench.results import BenchError, Results


def reopened(results: Results, restart: bool = False, **changed) -> Results:
    return Results.open(results.path, replace(results.settings, **changed), restart=restart)


def test_points_are_on_disk_as_soon_as_they_are_added(tmp_path):
    results = Results.open(tmp_path / "deep" / "cores.json", settings("Plain"))
    results.add("Plain", "inference", 8, seconds=[0.5], memory_mb=1.0)
    stored = json.loads(results.path.read_text())
    assert stored["points"] == [
        {"core": "Plain", "measure": "inference", "length": 8, "seconds": [0.5], "memory_mb": 1.0}
    ]
    assert stored["settings"]["batch"] == 1
    assert stored["environment"]["device"] == "Loom x 2"


def test_measured_points_and_failures_within_the_limits_are_kept(measured):
    again = reopened(measured)
    assert again.get("Line", "training", 64) == measured.get("Line", "training", 64)
    assert again.get("Square", "training", 32)["problem"] == "out of memory"
    assert again.get("Square", "streaming", 64)["problem"] == "out of time"


def test_what_was_skipped_or_an_error_is_tried_again(measured):
    measured.add("Line", "training", 8, problem="error", message="oops")
    again = reopened(measured)
    assert again.get("Square", "training", 64) is None
    assert again.get("Line", "training", 8) is None


@pytest.mark.parametrize(("changed", "gone"), [({"memory": 2.0}, "training"), ({"seconds": 60.0}, "streaming")])
def test_a_raised_limit_tries_again_what_failed_at_the_lower_one(measured, changed, gone):
    again = reopened(measured, **changed)
    kept = {"training": again.get("Square", "training", 32), "streaming": again.get("Square", "streaming", 64)}
    assert [name for name, point in kept.items() if point is None] == [gone]


def test_other_settings_are_refused_by_name(measured):
    with pytest.raises(BenchError, match=r"dim 4 in place of 8, threads 1 in place of 2: choose another --out"):
        reopened(measured, dim=8, threads=2)


def test_other_hardware_is_refused(measured):
    stored = json.loads(measured.path.read_text())
    stored["environment"]["device"] = "Abacus x 2"
    measured.path.write_text(json.dumps(stored))
    with pytest.raises(BenchError, match="hardware Abacus x 2 in place of Loom x 2"):
        reopened(measured)


def test_restart_drops_everything(measured):
    assert reopened(measured, restart=True, dim=8).points == {}


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"settings": {}}'])
def test_a_file_of_something_else_is_refused(tmp_path, text):
    (tmp_path / "cores.json").write_text(text)
    with pytest.raises(BenchError, match="is not the result of a bench"):
        Results.open(tmp_path / "cores.json", settings("Plain"))


def test_lengths_and_cores_may_differ_from_the_stored_ones(measured):
    again = reopened(measured, cores=("Other",), lengths=(8, 999))
    assert again.cores() == ["Line", "Square"]
    assert again.lengths() == [8, 16, 32, 64]
