"""Where one training step of an experiment goes: making the batch, each part forward and backward, the optimiser.

    python benchmarks/training_step.py [--config experiments/blinking_balls.yaml] [--threads 1] [--repeats 20] [--quick]

Parts are timed one after the other in each repeat, so that load on the machine hits all alike; shares are of the sum.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import yaml
from rich.console import Console
from rich.table import Table

from slotbench.data.base import SlotDataModule
from slotbench.registry import load
from slotbench.tasks.base import SlotTask


def build(config: dict) -> tuple[SlotDataModule, SlotTask]:
    """Data and task of an experiment file."""

    def component(kind: str, part: dict) -> Callable:
        return partial(load(kind, part["class_path"]), **part.get("init_args", {}))

    data = component("datasets", config["data"])()
    arguments = dict(config["model"]["init_args"])
    parts = {kind: component(f"{kind}s", arguments.pop(kind)) for kind in ("encoder", "core", "decoder")}
    for unused in ("optimizer", "schedule"):
        arguments.pop(unused)
    task = load("tasks", config["model"]["class_path"])(**parts, **arguments, data_spec=data.spec)
    return data, task


class Stopwatch:
    """Seconds by name, one entry per repeat."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    def __call__(self, name: str, function: Callable):
        begin = time.perf_counter()
        result = function()
        self.seconds.setdefault(name, []).append(time.perf_counter() - begin)
        return result


def measure(data: SlotDataModule, task: SlotTask, repeats: int) -> dict[str, list[float]]:
    """Times every part of `repeats` steps."""
    optimizer = torch.optim.AdamW(task.parameters(), lr=1e-3)
    batches = iter(data.train_dataloader())
    for repeat in range(repeats + 2):
        if repeat in (0, 2):  # two steps to warm up: compilation, caches
            watch = Stopwatch()
        batch = watch("make the batch", lambda: data.on_after_batch_transfer(next(batches), 0))
        tokens = watch("encoder, forward", lambda batch=batch: task.encoder(batch))
        tokens_in = tokens.detach().requires_grad_()
        out = watch("core, forward", lambda tokens_in=tokens_in: task.core(tokens_in))
        due = (batch.target_time[0] - batch.time[0, 0]).tolist()
        slots = out.slots[:, due if task.dense_targets else due[-1:]]
        slots_in = slots.detach().requires_grad_()

        def decode(slots_in=slots_in, batch=batch) -> torch.Tensor:
            return task.loss(task.decoder(slots_in, batch), batch.target)

        loss = watch("decoder and loss, forward", decode)
        watch("decoder and loss, backward", loss.backward)
        watch("core, backward", lambda slots=slots, slots_in=slots_in: slots.backward(slots_in.grad))
        watch("encoder, backward", lambda tokens=tokens, tokens_in=tokens_in: tokens.backward(tokens_in.grad))
        watch("clip and optimise", lambda: _optimise(task, optimizer))
    return watch.seconds


def _optimise(task: SlotTask, optimizer: torch.optim.Optimizer) -> None:
    torch.nn.utils.clip_grad_norm_(task.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=Path("experiments/blinking_balls.yaml"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="three repeats, to see that it runs")
    parser.add_argument("--out", type=Path, help="write the numbers to this JSON file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    data, task = build(yaml.safe_load(options.config.read_text()))
    seconds = measure(data, task, 3 if options.quick else options.repeats)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    whole = sum(medians.values())
    table = Table(title=f"{options.config}, {options.threads} thread(s), {platform.processor() or platform.machine()}")
    for column in ("part", "median ms", "quartiles ms", "share"):
        table.add_column(column, justify="left" if column == "part" else "right")
    for name, values in seconds.items():
        low, _, high = statistics.quantiles(values, n=4)
        table.add_row(
            name, f"{1e3 * medians[name]:.1f}", f"{1e3 * low:.1f} to {1e3 * high:.1f}", f"{medians[name] / whole:.1%}"
        )
    table.add_row("sum", f"{1e3 * whole:.1f}", "", "100 %")
    Console().print(table)
    if options.out is not None:
        options.out.write_text(json.dumps({"config": str(options.config), "seconds": seconds}, indent=1))


if __name__ == "__main__":
    main()
