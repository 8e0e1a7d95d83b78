"""A process that fails is a point, and what is longer is not tried."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from bench_jobs import job, settings

from slotbench.bench import sweep as module
from slotbench.bench.job import Job
from slotbench.bench.results import Results
from slotbench.bench.sweep import Outcome, run_job, sweep


def test_memory_beyond_the_limit_is_an_outcome_of_the_stage_that_wanted_it():
    inference, training = run_job(job("Greedy", "inference", "training"))
    assert (inference.stage, inference.problem) == ("inference", "")
    assert (training.stage, training.problem, training.message) == ("training", "out of memory", "above 1 GiB")


def test_a_stage_that_takes_too_long_is_stopped():
    (outcome,) = run_job(job("Slow", "inference", "training", seconds=1.0))
    assert (outcome.stage, outcome.problem, outcome.message) == ("inference", "out of time", "longer than 1 s")


def test_a_process_that_ends_without_a_word_is_an_error():
    (outcome,) = run_job(job("Silent", "inference", "training"))
    assert (outcome.stage, outcome.problem) == ("inference", "error")
    assert outcome.message == "the process ended with code 3: a core may speak to the terminal"


class Processes:
    """Stands in for `run_job`: stages fail as they are told to, and it is known which jobs there were."""

    def __init__(self, failures: dict[tuple[str, str, int], str]) -> None:
        self.failures = failures
        self.jobs: list[tuple[str, int, tuple[str, ...]]] = []

    def __call__(self, asked: Job) -> Iterator[Outcome]:
        self.jobs.append((asked.core, asked.length, asked.stages))
        for stage in asked.stages:
            if problem := self.failures.get((asked.core, stage, asked.length)):
                yield Outcome(stage, {}, problem, "words")
                return
            yield Outcome(stage, {"seconds": [1.0], "memory_mb": 1.0})


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
    def interrupt(asked: Job) -> Iterator[Outcome]:
        yield Outcome("inference", {"seconds": [1.0], "memory_mb": 1.0})
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "run_job", interrupt)
    results = Results.open(tmp_path / "cores.json", settings("A"))
    with pytest.raises(KeyboardInterrupt):
        sweep(results, lambda point: None)
    assert set(Results.open(results.path, results.settings).points) == {("A", "inference", 4)}
