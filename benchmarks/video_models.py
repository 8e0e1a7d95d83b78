"""How training and sampling of video models grow with length: ConvS5, ConvLSTM and frame transformers, on the CPU.

    python benchmarks/video_models.py [--lengths 20 75 150 300 600] [--rounds 3] [--quick] [--out results.json]

Every model is ResNetEncoder, a core and ResNetDecoder around 8 x 8 cells of width 64, with two layers in the core and
one clip in the batch. Transformer and Performer see a frame as one token; beside the Transformer of the same width
stands one of four times the width, as in the paper (1024 to 256). A training step is forward and backward with the loss
of VideoPrediction, cut at the core's input and output, so that one step times the whole model and the core alone.

Sampling a frame is decoder, encoder and one step of the core, in turns from the states after 100 and after 800 frames.
`whole clip` is the public code's way with the Transformer: no cache, every frame so far through encoder and core again.
The frames per second of a roll-out are those of a straight line through these times, since a roll-out takes minutes.

The profile runs the core alone at one length, and gives the time inside torch's operations by kind, with the speed of
the convolutions. The scan is timed on its own. `outside` is what is left of a step that was not observed: the
interpreter, autograd and dispatch.

All times are processor times of one thread, which does not count the waiting for a busy machine; models take turns
within every round. Read the ratios: medians of the ratios within each round, with the smallest and the largest.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from slotbench.interfaces import DataSpec, VideoBatch, VideoSpec
from slotbench.ops import linear_scan
from slotbench.registry import load
from slotbench.runs.provenance import processor
from slotbench.tasks.video_prediction import VideoPrediction

FRAME = VideoSpec(1, 32, 32)
DEPTHS = (8, 16, 64)
WIDTH, LAYERS = 64, 2
WIDER = "FrameTransformer, 4 x width"
MODELS: dict[str, dict[str, int]] = {
    "ConvS5": {"state_dim": WIDTH},
    "ConvLSTM": {},
    "FrameTransformer": {},
    WIDER: {"dim": 4 * WIDTH, "output_dim": WIDTH},
    "Performer": {},
}
PAIRS = [("ConvLSTM", "ConvS5"), ("ConvS5", "FrameTransformer"), ("ConvS5", WIDER), ("ConvLSTM", WIDER)]
PROFILED = ("ConvS5", "ConvLSTM")
CONTEXT, HORIZONS = 100, (400, 800, 1200)
# what the name of an operation begins with, first to last
KINDS = {
    "convolutions": ("convolution",),
    "norms": ("native_group_norm", "native_layer_norm"),
    "activations": ("gelu", "elu", "sigmoid", "tanh"),
    "linear maps": ("addmm", "mm", "bmm"),
    "sums, products, copies": ("",),
}
Seconds = dict[str, Any]


def build(name: str) -> VideoPrediction:
    torch.manual_seed(0)
    arguments = {"dim": WIDTH, "num_layers": LAYERS} | MODELS[name]
    return VideoPrediction(
        partial(load("encoders", "ResNetEncoder"), depths=DEPTHS),
        partial(load("cores", name.partition(",")[0]), **arguments),
        partial(load("decoders", "ResNetDecoder"), depths=DEPTHS),
        loss="l1_l2",
        data_spec=DataSpec(FRAME, FRAME),
    )


def clip(length: int) -> VideoBatch:
    """Random frames; what is in them does not change the cost."""
    frames = torch.rand(1, length, FRAME.channels, FRAME.height, FRAME.width)
    return VideoBatch(frames, torch.arange(length)[None])


def timed(seconds: list[float], function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function returns; its processor time is added to the list."""
    begin = time.process_time()
    result = function(*arguments)
    seconds.append(time.process_time() - begin)
    return result


