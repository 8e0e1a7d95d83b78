"""The slices of kernels: every kernel of an op against the others, in values, gradients, time and memory.

Each op has a process of its own (`python -m` this module) in which the kernels take turns. Where a kernel takes the
device down with it, or does not come back, it is named, and a new process goes on without it.

A request has "op", "device", "rounds", "seconds" (of one case) and "cases", each of sequences, steps, width and the
names of kernels. The messages are {"begin": case, "kernel"} and {"result": case, "kernel", ...}; a result of the kernel
None is of all that have none yet. After an error that leaves the device unusable the process ends.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional

from slotbench import ops
from slotbench.bench.gpu.plan import UNAVAILABLE, Items, OutOfTimeError, Settings
from slotbench.bench.harness import (
    OUT_OF_TIME,
    MemoryMeter,
    Say,
    clocked,
    failure,
    is_out_of_memory,
    messages,
    python,
    serve,
)
from slotbench.nn.inverted_attention import InvertedAttention
from slotbench.ops.dispatch import KERNELS, choose_kernel
from slotbench.ops.inverted_attention import Attended
from slotbench.registry import load

__all__ = ["Call", "inputs_of", "kernels", "kernels_of", "key_of", "measure", "measure_case"]

SHAPES, QUICK_SHAPES = ((384, 6), (384, 24), (96, 300), (32, 2560)), ((4, 3), (2, 8))
"""Sequences (clips times slots) and steps of each."""
WIDTHS, QUICK_WIDTHS = (128, 384), (32,)
SPANS = (1, 3, 6, 12, 24, 48)
"""Into which the selective scan in Triton is made to cut time, beside what it chooses, in "selective_scan, spans"."""
ATTENTION_SIZES, QUICK_ATTENTION_SIZES = ((144, 1024, 192), (144, 4096, 192), (24, 16384, 192)), ((2, 40, 32),)
"""Frames, tokens and width of inverted attention; the last is the size that a target names."""
SLOTS = 11
ROUNDS, QUICK_ROUNDS = 10, 2
HEAD_DIM, TAPS = 32, 4
_PATIENCE = 90.0  # seconds without a message after which a kernel is given up: compilation, and its slowest call
_COMPARED = 2  # sequences whose values are compared with the reference in double precision
_SHORT = 0.01  # seconds below which a call is repeated and averaged
_MOST_CALLS = 50
_SLOW = 0.2  # seconds from which on a call has two rounds and no more


# --- the stage


def kernels(
    settings: Settings,
    items: Items,
    ops: Sequence[str],
    widths: Sequence[int] = WIDTHS,
    shapes: Sequence[tuple[int, int]] = SHAPES,
) -> str:
    """Measures what has no item yet; returns the kernels that ran, by op, and those that failed."""
    cases = [(op, size) for op in ops for size in _sizes(op, shapes, widths, settings.quick)]
    seconds = 0.6 * items.left() / len(cases)
    for op in ops:
        names = kernels_of(op)
        request = {
            "op": op,
            "device": settings.device,
            "rounds": QUICK_ROUNDS if settings.quick else ROUNDS,
            "seconds": seconds,
            "cases": [{**size, "kernels": names} for one, size in cases if one == op and key_of(op, size) not in items],
        }
        for size, found in measure(request, deadline=items.deadline, log=items.log):
            items[key_of(op, size)] = {"op": op, **size, "kernels": {name: found[name] for name in names}}
    ran: dict[str, list[str]] = {item["op"]: [] for item in items.values()}
    failed: list[str] = []
    for item in items.values():
        for kernel, one in item["kernels"].items():
            if "problem" not in one:
                ran[item["op"]].append(kernel)
            elif one["problem"] != UNAVAILABLE:
                failed.append(f"{item['op']}/{kernel}")
    line = "; ".join(f"{op}: {', '.join(dict.fromkeys(names)) or 'none'}" for op, names in ran.items())
    return line + (f"; failed somewhere: {', '.join(dict.fromkeys(failed))}" if failed else "")


def kernels_of(op: str) -> tuple[str, ...]:
    """The kernels of an op by name, as `slotbench.ops` has them, and those of given `SPANS`."""
    names = KERNELS[op.partition(",")[0]]
    return (*names, *(f"triton, spans: {spans}" for spans in SPANS)) if op.endswith(", spans") else names


def _sizes(op: str, shapes: Sequence[tuple[int, int]], widths: Sequence[int], quick: bool) -> list[dict[str, int]]:
    sizes = [(*shape, width) for width in widths for shape in shapes]
    if quick:
        sizes = [(*shape, width) for width in QUICK_WIDTHS for shape in QUICK_SHAPES]
    if op.startswith("inverted_attention"):
        sizes = [*(QUICK_ATTENTION_SIZES if quick else ATTENTION_SIZES)]
    return [{"sequences": n, "steps": steps, "width": width} for n, steps, width in sizes]


def key_of(op: str, size: dict[str, Any]) -> str:
    """The key of an item."""
    return f"{op} {size['sequences']} x {size['steps']} x {size['width']}"


def measure(
    request: dict[str, Any],
    command: list[str] | None = None,
    *,
    patience: float = _PATIENCE,
    deadline: float = math.inf,
    log: Path | None = None,
) -> Iterator[tuple[dict[str, int], dict[str, Any]]]:
    """Each case's size, and its kernels' numbers or problems, when the case has ended.

    Args:
        request: of the process, which is started again without the kernel that took it down.
        command: of the process.
        patience: seconds without a message after which the kernel at hand is given up.
        deadline: of all, by the monotonic clock.
        log: gets what the process prints.

    Raises:
        OutOfTimeError: the deadline has passed.
    """
    cases = request["cases"]
    found: list[dict[str, Any]] = [{} for _ in cases]

    def missing(index: int) -> list[str]:
        return [kernel for kernel in cases[index]["kernels"] if kernel not in found[index]]

    while left := [index for index in range(len(cases)) if missing(index)]:
        asked = [{**cases[index], "kernels": missing(index)} for index in left]
        at_hand, kernel, progress = left[0], None, False
        with open(log or os.devnull, "a", encoding="utf-8") as errors:
            request = {**request, "cases": asked}
            for message in messages(command or python(__name__), request, patience, deadline=deadline, errors=errors):
                if "begin" in message:
                    at_hand, kernel = left[message["begin"]], message["kernel"]
                elif "result" in message:
                    index, name, progress = left[message.pop("result")], message.pop("kernel"), True
                    found[index] |= dict.fromkeys([name] if name else missing(index), message)
                    if not missing(index):
                        yield _size(cases[index]), found[index]
                else:
                    code = message["ended"]
        if time.monotonic() > deadline:
            raise OutOfTimeError("its time was up; the same command measures the kernels that are left")
        blame = {"problem": "error", "message": f"the process ended with code {code}"}
        if code is None:
            blame = {"problem": OUT_OF_TIME, "message": "no word for too long"}
        lost = missing(at_hand)
        if kernel in lost:  # it took the process down
            lost = [kernel]
        elif kernel in found[at_hand] or (kernel is None and progress):  # it left the device unusable, which it says
            lost = []
        found[at_hand] |= dict.fromkeys(lost, blame)
        if lost and not missing(at_hand):
            yield _size(cases[at_hand]), found[at_hand]


def _size(case: dict[str, Any]) -> dict[str, int]:
    return {name: case[name] for name in ("sequences", "steps", "width")}


# --- its process


class _DeviceLostError(RuntimeError):
    """An error after which no kernel runs in this process."""


def measure_case(request: dict[str, Any], index: int, say: Say) -> None:
    """Compares each kernel with the reference, then times all in turns, and says each one's result."""
    case, device = request["cases"][index], request["device"]
    call = inputs_of(request["op"], case["sequences"], case["steps"], case["width"], device)
    small = call.head(_COMPARED, torch.float32)
    say({"begin": index, "kernel": "reference in float64"})
    expected = _values(call.head(_COMPARED, torch.float64), "reference")
    running: dict[str, dict[str, Any]] = {}
    for kernel in case["kernels"]:
        with _problem_of(index, kernel, running, say):
            running[kernel] = {"error": _difference(_values(small, kernel), expected)}
            running[kernel] |= _first_run(call, kernel, device)
    _in_turns(call, running, request, index, say)
    for kernel, found in running.items():
        say({"result": index, "kernel": kernel, **found})


