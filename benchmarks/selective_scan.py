"""Times the kernels of the selective scan, forward plus backward, and the memory they take over their inputs.

    python benchmarks/selective_scan.py [--quick] [--out results.json]

The kernels take turns within every round, so that other load on the machine hits all alike: read the ratios, which are
of medians within one run. Memory is measured in a process of its own per kernel and shape: the highest resident size
during one forward and backward, after a small call that loads and compiles everything, less what was resident with the
inputs in place. It includes the gradients.
"""

from __future__ import annotations

import argparse
import gc
import json
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch.nn import functional

from slotbench.ops import available_kernels, selective_scan
from slotbench.runs.provenance import processor

SHAPES = [(96, 20, 256, 16), (96, 100, 256, 16), (32, 320, 256, 16), (8, 1280, 256, 16), (4, 2560, 256, 16)]
QUICK_SHAPES = [(8, 20, 64, 16), (2, 160, 64, 16)]
Shape = tuple[int, int, int, int]


def make_inputs(shape: Shape) -> dict[str, torch.Tensor]:
    batch, steps, inner, state = shape
    torch.manual_seed(0)
    inputs = {
        "u": torch.randn(batch, steps, inner),
        "delta": functional.softplus(torch.randn(batch, steps, inner) - 3),
        "A": -torch.arange(1.0, state + 1).repeat(inner, 1),
        "B": torch.randn(batch, steps, state),
        "C": torch.randn(batch, steps, state),
        "D": torch.randn(inner),
        "z": torch.randn(batch, steps, inner),
        "state": torch.randn(batch, inner, state),
    }
    return {name: value.requires_grad_() for name, value in inputs.items()}


def run_once(kernel: str, inputs: dict[str, torch.Tensor], grads: tuple[torch.Tensor, torch.Tensor]) -> float:
    """Milliseconds of one forward and backward, through y and through the last state."""
    begin = time.perf_counter()
    outputs = selective_scan(**inputs, kernel=kernel)
    torch.autograd.grad(outputs, list(inputs.values()), grads)
    return 1e3 * (time.perf_counter() - begin)


def output_grads(inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn_like(inputs["u"]), torch.randn_like(inputs["state"])


def resident(field: str) -> float:
    """Megabytes of VmRSS (now) or VmHWM (the highest so far) of this process."""
    found = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"/proc/self/status has no {field}: memory is measured on Linux only, use --no-memory")
    return int(found.group(1)) / 1000


def measure_memory(kernel: str, shape: Shape) -> float:
    """Megabytes over the inputs; run in a fresh process."""
    small = make_inputs((2, 4, shape[2], shape[3]))
    run_once(kernel, small, output_grads(small))
    inputs = make_inputs(shape)
    grads = output_grads(inputs)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # forgets the highest so far
    before = resident("VmRSS")
    run_once(kernel, inputs, grads)
    return resident("VmHWM") - before


def memory_in_a_process(kernel: str, shape: Shape) -> float:
    threads = str(torch.get_num_threads())
    command = [sys.executable, __file__, "--threads", threads, "--memory-of", kernel, ",".join(map(str, shape))]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure(shape: Shape, kernels: list[str], rounds: int, with_memory: bool) -> dict[str, dict[str, float]]:
    inputs = make_inputs(shape)
    grads = output_grads(inputs)
    times: dict[str, list[float]] = {kernel: [] for kernel in kernels}
    for kernel in kernels:
        run_once(kernel, inputs, grads)  # compiles, and touches the memory
    for _ in range(rounds):
        for kernel in kernels:
            times[kernel].append(run_once(kernel, inputs, grads))
    base = statistics.median(times["reference"])
    results = {}
    for kernel, values in times.items():
        median = statistics.median(values)
        results[kernel] = {"median_ms": median, "min_ms": min(values), "max_ms": max(values), "speedup": base / median}
        if with_memory:
            results[kernel]["memory_mb"] = memory_in_a_process(kernel, shape)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two small shapes, a few seconds")
    parser.add_argument("--rounds", type=int, default=7, help="timed rounds per shape")
    parser.add_argument("--threads", type=int, help="threads of torch and of the compiled kernel")
    parser.add_argument("--no-memory", action="store_true", help="leave the memory out")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    parser.add_argument("--memory-of", nargs=2, metavar=("KERNEL", "SHAPE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.memory_of:
        kernel, shape = options.memory_of
        print(measure_memory(kernel, tuple(map(int, shape.split(",")))))
        return

    kernels = [name for name, reason in available_kernels("selective_scan", "cpu").items() if reason is None]
    machine = f"{processor()}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    table = Table(title=f"selective_scan, forward + backward, float32\n{machine}")
    for heading in ("batch, time, inner, state", "kernel", "median ms", "min to max", "x reference", "MB over inputs"):
        table.add_column(heading, justify="left" if heading == "kernel" else "right")
    rows = []
    for shape in QUICK_SHAPES if options.quick else SHAPES:
        for kernel, result in measure(shape, kernels, options.rounds, not options.no_memory).items():
            rows.append({"shape": shape, "kernel": kernel, **result})
            table.add_row(
                ", ".join(map(str, shape)),
                kernel,
                f"{result['median_ms']:.1f}",
                f"{result['min_ms']:.1f} to {result['max_ms']:.1f}",
                f"{result['speedup']:.1f}",
                f"{result['memory_mb']:.0f}" if "memory_mb" in result else "",
            )
    Console().print(table)
    if options.out:
        record = {"machine": machine, "rounds": options.rounds, "results": rows}
        options.out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
