"""The slices of kernels: what is measured, and what a kernel that takes its process down leaves to the others."""

from __future__ import annotations

import json
import sys
import time

import pytest
import torch

from slotbench.bench.gpu import kernels as stage
from slotbench.bench.gpu.kernels import inputs_of, key_of, measure
from slotbench.bench.gpu.plan import Items, OutOfTimeError, Settings
from slotbench.ops import available_kernels
from slotbench.ops.dispatch import KERNELS

PROCESS = """
import json, os, sys, time
request = json.load(sys.stdin)
with open(sys.argv[1], "a") as log:
    print(json.dumps([[case["steps"], case["kernels"]] for case in request["cases"]]), file=log)
def say(**message):
    print(json.dumps(message), flush=True)
for index, case in enumerate(request["cases"]):
    for kernel in case["kernels"]:
        say(begin=index, kernel=kernel)
        if kernel == "crashes" and case["steps"] == 2:
            os._exit(7)
        if kernel == "hangs" and case["steps"] == 2:
            time.sleep(60)
        if kernel == "lost" and case["steps"] == 2:
            say(result=index, kernel=kernel, problem="error", message="illegal memory access")
            sys.exit()
    if case["steps"] == 9:
        say(result=index, kernel=None, problem="error", message="no inputs")
        continue
    for kernel in case["kernels"]:
        say(result=index, kernel=kernel, both=[1.0])
"""


def measured(tmp_path, kernels: list[str], steps=(1, 2, 3)):
    log = tmp_path / "log"
    request = {"cases": [{"sequences": 1, "steps": step, "width": 1, "kernels": kernels} for step in steps]}
    command = [sys.executable, "-c", PROCESS, str(log)]
    found = {size["steps"]: result for size, result in measure(request, command, patience=6.0)}
    return found, [json.loads(line) for line in log.read_text().splitlines()]


@pytest.mark.parametrize(
    ("kernel", "problem", "message"),
    [
        ("crashes", "error", "the process ended with code 7"),
        ("hangs", "out of time", "no word for too long"),
        ("lost", "error", "illegal memory access"),
    ],
)
def test_a_kernel_that_takes_the_process_down_is_named_and_the_others_are_measured(tmp_path, kernel, problem, message):
    found, started = measured(tmp_path, ["good", kernel, "last"])
    fine = {"both": [1.0]}
    assert found[1] == found[3] == {"good": fine, kernel: fine, "last": fine}
    assert found[2] == {"good": fine, "last": fine, kernel: {"problem": problem, "message": message}}
    assert started[1] == [[2, ["good", "last"]], [3, ["good", kernel, "last"]]]
    assert len(started) == 2


def test_the_time_of_the_stage_ends_the_process_and_blames_no_kernel(tmp_path):
    cases = [{"sequences": 1, "steps": step, "width": 1, "kernels": ["hangs"]} for step in (1, 2)]
    command = [sys.executable, "-c", PROCESS, str(tmp_path / "log")]
    results = measure({"cases": cases}, command, patience=60.0, deadline=time.monotonic() + 5)
    assert next(results)[1] == {"hangs": {"both": [1.0]}}
    with pytest.raises(OutOfTimeError):
        next(results)


def test_the_only_kernel_of_a_case_may_be_lost(tmp_path):
    found, started = measured(tmp_path, ["lost"])
    assert "problem" in found[2]["lost"]
    assert found[1] == found[3] == {"lost": {"both": [1.0]}}
    assert len(started) == 2


def test_inputs_that_cannot_be_made_are_a_problem_of_their_case(tmp_path):
    found, _ = measured(tmp_path, ["good"], steps=(1, 9, 3))
    assert found[9] == {"good": {"problem": "error", "message": "no inputs"}}
    assert found[3] == {"good": {"both": [1.0]}}


def request_of(op: str, kernels: list[str], *sizes: tuple[int, int, int], device: str = "cpu", rounds: int = 3) -> dict:
    names = ("sequences", "steps", "width")
    cases = [{**dict(zip(names, size, strict=True)), "kernels": kernels} for size in sizes or [(2, 3, 32)]]
    return {"op": op, "device": device, "rounds": rounds, "seconds": 60, "cases": cases}