def training_step(task: VideoPrediction, batch: VideoBatch) -> tuple[float, float]:
    """Seconds of the whole model and of the core alone, forward and backward."""
    task.zero_grad(set_to_none=True)
    gc.collect()
    length = batch.num_steps
    seconds: list[float] = []
    tokens = timed(seconds, task.encoder, batch.slice_time(0, length - 1))
    tokens_in = tokens.detach().requires_grad_()
    slots = timed(seconds, lambda: task.core(tokens_in).slots)
    slots_in = slots.detach().requires_grad_()
    loss = timed(seconds, lambda: task.loss(task.decoder(slots_in, batch.slice_time(1, length)), batch))
    timed(seconds, loss.backward)
    timed(seconds, slots.backward, slots_in.grad)
    timed(seconds, tokens.backward, tokens_in.grad)
    return sum(seconds), seconds[1] + seconds[4]


class Sampler:
    """Frames one at a time, from states that were kept."""

    def __init__(self, task: VideoPrediction, steps: tuple[int, ...]):
        self.task, self.steps = task, steps
        self.kept: list[tuple[Tensor, Any]] = []
        state, before = None, 0
        with torch.no_grad():
            for step in steps:
                out = task.core(task.encoder(clip(step - before)), state)
                self.kept.append((out.slots[:, -1:], out.state))
                state, before = out.state, step

    @torch.no_grad()
    def measure(self, turns: int) -> list[float]:
        """Median seconds of a frame after each of the steps, in turns."""
        seconds: list[list[float]] = [[] for _ in self.steps]
        for _ in range(turns):
            for found, (slots, state), step in zip(seconds, self.kept, self.steps, strict=True):
                timed(found, self._frame, slots, state, step)
        return [statistics.median(found) for found in seconds]

    def _frame(self, slots: Tensor, state: Any, step: int) -> None:
        frame = self.task.frames(self.task.decoder(slots))
        self.task.core(self.task.encoder(VideoBatch(frame, torch.tensor([[step]]))), state)


@torch.no_grad()
def whole_clip(task: VideoPrediction, batch: VideoBatch) -> float:
    """Seconds of a frame where all frames so far are read again."""
    seconds: list[float] = []
    timed(seconds, lambda: task.frames(task.decoder(task.core(task.encoder(batch)).slots[:, -1:])))
    return seconds[0]


