"""Measures the kernels of one op, in a process that may be lost: `python -m` this module, a request on its input.

The request has "op", "device", "rounds", "seconds" (of one case) and "cases", each of sequences, steps, width and the
names of kernels. On the output there is a line of JSON for each {"begin": case, "kernel"} and {"result": case,
"kernel", ...}. After an error that leaves the device unusable nothing more is said, and the process ends.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from slotbench.bench.gpu.kernel_inputs import Call, inputs_of
from slotbench.bench.gpu.records import UNAVAILABLE
from slotbench.bench.job import OUT_OF_MEMORY
from slotbench.bench.memory import MemoryMeter, is_out_of_memory
from slotbench.ops import KernelError

__all__ = ["measure_case"]

_COMPARED = 2  # sequences whose values are compared with the reference in double precision
_SHORT = 0.01  # seconds below which a call is repeated and averaged
_MOST_CALLS = 50
_SLOW = 0.2  # seconds from which on a call has two rounds and no more

Say = Callable[[dict[str, Any]], None]


class _DeviceLostError(RuntimeError):
    """An error after which no kernel runs in this process."""


def measure_case(request: dict[str, Any], index: int, say: Say) -> None:
    """Compares each kernel with the reference, then times all in turns, and says each one's result."""
    case = request["cases"][index]
    call = inputs_of(request["op"], case["sequences"], case["steps"], case["width"], request["device"])
    small = call.head(_COMPARED, torch.float32)
    say({"begin": index, "kernel": "reference in float64"})
    expected = _values(call.head(_COMPARED, torch.float64), "reference")
    running: dict[str, dict[str, Any]] = {}
    for kernel in case["kernels"]:
        say({"begin": index, "kernel": kernel})
        with _problem_of(index, kernel, running, say):
            running[kernel] = {"error": _difference(_values(small, kernel), expected)}
            running[kernel] |= _first_run(call, kernel, request["device"])
    _in_turns(call, running, request, index, say)
    for kernel, found in running.items():
        say({"result": index, "kernel": kernel, **found})


@contextmanager
def _problem_of(index: int, kernel: str, running: dict[str, dict[str, Any]], say: Say) -> Iterator[None]:
    """An error in the block is the result of the kernel, which runs no more in this case."""
    try:
        yield
    except Exception as error:
        running.pop(kernel, None)
        say({"result": index, "kernel": kernel, **_failure(error)})
        if _is_lost(error):
            raise _DeviceLostError from error


def _values(call: Call, kernel: str) -> list[torch.Tensor]:
    return [*(value.detach() for value in call.forward(kernel)), *call.both(kernel)]


def _difference(got: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """Largest difference of a value or gradient, relative to the largest entry of its own tensor."""
    pairs = zip(got, expected, strict=True)
    errors = [((a.to(b.dtype) - b).abs().max() / b.abs().max().clamp(min=1e-12)).item() for a, b in pairs]
    return max(errors) if all(map(math.isfinite, errors)) else math.inf


def _first_run(call: Call, kernel: str, device: str) -> dict[str, Any]:
    """Peak memory of both directions beside the inputs, after one call in which kernels are compiled."""
    began = time.perf_counter()
    call.both(kernel)
    _wait(device)
    first = time.perf_counter() - began
    found: dict[str, Any] = {"first_seconds": first}
    if device == "cuda" or sys.platform == "linux":
        meter = MemoryMeter(device)
        for name, way in (("forward", call.forward), ("both", call.both)):
            meter.reset()
            kept = way(kernel)
            _wait(device)
            found[f"{name}_mb"] = meter.peak()
            del kept
    return found


def _in_turns(call: Call, running: dict[str, dict[str, Any]], request: dict[str, Any], index: int, say: Say) -> None:
    """Adds the milliseconds of each round, forward alone and both directions; slow kernels have two rounds."""
    device = request["device"]
    ways = {"forward": call.forward, "both": call.both}
    calls: dict[tuple[str, str], int] = {}
    began = time.perf_counter()
    for turn in range(request["rounds"]):
        for kernel, found in list(running.items()):
            if turn >= 2 and statistics.median(found["both"]) > 1e3 * _SLOW:
                continue
            say({"begin": index, "kernel": kernel})
            with _problem_of(index, kernel, running, say):
                for name, way in ways.items():
                    if turn == 0:
                        once = _clocked(way, kernel, 1, device)
                        calls[kernel, name] = max(1, min(_MOST_CALLS, math.ceil(_SHORT / max(once, 1e-6))))
                    seconds = _clocked(way, kernel, calls[kernel, name], device)
                    found.setdefault(name, []).append(1e3 * seconds / calls[kernel, name])
        if time.perf_counter() - began > request["seconds"]:
            break


def _clocked(way: Callable[[str], Any], kernel: str, calls: int, device: str) -> float:
    """Seconds of some calls in a row, by the device's own clock where it has one."""
    if device != "cuda":
        began = time.perf_counter()
        for _ in range(calls):
            way(kernel)
        return time.perf_counter() - began
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    for _ in range(calls):
        way(kernel)
    stop.record()
    torch.cuda.synchronize()
    return float(1e-3 * start.elapsed_time(stop))


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _failure(error: BaseException) -> dict[str, Any]:
    said = str(error).strip().splitlines()
    if isinstance(error, KernelError):
        return {"problem": UNAVAILABLE, "message": str(error)}
    problem = OUT_OF_MEMORY if is_out_of_memory(error) else "error"
    return {"problem": problem, "message": f"{type(error).__name__}: {said[0] if said else ''}".strip(": ")}


def _is_lost(error: BaseException) -> bool:
    """Whether the device still does what it is told."""
    if is_out_of_memory(error) or not torch.cuda.is_available():
        return False
    try:
        torch.cuda.synchronize()
        torch.ones(1, device="cuda").add_(1).item()
    except RuntimeError:
        return True
    return False


def main() -> None:
    """Measures every case of the request on standard input."""
    request = json.load(sys.stdin)
    if request["device"] == "cpu":
        torch.set_num_threads(1)  # the inputs are tiny
    # what a kernel prints must not get between the messages
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as channel:
        os.dup2(2, 1)
        for index in range(len(request["cases"])):
            try:
                measure_case(request, index, lambda message: print(json.dumps(message), file=channel, flush=True))
            except _DeviceLostError:
                return
            except Exception as error:  # of the inputs or of the reference: no kernel's fault, and of this case alone
                print(json.dumps({"result": index, "kernel": None, **_failure(error)}), file=channel, flush=True)
                if _is_lost(error):
                    return
            if request["device"] == "cuda":
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