def results_of(request: dict) -> list[dict]:
    said: list[dict] = []
    stage.measure_case(request, 0, said.append)
    return [message for message in said if "result" in message]


def test_implementations_of_inverted_attention_come_from_the_op_and_agree():
    for op in ("inverted_attention", "inverted_attention, 4 heads"):
        names = stage.kernels_of(op)
        assert {"reference", "dense", "streamed"} <= set(names)
        results = {message["kernel"]: message for message in results_of(request_of(op, list(names), (3, 70, 32)))}
        assert set(results) == set(names)
        ran = {name for name, result in results.items() if result.get("problem") != "not available"}
        assert ran >= {"reference", "streamed"}
        assert ("dense" in ran) == (op == "inverted_attention")
        assert max(results[name]["error"] for name in ran) < 1e-4


@pytest.mark.parametrize("op", KERNELS)
def test_every_op_has_inputs_and_its_kernels_agree(op):
    results = {message["kernel"]: message for message in results_of(request_of(op, list(KERNELS[op]), (3, 5, 32)))}
    absent = {kernel for kernel, reason in available_kernels(op, "cpu").items() if reason is not None}
    plain = {"reference", "streamed" if op == "inverted_attention" else "torch"}
    assert set(results) == set(KERNELS[op]) >= plain | absent
    for kernel, result in results.items():
        if kernel in absent:
            assert result["problem"] == "not available"
            assert f"kernel '{kernel}' of {op} cannot run" in result["message"]
            continue
        assert result["error"] < 1e-4
        assert len(result["forward"]) == len(result["both"]) == 3
        assert min(result["both"]) > 0


def test_the_scan_is_measured_in_given_spans_of_time_beside_what_it_chooses():
    names = stage.kernels_of("selective_scan, spans")
    assert names[: len(KERNELS["selective_scan"])] == KERNELS["selective_scan"]
    assert "triton, spans: 1" in names
    results = {
        message["kernel"]: message for message in results_of(request_of("selective_scan, spans", [*names], (3, 20, 32)))
    }
    assert set(results) == set(names)
    assert len({results[name].get("problem") for name in names if name.startswith("triton")}) == 1
    ran = {name for name, result in results.items() if result.get("problem") != "not available"}
    assert ran >= {"reference", "torch"}
    assert max(results[name]["error"] for name in ran) < 1e-4


def test_a_kernel_that_fails_while_it_is_timed_leaves_the_others_their_times(monkeypatch):
    calls: list[str] = []
    clocked = stage._clocked

    def fails_at_last(way, kernel, times, device):
        calls.append(kernel)
        if kernel == "torch" and calls.count(kernel) > 5:
            raise RuntimeError("CUDA out of memory")
        return clocked(way, kernel, times, device)

    monkeypatch.setattr(stage, "_clocked", fails_at_last)
    first, second = results_of(request_of("causal_conv1d", ["torch", "reference"], rounds=4))
    assert (first["kernel"], first["problem"]) == ("torch", "out of memory")
    assert second["kernel"] == "reference"
    assert len(second["both"]) == len(second["forward"]) == 4


def test_a_kernel_that_leaves_the_device_unusable_is_named_and_nothing_more_is_tried(monkeypatch):
    def illegal(call, kernel):
        if kernel == "torch":
            raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore")
        return values(call, kernel)

    values = stage._values
    monkeypatch.setattr(stage, "_values", illegal)
    monkeypatch.setattr(stage, "_is_lost", lambda error: True)
    said: list[dict] = []
    with pytest.raises(stage._DeviceLostError):
        stage.measure_case(request_of("causal_conv1d", ["torch", "reference"]), 0, said.append)
    assert said[-1] == {
        "result": 0,
        "kernel": "torch",
        "problem": "error",
        "message": "RuntimeError: CUDA error: an illegal memory access was encountered",
    }


def test_a_process_measures_its_cases_one_by_one():
    kernels = ["reference", "torch", "causal_conv1d"]
    found = list(measure(request_of("causal_conv1d", kernels, (1, 3, 32), (2, 3, 32), rounds=1)))
    assert [size["sequences"] for size, _ in found] == [1, 2]
    for _, kernels in found:
        assert kernels["causal_conv1d"]["problem"] == "not available"
        assert len(kernels["torch"]["both"]) == 1


