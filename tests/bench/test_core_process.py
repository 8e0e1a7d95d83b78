"""How a core is built for the bench, and what is made of its times."""

from __future__ import annotations

import pytest
import torch
from bench_jobs import job

from slotbench.bench.core_process import build, curve, megabytes, run
from slotbench.bench.harness import MemoryMeter, is_out_of_memory


@pytest.fixture
def said(bench_cores, monkeypatch):
    """Runs a job in this process, which must not be limited, and returns the messages."""
    monkeypatch.setattr(MemoryMeter, "limit", lambda self, gibibytes: None)

    def call(*arguments, **changed) -> list[dict]:
        messages: list[dict] = []
        run(job(*arguments, **changed), messages.append)
        return messages

    return call


def test_stages_are_announced_and_measured_one_after_the_other(said):
    begins, inference, training, streaming = [], *([None] * 3)
    for message in said("Plain", "inference", "training", "streaming", repeats=2):
        match message:
            case {"begin": stage}:
                begins.append(stage)
            case {"result": "inference"}:
                inference = message
            case {"result": "training"}:
                training = message
            case {"result": "streaming"}:
                streaming = message
    assert begins == ["setup", "inference", "training", "streaming"]
    assert len(inference["seconds"]) == len(training["seconds"]) == 2
    assert min(training["seconds"]) > 0
    assert training["parameters"] == 4 * 4 + 4
    # a map of 16 steps from 4 to 4 numbers; in training also the gradient of its weight
    assert (inference["flops"], training["flops"]) == (2 * 16 * 16, 2 * 2 * 16 * 16)
    assert len(training["noise"]) == 2
    assert (streaming["steps"], streaming["early_steps"], len(streaming["ratio"])) == (16, 8, 2)
    assert streaming["late_state_mb"] == pytest.approx(1 * 2 * 4 * 4 / 1e6)


def test_little_time_means_fewer_repeats(said):
    (result,) = [message for message in said("Plain", "inference", repeats=50, seconds=1e-9) if "result" in message]
    assert len(result["seconds"]) == 1
    assert "flops" not in result


def test_a_training_step_trains(said, monkeypatch):
    steps = []
    original = torch.optim.AdamW.step
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda self: (steps.append(1), original(self)))
    said("Plain", "inference")
    warm = len(steps)
    said("Plain", "training", repeats=1)
    assert len(steps) > 2 * warm


@pytest.mark.parametrize(
    ("core", "message"),
    [("Broken", "RuntimeError: no such shape"), ("Unbuildable", "ValueError: not with these tokens")],
)
def test_a_core_that_fails_is_an_error_with_its_own_words(said, core, message):
    last = said(core, "inference", "training")[-1]
    stage = "setup" if core == "Unbuildable" else "inference"
    assert last == {"failed": stage, "problem": "error", "message": message}


def test_a_core_is_built_with_the_sizes_it_takes(bench_cores):
    core = build(job("Plain", slots=5, dim=6))
    assert (core.slot_spec.num_slots, core.slot_spec.dim) == (5, 6)
    assert core.linear.in_features == 6


def test_a_core_without_such_arguments_keeps_its_defaults(bench_cores):
    core = build(job("Fixed", slots=5, dim=6))
    assert (core.slot_spec.num_slots, core.slot_spec.dim) == (1, 5)


def test_tokens_lie_on_a_grid_where_they_can(bench_cores, monkeypatch):
    seen = []
    bench_core = type(build(job("Plain")))
    monkeypatch.setattr(
        bench_core, "__init__", lambda self, spec: (torch.nn.Module.__init__(self), seen.append(spec))[0]
    )
    for tokens in (9, 8):
        build(job("Plain", tokens=tokens))
    assert [spec.grid for spec in seen] == [(3, 3), None]


def test_curve_covers_every_step_once_in_order():
    found = curve([float(step) for step in range(1, 1001)])
    steps = [step for step, _ in found]
    assert steps == sorted(steps)
    assert found[0] == (1, 1.0)
    assert all(0.5 < value / step < 2 for step, value in found)


def test_curve_of_one_step():
    assert curve([0.25]) == [(1, 0.25)]


def test_state_is_counted_leaf_by_leaf():
    state = {"a": (torch.zeros(10, dtype=torch.float64), None), "b": [torch.zeros(5)]}
    assert megabytes(state) == pytest.approx(100 / 1e6)
    assert megabytes(None) == 0


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"), True),
        (RuntimeError("shapes do not match"), False),
    ],
)
def test_running_out_of_memory_is_recognised(error, verdict):
    assert is_out_of_memory(error) is verdict