@contextmanager
def _problem_of(index: int, kernel: str, running: dict[str, dict[str, Any]], say: Say) -> Iterator[None]:
    """An error in the block is the result of the kernel, which runs no more in this case."""
    say({"begin": index, "kernel": kernel})
    try:
        yield
    except Exception as error:
        running.pop(kernel, None)
        say({"result": index, "kernel": kernel, **_failure(error)})
        if _is_lost(error):
            raise _DeviceLostError from error


def _values(call: Call, kernel: str) -> list[Tensor]:
    return [*(value.detach() for value in call.forward(kernel)), *call.both(kernel)]


def _difference(got: list[Tensor], expected: list[Tensor]) -> float:
    """Largest difference of a value or gradient, relative to the largest entry of its own tensor."""
    pairs = zip(got, expected, strict=True)
    errors = [((a.to(b.dtype) - b).abs().max() / b.abs().max().clamp(min=1e-12)).item() for a, b in pairs]
    return max(errors) if all(map(math.isfinite, errors)) else math.inf


def _first_run(call: Call, kernel: str, device: str) -> dict[str, Any]:
    """Peak memory of both directions beside the inputs, after one call in which kernels are compiled."""
    found: dict[str, Any] = {"first_seconds": clocked(lambda: call.both(kernel), device)}
    if device == "cuda" or sys.platform == "linux":
        meter = MemoryMeter(device)
        for name, way in (("forward", call.forward), ("both", call.both)):
            meter.reset()
            kept = way(kernel)
            found[f"{name}_mb"] = meter.peak()
            del kept
    return found