def test_a_wrong_gradient_is_seen():
    call = inputs_of("causal_conv1d", 2, 6, 8, "cpu")
    right = stage._values(call.head(2, torch.float64), "reference")
    wrong = [*right[:-1], right[-1] + 0.5 * right[-1].abs().max()]
    assert stage._difference(right, right) == 0
    assert stage._difference(wrong, right) == pytest.approx(0.5)
    assert stage._difference([right[0] * torch.nan, *right[1:]], right) == torch.inf
    assert stage._difference([*right[:-1], right[-1] * torch.nan], right) == torch.inf


def test_an_op_without_inputs_says_where_to_add_them():
    with pytest.raises(ValueError, match=r"gpu/kernels\.py"):
        inputs_of("new_scan", 1, 1, 1, "cpu")


def test_kernels_come_from_the_dispatcher_and_a_resumed_stage_measures_the_rest(tmp_path, monkeypatch):
    asked = []

    def measured(request, deadline, log):
        asked.append((request["op"], [case["kernels"] for case in request["cases"]]))
        for case in request["cases"]:
            found = {kernel: {"both": [1.0]} for kernel in case["kernels"]}
            yield case, {**found, "gone": {"problem": "not available", "message": "needs a pilot"}}

    monkeypatch.setattr(stage, "measure", measured)
    kernels = {"ssd": ("torch", "brand_new", "gone"), "scan": ("torch", "brand_new", "gone")}
    monkeypatch.setattr(stage, "KERNELS", kernels)
    ops = ("scan", "ssd")
    settings = Settings(tmp_path, "cuda")
    items = Items(tmp_path, "e2", 360.0)
    done = {"sequences": 384, "steps": 6, "width": 128}
    items[key_of("ssd", done)] = {"op": "ssd", **done, "kernels": {"torch": {"both": [2.0]}}}
    message = stage.kernels(settings, items, ops)
    assert [(op, len(cases)) for op, cases in asked] == [("scan", 8), ("ssd", 7)]
    assert all(names == kernels[op] for op, cases in asked for names in cases)
    assert items[key_of("ssd", done)]["kernels"] == {"torch": {"both": [2.0]}}
    other = items[key_of("scan", done)]["kernels"]
    assert list(other) == ["torch", "brand_new", "gone"]
    assert other["gone"] == {"problem": "not available", "message": "needs a pilot"}
    assert message == "ssd: torch, brand_new; scan: torch, brand_new"
    items["broken"] = {"op": "ssd", "kernels": {"gone": {"problem": "error", "message": "no"}}}
    assert stage.kernels(settings, items, ops).endswith("; failed somewhere: ssd/gone")


# --- on a device


@pytest.fixture
def a_device(monkeypatch) -> list[str]:
    """A CUDA device whose clock goes a millisecond per call and whose memory grows by a megabyte; what it is told."""
    told: list[str] = []
    now = [0.0]

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing
            self.at = 0.0

        def record(self) -> None:
            now[0] += 1.0
            self.at = now[0]

        def elapsed_time(self, other: Event) -> float:
            return other.at - self.at

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 3_000_000)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 4_000_000)
    for name in ("synchronize", "empty_cache", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda name=name: told.append(name))
    monkeypatch.setattr(stage, "inputs_of", lambda *sizes: inputs_of(*sizes[:-1], "cpu"))
    return told


def test_kernels_are_timed_by_events_and_their_memory_is_the_devices(a_device):
    (found,) = results_of(request_of("causal_conv1d", ["torch"], device="cuda"))
    # a call of a millisecond is repeated ten times, and these take a millisecond together
    assert found["forward"] == found["both"] == [pytest.approx(0.1)] * 3
    assert found["both_mb"] == found["forward_mb"] == 1.0
    assert a_device.count("synchronize") >= 2 * 2 * 4
    assert a_device.count("reset_peak_memory_stats") == 2


@pytest.mark.gpu
@pytest.mark.parametrize("op", ["selective_scan", "ssd", "causal_conv1d", "linear_scan"])
def test_kernels_are_measured_on_the_device(op):
    for result in results_of(request_of(op, ["reference", "torch"], (4, 16, 64), device="cuda", rounds=2)):
        assert result["error"] < 1e-3
        assert min(result["both"]) > 0
        assert result["both_mb"] > 0