class OperationTimes(TorchDispatchMode):
    """Seconds and multiply-adds of every operation that runs under it, backward included, by kind."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls = 0
        self.multiply_adds = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        begin = time.process_time()
        result = func(*args, **(kwargs or {}))
        seconds = time.process_time() - begin
        name = func.overloadpacket.__name__.lstrip("_")
        kind = next(kind for kind, starts in KINDS.items() if name.startswith(starts))
        self.seconds[kind] += seconds
        self.calls += 1
        if name == "convolution":
            self.multiply_adds += result.numel() * args[1][0].numel()
        elif name == "convolution_backward":
            self.multiply_adds += args[0].numel() * args[2][0].numel() * sum(args[-1][:2])
        return result


def profile(core: nn.Module, length: int) -> Seconds:
    """One step of the core as it is, then one under observation, and its scans on their own."""
    cells = (FRAME.height // 4) * (FRAME.width // 4)
    tokens = torch.randn(1, length, cells, WIDTH, requires_grad=True)
    gradient = torch.randn(1, length, cells, WIDTH)

    def step() -> None:
        core.zero_grad(set_to_none=True)
        tokens.grad = None
        core(tokens).slots.backward(gradient)

    alone: list[float] = []
    timed(alone, step)
    operations = OperationTimes()
    with operations:
        step()
    parts = dict(operations.seconds)
    parts["scan"] = sum(scan_seconds(length) for _ in range(LAYERS)) if hasattr(core.layers[0], "ssm") else 0.0
    parts["outside"] = alone[0] - sum(parts.values())
    return {
        "step": alone[0],
        "parts": parts,
        "calls": operations.calls,
        "convolution_gmacs": operations.multiply_adds / 1e9,
        "convolution_gmacs_per_second": operations.multiply_adds / 1e9 / parts["convolutions"],
    }


def scan_seconds(length: int) -> float:
    drive = torch.randn(1, length, FRAME.height // 4, FRAME.width // 4, WIDTH // 2, dtype=torch.complex64)
    decay = torch.polar(torch.full((WIDTH // 2,), 0.99), torch.linspace(0, 3, WIDTH // 2))
    inputs, gradient = [drive.requires_grad_(), decay.requires_grad_()], torch.randn_like(drive)
    seconds: list[float] = []
    timed(seconds, lambda: torch.autograd.grad(linear_scan(*inputs)[0], inputs, gradient))
    return seconds[0]


def measure(options: argparse.Namespace, save: Callable[[Seconds], None]) -> Seconds:
    """Rounds of everything; what there is so far is saved after each."""
    tasks = {name: build(name) for name in MODELS}
    parameters = {name: sum(p.numel() for p in task.core.parameters()) for name, task in tasks.items()}
    steps = tuple(options.steps)
    found: Seconds = {
        "core_parameters": parameters,
        "training": {name: {length: [] for length in options.lengths} for name in tasks},
        "sampling": {name: [] for name in tasks},
        "steps": steps,
        "whole_clip": {name: {length: [] for length in options.window} for name in ("FrameTransformer", WIDER)},
        "profile_length": options.profile_length,
        "profile": {name: [] for name in PROFILED},
        "load": [],
    }
    for task in tasks.values():  # compiles, and loads what is loaded on first use
        training_step(task, clip(4))
        Sampler(task, (1, 2)).measure(1)
    samplers = {name: Sampler(task, steps) for name, task in tasks.items()}
    for index in range(options.rounds):
        found["load"].append(os.getloadavg()[0])
        for name, sampler in samplers.items():
            found["sampling"][name].append(sampler.measure(options.turns))
        for length in options.lengths:
            if index >= options.long_rounds and length > options.profile_length:
                continue
            batch = clip(length)
            for name, task in tasks.items():
                found["training"][name][length].append(training_step(task, batch))
            save(found)
        for name in PROFILED:
            found["profile"][name].append(profile(tasks[name].core, options.profile_length))
        for name, times in found["whole_clip"].items():
            for length, values in times.items():
                values.append(whole_clip(tasks[name], clip(length)))
        save(found)
    return found


def spread(values: list[float], digits: int = 2) -> str:
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return f"{statistics.median(values):.{digits}f} ({low} to {high})"


def ratios(above: list[float], below: list[float]) -> str:
    return spread([a / b for a, b in zip(above, below, strict=True)])


def exponent(times: dict[int, list[tuple[float, float]]], part: int) -> float:
    medians = [statistics.median(value[part] for value in values) for values in times.values()]
    return float(np.polyfit(np.log(list(times)), np.log(medians), 1)[0])


def rollout_rates(times: dict[int, list[float]]) -> dict[int, float]:
    """Frames per second over each horizon, by a straight line through the time of a frame."""
    medians = [statistics.median(values) for values in times.values()]
    slope, offset = np.polyfit(list(times), medians, 1)
    return {horizon: float(1 / (offset + slope * (CONTEXT + horizon / 2))) for horizon in HORIZONS}


def table(title: str, *headings: str) -> Table:
    made = Table(title=title)
    for index, heading in enumerate(headings):
        made.add_column(heading, justify="right" if index else "left")
    return made


def training_tables(found: Seconds) -> list[Table]:
    tables = []
    for part, name in enumerate(("whole model", "core alone")):
        times = found["training"]
        lengths = list(next(iter(times.values())))
        shown = table(f"training step, {name}, ms", "core", *map(str, lengths), "grows as T^", "parameters")
        for model, by_length in times.items():
            row = [spread([1e3 * value[part] for value in values], 0) for values in by_length.values()]
            count = f"{found['core_parameters'][model]:,}"
            shown.add_row(model, *row, f"{exponent(by_length, part):.2f}", count)
        for above, below in PAIRS:
            both = [[[value[part] for value in times[model][length]] for model in (above, below)] for length in lengths]
            shown.add_row(f"{above} / {below}", *(ratios(*pair) for pair in both), "", "")
        tables.append(shown)
    return tables


def sampling_tables(found: Seconds) -> list[Table]:
    early, late = found["steps"]
    shown = table("sampling", "core", f"ms a frame at t = {early}", f"at t = {late}", "late / early", "frames/s late")
    for model, rounds in found["sampling"].items():
        before, after = ([times[index] for times in rounds] for index in (0, 1))
        row = (spread([1e3 * x for x in before]), spread([1e3 * x for x in after]), ratios(after, before))
        shown.add_row(model, *row, spread([1 / x for x in after], 0))
    whole = found["whole_clip"]
    windows = list(next(iter(whole.values())))
    again = table(
        "sampling with the whole clip read again, ms a frame",
        "core",
        *(f"t = {length}" for length in windows),
        *(f"frames/s over {horizon}" for horizon in HORIZONS),
    )
    for model, times in whole.items():
        row = [spread([1e3 * x for x in values], 0) for values in times.values()]
        again.add_row(model, *row, *(f"{rate:.1f}" for rate in rollout_rates(times).values()))
        for other in PROFILED:
            constant = statistics.median(1 / after for _, after in found["sampling"][other])
            rates = [f"{constant / rate:.1f}" for rate in rollout_rates(times).values()]
            again.add_row(f"  {other}, times as fast", *("" for _ in windows), *rates)
    return [shown, again]


def profile_table(found: Seconds) -> Table:
    parts = list(dict.fromkeys((*KINDS, "scan", "outside")))
    shown = table(f"core alone, one step at T = {found['profile_length']}, ms", "part", *PROFILED)

    def row(name: str, value: Callable[[Seconds], float], digits: int = 0) -> None:
        shown.add_row(name, *(spread([value(x) for x in found["profile"][model]], digits) for model in PROFILED))

    row("step, not observed", lambda x: 1e3 * x["step"])
    for part in parts:
        row(part, lambda x, part=part: 1e3 * x["parts"].get(part, 0.0))  # type: ignore[misc]
    row("operations", lambda x: x["calls"])
    row("multiply-adds of the convolutions, 10^9", lambda x: x["convolution_gmacs"], 1)
    row("10^9 of them a second", lambda x: x["convolution_gmacs_per_second"], 1)
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[20, 75, 150, 300, 600], help="frames of a clip")
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds")
    parser.add_argument("--long-rounds", type=int, default=3, help="of them, with clips longer than the profiled ones")
    parser.add_argument("--steps", type=int, nargs=2, default=[100, 800], help="early and late step of sampling")
    parser.add_argument("--turns", type=int, default=15, help="sampled frames of each per round")
    parser.add_argument("--window", type=int, nargs="+", default=[100, 400, 800, 1200], help="frames read again")
    parser.add_argument("--profile-length", type=int, default=300, help="frames of the profile")
    parser.add_argument("--quick", action="store_true", help="short clips, one round, to see that it runs")
    parser.add_argument("--out", type=Path, help="write the numbers to this JSON file, after every length")
    options = parser.parse_args()
    if options.quick:
        options.lengths, options.rounds, options.turns, options.steps = [8, 16], 1, 3, [4, 8]
        options.window, options.profile_length = [4, 8], 8
    torch.set_num_threads(1)
    machine = f"{processor()}, 1 thread, torch {torch.__version__}"

    def save(found: Seconds) -> None:
        if options.out:
            options.out.write_text(json.dumps({"machine": machine, **found}, indent=1) + "\n")

    found = measure(options, save)
    console = Console(width=170)
    console.print(f"{machine}, load average {min(found['load']):.1f} to {max(found['load']):.1f}", markup=False)
    for shown in (*training_tables(found), *sampling_tables(found), profile_table(found)):
        console.print(shown)


if __name__ == "__main__":
    main()
