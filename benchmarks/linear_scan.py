"""Times the kernels of the linear scan, forward plus backward, beside the traffic of memory that bounds them.

    python benchmarks/linear_scan.py [--quick] [--threads 2] [--out results.json]

The bound: whatever runs the scan reads the drive and writes the states going forward, and reads the gradient of the
states and the states and writes the gradient of the drive going back: five times the size S of the drive. (Decay,
initial state and their gradients are 1/T of that or less.) `copy` is torch's copy of 2.5 S, which reads 2.5 S and
writes 2.5 S, between buffers that were touched before; `copy, fresh` copies as much, of which 2 S go to buffers just
allocated, as the states and the gradient of the drive are in any training step: the system hands their pages out one
by one. `indexed` is the loop that indexes `drive[:, t]` under autograd, whose backward is quadratic in T (minutes at
T = 300 on a busy machine).

All take turns within every round, so that other load on the machine hits all alike: read the ratios, which are medians
of the ratios within each round, with the smallest and the largest. On one thread they are of processor time, which does
not count the waiting for a busy machine; on several, of wall time. Memory is measured in a process of its own per
kernel: the highest resident size during one forward and backward, after a small call that loads and compiles
everything, less what was resident with the inputs in place. It includes the states and all gradients: 2 S at least.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from slotbench.ops import available_kernels, linear_scan
from slotbench.runs.provenance import processor

SHAPES = [(1, 100, 16, 16, 128), (1, 300, 16, 16, 128)]  # batch, time, rows, cols, states
QUICK_SHAPES = [(1, 20, 8, 8, 32)]
BOUND, FRESH, INDEXED = "copy", "copy, fresh", "indexed"
MB = 1e6
Shape = tuple[int, ...]


def make_inputs(shape: Shape) -> list[Tensor]:
    """Drive, decay and initial state, whose decay is that of a fresh ConvS5: memory of 20 to 2,000 steps."""
    torch.manual_seed(0)
    batch, _, *frame = shape
    drive, state = torch.randn(shape, dtype=torch.complex64), torch.randn(batch, *frame, dtype=torch.complex64)
    step = torch.exp(torch.empty(frame[-1]).uniform_(math.log(0.001), math.log(0.1)))
    decay = torch.polar(torch.exp(-step / 2), step * torch.linspace(-300, -0.3, frame[-1]))
    return [x.requires_grad_() for x in (drive, decay, state)]


def indexed_loop(drive: Tensor, decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    states = []
    for t in range(drive.shape[1]):
        state = decay * state + drive[:, t]
        states.append(state)
    return torch.stack(states, dim=1), state


def make_run(name: str, shape: Shape) -> Callable[[], object]:
    """One forward and backward of a kernel, through the states and the last of them, or the copy beside it."""
    inputs = make_inputs(shape)
    if name in (BOUND, FRESH):
        source, half = inputs[0].detach(), torch.randn(inputs[0].numel() // 2, dtype=torch.complex64)
        goals = [torch.randn_like(source), torch.randn_like(source), torch.randn_like(half)]
        if name == BOUND:
            return lambda: [goal.copy_(x) for goal, x in zip(goals, (source, source, half), strict=True)]
        return lambda: (source.clone(), source.clone(), goals[2].copy_(half))
    grads = [torch.randn_like(inputs[0]), torch.randn_like(inputs[2])]

    def run() -> tuple[Tensor, ...]:
        if name == INDEXED:
            outputs = indexed_loop(*inputs)
        else:
            outputs = linear_scan(*inputs, kernel=name)
        return torch.autograd.grad(outputs, inputs, grads)

    return run


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds of wall time and of processor time."""
    wall, processor = time.perf_counter(), time.process_time()
    run()
    return 1e3 * (time.perf_counter() - wall), 1e3 * (time.process_time() - processor)


def resident(field: str) -> float:
    """Megabytes of VmRSS (now) or VmHWM (the highest so far) of this process."""
    found = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"/proc/self/status has no {field}: memory is measured on Linux only, use --no-memory")
    return int(found.group(1)) * 1024 / MB


