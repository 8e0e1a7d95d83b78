"""What a GPU run asks of a CUDA device, with stand-ins for the device: which there is, its clock, its memory."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from slotbench.bench.gpu import kernel_job, machine
from slotbench.bench.gpu.kernel_inputs import inputs_of

TORCH = """
__version__ = "2.99+cu1"
class cuda:
    is_available = staticmethod(lambda: {available})
    get_device_name = staticmethod(lambda: "Loom 9000")
"""


@pytest.fixture
def a_torch(tmp_path, monkeypatch):
    """Puts a module in the place of torch, for processes that are started."""

    def put(text: str) -> None:
        (tmp_path / "torch.py").write_text(text)

    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return put


def test_the_device_is_asked_for_in_a_process_of_its_own(a_torch):
    a_torch(TORCH.format(available=True))
    assert machine.device_of("cuda") == ("Loom 9000", "2.99+cu1")
    a_torch(TORCH.format(available=False))
    assert machine.device_of("cuda") == ("", "torch 2.99+cu1 finds no CUDA device here")
    assert machine.device_of("cpu") == (machine.processor(), "2.99+cu1")
    a_torch("raise OSError('libcudart.so not found\\nand so on')")
    assert machine.device_of("cuda") == ("", "torch does not start here: libcudart.so not found")


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
    monkeypatch.setattr(kernel_job, "inputs_of", lambda *sizes: inputs_of(*sizes[:-1], "cpu"))
    return told


def test_kernels_are_timed_by_events_and_their_memory_is_the_devices(a_device):
    said: list[dict] = []
    case = {"sequences": 2, "steps": 3, "width": 32, "kernels": ["torch"]}
    request = {"op": "causal_conv1d", "device": "cuda", "rounds": 3, "seconds": 60, "cases": [case]}
    kernel_job.measure_case(request, 0, said.append)
    found = said[-1]
    # a call of a millisecond is repeated ten times, and these take a millisecond together
    assert found["forward"] == found["both"] == [pytest.approx(0.1)] * 3
    assert found["both_mb"] == found["forward_mb"] == 1.0
    assert a_device.count("synchronize") >= 2 * 2 * 4
    assert a_device.count("reset_peak_memory_stats") == 2


def test_the_facts_of_a_card_are_recorded(monkeypatch):
    card = SimpleNamespace(major=9, minor=0, total_memory=80 * 2**30, multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: card)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "Loom 9000")
    monkeypatch.setattr(machine, "_driver", lambda: "580.1")
    facts = machine._facts("cuda")
    assert (facts["device"], facts["driver"], facts["capability"]) == ("Loom 9000", "580.1", "9.0")
    assert (facts["memory, GiB"], facts["multiprocessors"]) == (80.0, 132)
    assert facts["torch"] == torch.__version__
    assert facts["processor"] == machine.processor()


@pytest.mark.gpu
def test_kernels_are_measured_on_the_device():
    said: list[dict] = []
    case = {"sequences": 4, "steps": 16, "width": 64, "kernels": ["reference", "torch"]}
    for op in ("selective_scan", "ssd", "causal_conv1d", "linear_scan"):
        request = {"op": op, "device": "cuda", "rounds": 2, "seconds": 60, "cases": [case]}
        kernel_job.measure_case(request, 0, said.append)
    results = [message for message in said if "result" in message]
    assert len(results) == 8
    for result in results:
        assert result["error"] < 1e-3
        assert min(result["both"]) > 0
        assert result["both_mb"] > 0