def _in_turns(call: Call, running: dict[str, dict[str, Any]], request: dict[str, Any], index: int, say: Say) -> None:
    """Adds the milliseconds of each round, forward alone and both directions; slow kernels have two rounds."""
    calls: dict[tuple[str, str], int] = {}
    began = time.perf_counter()
    for turn in range(request["rounds"]):
        for kernel, found in list(running.items()):
            if turn >= 2 and statistics.median(found["both"]) > 1e3 * _SLOW:
                continue
            with _problem_of(index, kernel, running, say):
                for name, way in (("forward", call.forward), ("both", call.both)):
                    key = kernel, name
                    if turn == 0:
                        once = _clocked(way, kernel, 1, request["device"])
                        calls[key] = max(1, min(_MOST_CALLS, math.ceil(_SHORT / max(once, 1e-6))))
                    took = _clocked(way, kernel, calls[key], request["device"])
                    found.setdefault(name, []).append(1e3 * took / calls[key])
        if time.perf_counter() - began > request["seconds"]:
            break


def _clocked(way: Callable[[str], Any], kernel: str, calls: int, device: str) -> float:
    return clocked(lambda: way(kernel), device, calls)


def _failure(error: BaseException) -> dict[str, Any]:
    if isinstance(error, ops.KernelError):
        return {"problem": UNAVAILABLE, "message": str(error)}
    return failure(error)


def _is_lost(error: BaseException) -> bool:
    """Whether the device no longer runs what it is told to."""
    if is_out_of_memory(error) or not torch.cuda.is_available():
        return False
    try:
        torch.cuda.synchronize()
        torch.ones(1, device="cuda").add_(1).item()
    except RuntimeError:
        return True
    return False


def _measure_cases(request: dict[str, Any], say: Say) -> None:
    if request["device"] == "cpu":
        torch.set_num_threads(1)  # the inputs are tiny
    for index in range(len(request["cases"])):
        try:
            measure_case(request, index, say)
        except _DeviceLostError:
            return
        except Exception as error:  # of the inputs or of the reference: no kernel's fault, and of this case alone
            say({"result": index, "kernel": None, **_failure(error)})
            if _is_lost(error):
                return
        if request["device"] == "cuda":
            torch.cuda.empty_cache()


# --- the inputs of ops


@dataclass(frozen=True)
class Call:
    """An op with inputs that take gradients.

    Attributes:
        inputs: in the order of the op's arguments.
        outputs: calls the op with inputs and the name of a kernel.
    """

    inputs: list[Tensor]
    outputs: Callable[[list[Tensor], str], tuple[Tensor, ...]]

    def head(self, sequences: int, dtype: torch.dtype) -> Call:
        """The same on the first sequences, in float32 or float64."""

        def cut(value: Tensor) -> Tensor:
            # inputs of three axes and more have one of sequences
            value = value.detach()[:sequences] if value.ndim >= 3 else value.detach()
            return value.to(dtype.to_complex() if value.is_complex() else dtype, copy=True).requires_grad_()

        return Call([cut(value) for value in self.inputs], self.outputs)

    def forward(self, kernel: str) -> tuple[Tensor, ...]:
        """The outputs, with what the backward needs."""
        return self.outputs(self.inputs, kernel)

    def both(self, kernel: str) -> tuple[Tensor, ...]:
        """The gradients of the first output's sum over a fixed pattern: forward and backward."""
        y = self.forward(kernel)[0]
        weights = torch.linspace(-1, 1, y.shape[-1], device=y.device).to(y.dtype).expand_as(y)
        return torch.autograd.grad(y, self.inputs, weights)