def measure_memory(name: str, shape: Shape) -> float:
    """Megabytes over the inputs; run in a fresh process."""
    make_run(name, (1, 4, *shape[2:]))()
    run = make_run(name, shape)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # forgets the highest so far
    before = resident("VmRSS")
    run()
    return resident("VmHWM") - before


def memory_in_a_process(name: str, shape: Shape) -> float:
    threads = str(torch.get_num_threads())
    command = [sys.executable, __file__, "--threads", threads, "--memory-of", name, ",".join(map(str, shape))]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure(shape: Shape, names: list[str], rounds: int, indexed_rounds: int) -> dict[str, dict[str, float]]:
    runs = {name: make_run(name, shape) for name in names}
    for name, run in runs.items():
        if name != INDEXED:
            run()  # compiles, and touches the memory
    clock = 1 if torch.get_num_threads() == 1 else 0
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for index in range(rounds):
        for name, run in runs.items():
            if name != INDEXED or index < indexed_rounds:
                times[name].append(timed(run))
    results = {}
    for name, values in times.items():
        if not values:
            continue
        result = {"wall_ms": statistics.median(x for x, _ in values), "cpu_ms": statistics.median(x for _, x in values)}
        for base in (BOUND, "reference"):
            ratios = [value[clock] / other[clock] for value, other in zip(values, times[base], strict=False)]
            result |= {
                f"x_{base}": statistics.median(ratios),
                f"x_{base}_min": min(ratios),
                f"x_{base}_max": max(ratios),
            }
        results[name] = result
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one small shape, a few seconds")
    parser.add_argument("--rounds", type=int, default=7, help="timed rounds per shape")
    parser.add_argument(
        "--indexed-rounds", type=int, default=1, help="of them, how many run the slow indexed loop, on one thread"
    )
    parser.add_argument("--threads", type=int, default=1, help="measured after one thread, if it is not one")
    parser.add_argument("--no-memory", action="store_true", help="leave the memory out")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    parser.add_argument("--memory-of", nargs=2, metavar=("KERNEL", "SHAPE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of:
        torch.set_num_threads(options.threads)
        name, shape = options.memory_of
        print(measure_memory(name, tuple(map(int, shape.split(",")))))
        return

    kernels = [name for name, reason in available_kernels("linear_scan", "cpu").items() if reason is None]
    names = [BOUND, FRESH, *kernels, INDEXED]
    machine = f"{processor()}, torch {torch.__version__}"
    table = Table(title=f"linear_scan, forward + backward, complex64\n{machine}")
    for heading in ("batch, time, rows, cols, states", "threads", "run", "ms", "processor ms", "x copy (min to max)",
                    "reference / run", "MB over inputs"):  # fmt: skip
        table.add_column(heading, justify="left" if heading == "run" else "right")
    rows = []
    for threads in dict.fromkeys((1, options.threads)):
        torch.set_num_threads(threads)
        indexed_rounds = options.indexed_rounds if threads == 1 else 0
        for shape in QUICK_SHAPES if options.quick else SHAPES:
            for name, result in measure(shape, names, options.rounds, indexed_rounds).items():
                if not (options.no_memory or name in (BOUND, FRESH, INDEXED)):
                    result["memory_mb"] = memory_in_a_process(name, shape)
                rows.append({"shape": shape, "threads": threads, "run": name, **result})
                table.add_row(
                    ", ".join(map(str, shape)),
                    str(threads),
                    name,
                    f"{result['wall_ms']:.1f}",
                    f"{result['cpu_ms']:.1f}",
                    f"{result['x_copy']:.2f} ({result['x_copy_min']:.2f} to {result['x_copy_max']:.2f})",
                    f"{1 / result['x_reference']:.2f}",
                    f"{result['memory_mb']:.0f}" if "memory_mb" in result else "",
                )
    Console(width=160).print(table)
    if options.out:
        record = {"machine": machine, "rounds": options.rounds, "results": rows}
        options.out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
