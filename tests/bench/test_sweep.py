"""A process that fails is a point, what is longer is not tried, and a file knows which of its points still hold."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from bench_jobs import job, settings

from slotbench.bench import cores as module
from slotbench.bench.cores import Job, Results, run_job, sweep
from slotbench.errors import UserError


def test_memory_beyond_the_limit_is_an_outcome_of_the_stage_that_wanted_it():
    (stage, inference), training = run_job(job("Greedy", "inference", "training"))
    assert stage == "inference"
    assert "problem" not in inference
    assert training == ("training", {"problem": "out of memory", "message": "above 1 GiB"})


@pytest.mark.parametrize(
    ("core", "problem", "message"),
    [
        ("Slow", "out of time", "longer than 1 s"),
        ("Silent", "error", "the process ended with code 3: a core may speak to the terminal"),
    ],
)
def test_a_process_that_hangs_or_ends_without_a_word_is_a_problem_of_its_stage(core, problem, message):
    outcomes = list(run_job(job(core, "inference", "training", seconds=1.0 if core == "Slow" else 60.0)))
    assert outcomes == [("inference", {"problem": problem, "message": message})]


class Processes:
    """Stands in for `run_job`: stages fail as they are told to, and it is known which jobs there were."""

    def __init__(self, failures: dict[tuple[str, str, int], str]) -> None:
        self.failures = failures
        self.jobs: list[tuple[str, int, tuple[str, ...]]] = []

    def __call__(self, asked: Job) -> Iterator[tuple[str, dict]]:
        self.jobs.append((asked.core, asked.length, asked.stages))
        for stage in asked.stages:
            if problem := self.failures.get((asked.core, stage, asked.length)):
                yield stage, {"problem": problem, "message": "words"}
                return
            yield stage, {"seconds": [1.0], "memory_mb": 1.0}


def swept(tmp_path, monkeypatch, failures, *cores, lengths=(4, 8, 16)) -> tuple[Results, Processes, list]:
    processes, said = Processes(failures), []
    monkeypatch.setattr(module, "run_job", processes)
    results = Results.open(tmp_path / "cores.json", settings(*cores, lengths=lengths))
    sweep(results, said.append)
    return results, processes, said


def test_cores_take_turns_at_each_length(tmp_path, monkeypatch):
    _, processes, said = swept(tmp_path, monkeypatch, {}, "A", "B", lengths=(4, 8))
    clip = ("inference", "training")
    expected = [("A", 4, clip), ("B", 4, clip), ("A", 8, clip), ("B", 8, clip)]
    assert processes.jobs == [*expected, ("A", 8, ("streaming",)), ("B", 8, ("streaming",))]
    assert len(said) == 10


def test_after_a_failure_only_the_other_measure_goes_on(tmp_path, monkeypatch):
    failures = {("A", "training", 8): "out of memory"}
    results, processes, _ = swept(tmp_path, monkeypatch, failures, "A", lengths=(4, 8, 16, 32))
    assert [stages for _, _, stages in processes.jobs][2:4] == [("inference",), ("inference",)]
    assert results.get("A", "training", 8)["limit"] == 1.0
    for length in (16, 32):
        point = results.get("A", "training", length)
        assert (point["problem"], point["message"]) == ("skipped", "out of memory at 8")
    assert "problem" not in results.get("A", "inference", 32)


def test_a_failed_inference_takes_training_with_it(tmp_path, monkeypatch):
    failures = {("A", "inference", 8): "out of time"}
    results, processes, _ = swept(tmp_path, monkeypatch, failures, "A")
    assert len(processes.jobs) == 3
    assert results.get("A", "inference", 8)["limit"] == 30.0
    assert results.get("A", "training", 8)["message"] == "inference: out of time"
    assert results.get("A", "training", 16)["message"] == "inference: out of time"
    assert results.get("A", "inference", 16)["message"] == "out of time at 8"


def test_a_second_sweep_measures_only_what_is_missing(tmp_path, monkeypatch):
    swept(tmp_path, monkeypatch, {("A", "training", 8): "out of memory"}, "A", lengths=(4, 8))
    _, processes, _ = swept(tmp_path, monkeypatch, {}, "A", lengths=(4, 8, 16))
    assert processes.jobs == [("A", 16, ("inference",)), ("A", 16, ("streaming",))]


def test_an_interrupted_sweep_leaves_what_it_had(tmp_path, monkeypatch):
    def interrupt(asked: Job) -> Iterator[tuple[str, dict]]:
        yield "inference", {"seconds": [1.0], "memory_mb": 1.0}
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "run_job", interrupt)
    results = Results.open(tmp_path / "cores.json", settings("A"))
    with pytest.raises(KeyboardInterrupt):
        sweep(results, lambda point: None)
    assert set(Results.open(results.path, results.settings).points) == {("A", "inference", 4)}


# --- the file


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
    with pytest.raises(UserError, match=r"dim 4 in place of 8, threads 1 in place of 2: choose another --out"):
        reopened(measured, dim=8, threads=2)


def test_other_hardware_is_refused(measured):
    stored = json.loads(measured.path.read_text())
    stored["environment"]["device"] = "Abacus x 2"
    measured.path.write_text(json.dumps(stored))
    with pytest.raises(UserError, match="hardware Abacus x 2 in place of Loom x 2"):
        reopened(measured)


def test_restart_drops_everything(measured):
    assert reopened(measured, restart=True, dim=8).points == {}


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"settings": {}}'])
def test_a_file_of_something_else_is_refused(tmp_path, text):
    (tmp_path / "cores.json").write_text(text)
    with pytest.raises(UserError, match="is not the result of a bench"):
        Results.open(tmp_path / "cores.json", settings("Plain"))


def test_lengths_and_cores_may_differ_from_the_stored_ones(measured):
    again = reopened(measured, cores=("Other",), lengths=(8, 999))
    assert again.cores() == ["Line", "Square"]
    assert again.lengths() == [8, 16, 32, 64]