def _scan(x: list[Tensor], kernel: str) -> tuple[Tensor, ...]:
    """The selective scan by a kernel, or by Triton's in so many spans of time ("triton, spans: 6")."""
    name, _, spans = kernel.partition(", spans: ")
    if not spans:
        return ops.selective_scan(*x, kernel=name)
    choose_kernel("selective_scan", name, x[0].device)
    from slotbench.ops._cuda.triton_selective_scan import selective_scan_triton

    u, delta, A, B, C, D, z = x
    return selective_scan_triton(u, delta, A, B, C, D, z, None, spans=int(spans))


def _attend(width: int, heads: int) -> Callable[[list[Tensor], str], tuple[Tensor, ...]]:
    """Inverted attention of slots, tokens, and the weights of queries and of keys and values."""
    mean = load("aggregations", "WeightedMean")(width // heads)
    layer = InvertedAttention(width, num_heads=heads, aggregation=mean, bias=False, output_map=False)

    def attend(x: list[Tensor], kernel: str) -> tuple[Tensor, ...]:
        layer.kernel = kernel
        weights = {"query.weight": x[2], "key_value.weight": x[3]}
        found: Attended = functional_call(layer, weights, (x[0], x[1]))
        return (found.updates,)

    return attend


def inputs_of(op: str, sequences: int, steps: int, width: int, device: str, states: int = 16) -> Call:
    """Random inputs in single precision as a block of a model gives them, the same ones at every call.

    Args:
        op: name of an op.
        sequences: clips times slots; frames of inverted attention.
        steps: of each; tokens of a frame.
        width: channels.
        device: "cuda" or "cpu".
        states: of a state space model, per channel or head.

    Raises:
        ValueError: there is no such op here.
    """
    generator = torch.Generator(device).manual_seed(0)

    def randn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=device)

    def rate(*shape: int) -> Tensor:
        return functional.softplus(randn(*shape) - 3)

    if op.startswith("selective_scan"):
        A = -torch.arange(1.0, states + 1, device=device).repeat(width, 1)
        given = [randn(sequences, steps, width), rate(sequences, steps, width), A]
        given += [randn(sequences, steps, states), randn(sequences, steps, states), randn(width)]
        given += [randn(sequences, steps, width)]
        call = Call(given, _scan)
    elif op == "ssd":
        heads = max(1, width // HEAD_DIM)
        given = [randn(sequences, steps, heads, width // heads), rate(sequences, steps, heads), -1 - rate(heads)]
        given += [randn(sequences, steps, 1, states), randn(sequences, steps, 1, states)]
        call = Call(given, lambda x, kernel: ops.ssd(*x, kernel=kernel))
    elif op == "causal_conv1d":
        given = [randn(sequences, steps, width), randn(width, TAPS), randn(width)]
        call = Call(given, lambda x, kernel: ops.causal_conv1d(x[0], x[1], x[2], None, "silu", kernel=kernel))
    elif op == "linear_scan":
        decay = torch.polar(torch.exp(-rate(width)), 3 * randn(width))
        drive = torch.complex(randn(sequences, steps, width), randn(sequences, steps, width))
        call = Call([drive, decay], lambda x, kernel: ops.linear_scan(*x, kernel=kernel))
    elif op == "group_norm_activation":
        given = [randn(sequences, width, steps), randn(width), randn(width)]
        call = Call(given, lambda x, kernel: (ops.group_norm_activation(x[0], 1, x[1], x[2], kernel=kernel),))
    elif op.startswith("inverted_attention"):
        given = [randn(sequences, SLOTS, width), randn(sequences, steps, width)]
        given += [randn(width, width) / width**0.5, randn(2 * width, width) / width**0.5]
        call = Call(given, _attend(width, 4 if op.endswith("4 heads") else 1))
    else:
        raise ValueError(f"no inputs are known for the op {op}: add them to slotbench/bench/gpu/kernels.py")
    for value in call.inputs:
        value.requires_grad_()
    return call


if __name__ == "__main__":
    serve(_measure_cases)
