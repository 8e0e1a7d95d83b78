"""Times TemporalAttention against the same attention with open weights, forward plus backward, and their memory.

    python benchmarks/temporal_attention.py [--quick] [--out results.json]

The open weights are those of all pairs of tokens under one mask of (steps * slots)^2, which is what the layer avoids.
The two take turns within every round, so that other load on the machine hits both alike: read the ratios, which are of
medians within one run. Memory is measured in a process of its own per implementation and shape: the highest resident
size during one forward and backward, after a small call that loads everything, less what was resident with the input in
place. It includes the gradients.
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
from collections.abc import Callable
from pathlib import Path

import torch
from einops import rearrange
from rich.console import Console
from rich.table import Table

from slotbench.nn.temporal_attention import TemporalAttention
from slotbench.runs.provenance import processor

SHAPES = [(6, 80, 6), (6, 320, 6)]
QUICK_SHAPES = [(2, 20, 6), (2, 80, 6)]
DIM, HEADS = 64, 4
Shape = tuple[int, int, int]
Attend = Callable[[TemporalAttention, torch.Tensor], torch.Tensor]


def layer(attention: TemporalAttention, x: torch.Tensor) -> torch.Tensor:
    return attention(x)[0]


def open_weights(attention: TemporalAttention, x: torch.Tensor) -> torch.Tensor:
    steps, slots = x.shape[1:3]
    pattern = "batch time slots (part heads dim) -> part batch heads (time slots) dim"
    query, key, value = rearrange(attention.query_key_value(x), pattern, part=3, heads=HEADS)
    step = torch.arange(steps).repeat_interleave(slots)
    logits = (query * query.shape[-1] ** -0.5 @ key.mT).masked_fill(step[None, :] > step[:, None], -torch.inf)
    attended = logits.softmax(dim=-1) @ value
    return attention.output(
        rearrange(attended, "batch heads (time slots) dim -> batch time slots (heads dim)", slots=slots)
    )


IMPLEMENTATIONS: dict[str, Attend] = {"open weights": open_weights, "TemporalAttention": layer}


def make_inputs(shape: Shape) -> tuple[TemporalAttention, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return TemporalAttention(DIM, HEADS), torch.randn(*shape, DIM, requires_grad=True), torch.randn(*shape, DIM)


def run_once(name: str, attention: TemporalAttention, x: torch.Tensor, grad: torch.Tensor) -> float:
    """Milliseconds of one forward and backward."""
    begin = time.perf_counter()
    torch.autograd.grad(IMPLEMENTATIONS[name](attention, x), [x, *attention.parameters()], grad)
    return 1e3 * (time.perf_counter() - begin)


def resident(field: str) -> float:
    """Megabytes of VmRSS (now) or VmHWM (the highest so far) of this process."""
    found = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"/proc/self/status has no {field}: memory is measured on Linux only, use --no-memory")
    return int(found.group(1)) / 1000


def measure_memory(name: str, shape: Shape) -> float:
    """Megabytes over the inputs; run in a fresh process."""
    run_once(name, *make_inputs((2, 4, shape[2])))
    inputs = make_inputs(shape)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # forgets the highest so far
    before = resident("VmRSS")
    run_once(name, *inputs)
    return resident("VmHWM") - before


def memory_in_a_process(name: str, shape: Shape) -> float:
    threads = str(torch.get_num_threads())
    command = [sys.executable, __file__, "--threads", threads, "--memory-of", name, ",".join(map(str, shape))]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure(shape: Shape, rounds: int, with_memory: bool) -> dict[str, dict[str, float]]:
    inputs = make_inputs(shape)
    times: dict[str, list[float]] = {name: [] for name in IMPLEMENTATIONS}
    for name in IMPLEMENTATIONS:
        run_once(name, *inputs)  # touches the memory
    for _ in range(rounds):
        for name in IMPLEMENTATIONS:
            times[name].append(run_once(name, *inputs))
    base = statistics.median(times["open weights"])
    results = {}
    for name, values in times.items():
        median = statistics.median(values)
        results[name] = {"median_ms": median, "min_ms": min(values), "max_ms": max(values), "speedup": base / median}
        if with_memory:
            results[name]["memory_mb"] = memory_in_a_process(name, shape)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two small shapes, a few seconds")
    parser.add_argument("--rounds", type=int, default=7, help="timed rounds per shape")
    parser.add_argument("--threads", type=int, help="threads of torch")
    parser.add_argument("--no-memory", action="store_true", help="leave the memory out")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    parser.add_argument("--memory-of", nargs=2, metavar=("NAME", "SHAPE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.memory_of:
        name, shape = options.memory_of
        batch, steps, slots = map(int, shape.split(","))
        print(measure_memory(name, (batch, steps, slots)))
        return

    machine = f"{processor()}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    table = Table(title=f"block-causal attention, dim {DIM}, {HEADS} heads, forward + backward, float32\n{machine}")
    for heading in ("batch, steps, slots", "attention", "median ms", "min to max", "x open weights", "MB over inputs"):
        table.add_column(heading, justify="left" if heading == "attention" else "right")
    rows = []
    for shape in QUICK_SHAPES if options.quick else SHAPES:
        for name, result in measure(shape, options.rounds, not options.no_memory).items():
            rows.append({"shape": shape, "attention": name, **result})
            table.add_row(
                ", ".join(map(str, shape)),
                name,
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
