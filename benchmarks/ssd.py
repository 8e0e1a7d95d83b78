"""Times the kernels of Mamba-2's scan, forward plus backward, beside Mamba's scan at the same width.

    python benchmarks/ssd.py [--quick] [--out results.json]

The kernels take turns within every round, so that other load on the machine hits all alike: read the ratios, which are
of medians within one run. The sizes are those of a block of width 64: 4 heads of 20 channels, 16 states.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn import functional

from slotbench.ops import available_kernels, selective_scan, ssd

SHAPES = [(96, 20), (32, 320), (8, 1280)]
QUICK_SHAPES = [(8, 20), (2, 160)]
HEADS, HEAD_DIM, STATES = 4, 20, 16
Run = Callable[[], tuple[Tensor, Tensor]]


def make_runs(batch: int, steps: int) -> tuple[dict[str, Run], list[Tensor]]:
    """A call per kernel, all on the same numbers, and the leaves that they differentiate."""
    torch.manual_seed(0)
    inner = HEADS * HEAD_DIM
    x = torch.randn(batch, steps, inner).requires_grad_()
    delta = functional.softplus(torch.randn(batch, steps, HEADS) - 3).requires_grad_()
    A = (-torch.rand(HEADS) * 15 - 1).requires_grad_()
    B, C = (torch.randn(batch, steps, STATES).requires_grad_() for _ in range(2))

    def run_ssd(kernel: str) -> tuple[Tensor, Tensor]:
        return ssd(x.unflatten(-1, (HEADS, HEAD_DIM)), delta, A, B[:, :, None], C[:, :, None], kernel=kernel)

    def run_selective_scan(kernel: str) -> tuple[Tensor, Tensor]:
        rates = A.repeat_interleave(HEAD_DIM)[:, None].expand(inner, STATES)
        return selective_scan(x, delta.repeat_interleave(HEAD_DIM, dim=-1), rates, B, C, kernel=kernel)

    runs: dict[str, Run] = {}
    for op, run in (("ssd", run_ssd), ("selective_scan", run_selective_scan)):
        for kernel, reason in available_kernels(op, "cpu").items():
            if reason is None and (op, kernel) != ("selective_scan", "reference"):
                runs[f"{op} {kernel}"] = lambda run=run, kernel=kernel: run(kernel)
    return runs, [x, delta, A, B, C]


def run_once(run: Run, leaves: list[Tensor]) -> float:
    """Milliseconds of one forward and backward, through y and through the last state."""
    begin = time.perf_counter()
    outputs = run()
    torch.autograd.grad(outputs, leaves, [torch.ones_like(output) for output in outputs])
    return 1e3 * (time.perf_counter() - begin)


def measure(batch: int, steps: int, rounds: int) -> dict[str, dict[str, float]]:
    runs, leaves = make_runs(batch, steps)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run_once(run, leaves)  # compiles, and touches the memory
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(run_once(run, leaves))
    base = statistics.median(times["ssd reference"])
    return {
        name: {
            "median_ms": statistics.median(values),
            "min_ms": min(values),
            "max_ms": max(values),
            "speedup": base / statistics.median(values),
        }
        for name, values in times.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two small shapes, a few seconds")
    parser.add_argument("--rounds", type=int, default=7, help="timed rounds per shape")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch and of the compiled kernels")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    machine = f"{options.threads} thread(s), torch {torch.__version__}"
    table = Table(title=f"ssd, forward + backward, float32, {HEADS} heads of {HEAD_DIM}, {STATES} states\n{machine}")
    for heading in ("batch, time", "kernel", "median ms", "min to max", "x ssd reference"):
        table.add_column(heading, justify="left" if heading == "kernel" else "right")
    rows = []
    for batch, steps in QUICK_SHAPES if options.quick else SHAPES:
        for name, result in measure(batch, steps, options.rounds).items():
            rows.append({"batch": batch, "time": steps, "kernel": name, **result})
            table.add_row(
                f"{batch}, {steps}",
                name,
                f"{result['median_ms']:.1f}",
                f"{result['min_ms']:.1f} to {result['max_ms']:.1f}",
                f"{result['speedup']:.1f}",
            )
    Console().print(table)
    if options.out:
        options.out.write_text(json.dumps({"machine": machine, "results": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
