"""Training steps of the papers' models, and of video models against the length of a clip.

    python benchmarks/models.py steps      # PSB, SAVi, SlotSSM, ConvS5, RIM: the core alone
    python benchmarks/models.py length     # encoder, core, decoder of ConvS5's paper, and a sampled frame
    python benchmarks/models.py memory     # peak memory of a step, each in a process of its own

Milliseconds are medians of torch.utils.benchmark on one thread; kernels "auto".
"""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch.utils.benchmark import Timer

from slotbench.bench.memory import MemoryMeter
from slotbench.interfaces import DataSpec, TokenSpec, VideoBatch, VideoSpec
from slotbench.registry import load
from slotbench.tasks.video_prediction import VideoPrediction

# name -> (core, its arguments, clips, steps, tokens, width)
STEPS: dict[str, tuple[str, dict[str, Any], int, int, int, int]] = {
    "PSB, 1,024 tokens of 192": ("PSB", {"num_slots": 11, "dim": 192, "num_layers": 3}, 4, 6, 1024, 192),
    "PSB, 256 tokens of 64": ("PSB", {"num_slots": 8, "dim": 64}, 2, 12, 256, 64),
    "SAVi, 1,024 tokens of 192": ("SAVi", {"num_slots": 11, "dim": 192, "num_iterations": 3}, 4, 6, 1024, 192),
    "SAVi, 16 tokens of 16": ("SAVi", {"num_slots": 4, "dim": 16, "num_iterations": 3}, 4, 6, 16, 16),
    "SlotSSM, 80 steps": ("SlotSSM", {"num_slots": 6, "dim": 64}, 6, 80, 16, 64),
    "SlotTransformer, 80 steps": ("SlotTransformer", {"num_slots": 6, "dim": 64}, 6, 80, 16, 64),
    "RIM, 80 steps": ("RIM", {}, 6, 80, 16, 64),
    "ConvS5, 75 frames": ("ConvS5", {"dim": 64, "state_dim": 64, "num_layers": 2}, 1, 75, 64, 64),
    "ConvLSTM, 75 frames": ("ConvLSTM", {"dim": 64, "num_layers": 2}, 1, 75, 64, 64),
}
FRAME, DEPTHS = VideoSpec(1, 32, 32), (8, 16, 64)
VIDEO_CORES: dict[str, dict[str, Any]] = {
    "ConvS5": {"state_dim": 64},
    "ConvLSTM": {},
    "FrameTransformer": {},
    "Performer": {},
}


def core_step(name: str, quick: bool) -> Callable[[], None]:
    """Forward and backward of a core on random tokens."""
    core_name, arguments, clips, steps, tokens, width = STEPS[name]
    torch.manual_seed(0)
    side = round(tokens**0.5)
    core = load("cores", core_name)(TokenSpec(width, tokens, (side, side)), **arguments)
    given = torch.randn(clips, min(steps, 3) if quick else steps, tokens, width, requires_grad=True)

    def step() -> None:
        core.zero_grad(set_to_none=True)
        core(given).slots.square().mean().backward()

    return step


def video_task(core: str) -> VideoPrediction:
    """ResNetEncoder, a core of two layers and ResNetDecoder."""
    torch.manual_seed(0)
    return VideoPrediction(
        partial(load("encoders", "ResNetEncoder"), depths=DEPTHS),
        partial(load("cores", core), dim=64, num_layers=2, **VIDEO_CORES[core]),
        partial(load("decoders", "ResNetDecoder"), depths=DEPTHS),
        loss="l1_l2",
        data_spec=DataSpec(FRAME, FRAME),
    )


def clip(length: int) -> VideoBatch:
    """Random frames."""
    return VideoBatch(torch.rand(1, length, 1, 32, 32), torch.arange(length)[None])


def video_step(core: str, length: int) -> Callable[[], None]:
    """Forward and backward of a whole model."""
    task, batch = video_task(core), clip(length)

    def step() -> None:
        task.zero_grad(set_to_none=True)
        task.training_loss(batch).backward()

    return step


def sampled_frame(core: str, context: int) -> Callable[[], None]:
    """A frame from the state after some frames: decoder, encoder, one step of the core."""
    task = video_task(core).eval()
    with torch.no_grad():
        out = task.core(task.encoder(clip(context)))

    @torch.no_grad()
    def frame() -> None:
        made = task.frames(task.decoder(out.slots[:, -1:], clip(1)))
        task.core(task.encoder(VideoBatch(made, torch.tensor([[context]]))), out.state)

    return frame


def cases(what: str, quick: bool) -> Iterator[tuple[str, Callable[[], Callable[[], None]]]]:
    """Name and maker of each case."""
    if what in ("steps", "memory"):
        for name in list(STEPS)[3:5] if quick else STEPS:
            yield name, partial(core_step, name, quick)
        return
    for core in ["ConvS5"] if quick else VIDEO_CORES:
        for length in [4] if quick else [20, 75, 150, 300, 600]:
            yield f"{core}, training step, T = {length}", partial(video_step, core, length)
        for context in [4] if quick else [100, 800]:
            yield f"{core}, a frame after {context}", partial(sampled_frame, core, context)


def peak(make: Callable[[], Callable[[], None]], threads: int) -> float:
    """Megabytes of a second call, beyond what a first one has left."""
    torch.set_num_threads(threads)
    call, meter = make(), MemoryMeter("cpu")
    call()
    meter.reset()
    call()
    return meter.peak()


def main() -> None:
    """Prints a line per case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["steps", "length", "memory"], nargs="?", default="steps")
    parser.add_argument("--seconds", type=float, default=10.0, help="that a case is timed for (default: 10)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="small, to see that it runs")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    for name, make in cases(given.what, given.quick):
        if given.what == "memory":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(f"{name:<45}{pool.apply(peak, (make, given.threads)):10.1f} MB", flush=True)
            continue
        call = make()
        call()  # compiles
        timer = Timer("call()", globals={"call": call}, num_threads=given.threads)
        found = timer.blocked_autorange(min_run_time=0.1 if given.quick else given.seconds)
        print(f"{name:<45}{1e3 * found.median:10.2f} ms  ({found.iqr * 1e3:.2f} between quartiles)", flush=True)


if __name__ == "__main__":
    main()
