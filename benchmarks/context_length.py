"""How the cost of a training step and of a streaming step grows with context length, for a core of the registry.

    python benchmarks/context_length.py [--core SlotSSM] [--lengths 80 160 ... 2560] [--threads 1] [--quick]

A training step is encoder, core and decoder, forward and backward, on the patch sequence of the Blinking Color Balls
setting (8 x 8-pixel patches of a 32 x 32 frame, so 4 tokens a step); only the last step is decoded, so the sequence is
all that grows. Lengths take turns in each repeat. The growth exponent is the slope of log time against log length.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from slotbench.interfaces import DataSpec, TemporalCore, VideoBatch, VideoSpec
from slotbench.registry import load
from slotbench.tasks.long_context_reasoning import LongContextReasoning

BATCH = 2
SPEC = DataSpec(VideoSpec(3, 8, 8, patches_per_side=4), VideoSpec(7, 32, 32))


def clip(length: int) -> VideoBatch:
    """Random patches with a random last target; what is in them does not change the cost."""
    return VideoBatch(
        frames=torch.rand(BATCH, length, 3, 8, 8),
        time=torch.arange(length).expand(BATCH, length),
        target=torch.randint(7, (BATCH, 1, 32, 32)),
        target_time=torch.full((BATCH, 1), length - 1),
    )


def training_step(task: LongContextReasoning, batch: VideoBatch) -> float:
    begin = time.perf_counter()
    task.loss(task(batch), batch.target).backward()
    return time.perf_counter() - begin


@torch.no_grad()
def streaming_step(core: TemporalCore, warm: int, steps: int = 30) -> float:
    """Median seconds of one step after `warm` steps of context."""
    tokens = torch.randn(BATCH, 1, 4, 64)
    state = core(torch.randn(BATCH, warm, 4, 64)).state
    seconds = []
    for _ in range(steps):
        begin = time.perf_counter()
        state = core(tokens, state).state
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--core", default="SlotSSM")
    parser.add_argument("--lengths", type=int, nargs="+", default=[80, 160, 320, 640, 1280, 2560])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="two short lengths, two repeats, to see that it runs")
    parser.add_argument("--out", type=Path, help="write the numbers to this JSON file")
    options = parser.parse_args()
    lengths, repeats = ([20, 40], 2) if options.quick else (options.lengths, options.repeats)
    torch.set_num_threads(options.threads)
    task = LongContextReasoning(
        load("encoders", "PatchEncoder"),
        load("cores", options.core),
        load("decoders", "TransformerDecoder"),
        data_spec=SPEC,
    )
    batches = {length: clip(length) for length in lengths}
    training: dict[int, list[float]] = {length: [] for length in lengths}
    streaming: dict[int, list[float]] = {length: [] for length in lengths}
    training_step(task, batches[lengths[0]])  # compilation
    for _ in range(repeats):
        for length in lengths:
            training[length].append(training_step(task, batches[length]))
            streaming[length].append(streaming_step(task.core, length))
    medians = [statistics.median(training[length]) for length in lengths]
    exponent = np.polyfit(np.log(lengths), np.log(medians), 1)[0]
    table = Table(title=f"{options.core}, batch {BATCH}, {options.threads} thread(s), {platform.machine()}")
    for column in ("length", "training step ms", "range ms", "us per step", "streaming step ms"):
        table.add_column(column, justify="right")
    for length, median in zip(lengths, medians, strict=True):
        values = training[length]
        table.add_row(
            str(length),
            f"{1e3 * median:.0f}",
            f"{1e3 * min(values):.0f} to {1e3 * max(values):.0f}",
            f"{1e6 * median / length:.0f}",
            f"{1e3 * statistics.median(streaming[length]):.2f}",
        )
    console = Console()
    console.print(table)
    late, early = (statistics.median(streaming[length]) for length in (lengths[-1], lengths[0]))
    console.print(f"training time grows as length^{exponent:.2f}; streaming step, late to early: {late / early:.2f}")
    if options.out is not None:
        numbers = {"core": options.core, "training": training, "streaming": streaming, "exponent": exponent}
        options.out.write_text(json.dumps(numbers, indent=1))


if __name__ == "__main__":
    main()
