"""Training steps of the papers' models, and of video models against the length of a clip.

    python benchmarks/models.py steps      # PSB, SAVi, SlotSSM, ConvS5, RIM: the core alone
    python benchmarks/models.py length     # encoder, core, decoder of ConvS5's paper, and a sampled frame
    python benchmarks/models.py memory     # peak memory of a step, each in a process of its own
    python benchmarks/models.py codes      # Table 11 of ConvS5's paper at its sizes: experiments/paper, one clip

Milliseconds are medians of torch.utils.benchmark on one thread; kernels "auto".
"""

from __future__ import annotations

import argparse
import inspect
import multiprocessing
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import yaml
from torch.nn.functional import one_hot
from torch.utils.benchmark import Timer
from torch.utils.flop_counter import FlopCounterMode

from slotbench.bench.memory import MemoryMeter
from slotbench.interfaces import DataSpec, Tokenized, Tokenizer, TokenSpec, VideoBatch, VideoSpec
from slotbench.nn.mask_git import MaskGit
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
PAPER = Path(__file__).resolve().parents[1] / "experiments" / "paper"
CODES = [
    *(f"dmlab_{core}" for core in ("convs5", "s5", "transformer", "performer")),
    *(f"dmlab_teco_{core}" for core in ("convs5", "s5", "transformer")),
    *(f"{place}_teco_{core}" for place in ("minecraft", "habitat") for core in ("convs5", "transformer")),
]


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


class Codes(Tokenizer):
    """A table of code vectors as large as a VQ-GAN's; the frames that it paints are blank."""

    def __init__(self, video_spec: VideoSpec, num_codes: int):
        super().__init__()
        self.frame, self.code_spec = video_spec, VideoSpec(num_codes, 16, 16)
        self.register_buffer("codebook", torch.randn(num_codes, 256))

    def forward(self, frames: torch.Tensor) -> Tokenized:
        """Not there."""
        raise TypeError("clips come with their codes, and no frame is read")

    def decode(self, codes: torch.Tensor) -> torch.Tensor:
        """Blank frames."""
        return torch.zeros(*codes.shape[:2], self.frame.channels, self.frame.height, self.frame.width)


def coded(experiment: str, length: int) -> tuple[Any, VideoBatch]:
    """The task of an experiment over codes, and a clip of random codes and actions."""
    config = yaml.safe_load((PAPER / f"{experiment}.yaml").read_text())
    model, given, side = config["model"]["init_args"], {}, config["data"]["init_args"]["resolution"]
    task = load("tasks", config["model"]["class_path"])
    for name in ("encoder", "core", "decoder", "prior"):
        if name in model:
            arguments = {k: tuple(v) if isinstance(v, list) else v for k, v in model[name]["init_args"].items()}
            given[name] = partial(
                MaskGit if name == "prior" else load(f"{name}s", model[name]["class_path"]), **arguments
            )
    taken = inspect.signature(task).parameters
    given |= {k: v for k, v in model.items() if k in taken and not isinstance(v, dict)}
    frame, codes = VideoSpec(3, side, side, 6), 8192 if "habitat" in experiment else 1024
    given |= {"tokenizer": partial(Codes, num_codes=codes), "data_spec": DataSpec(frame, frame)}
    torch.manual_seed(0)
    actions = one_hot(torch.randint(6, (1, length)), 6).float()
    clip = {"actions": actions, "codes": torch.randint(codes, (1, length, 16, 16))}
    return task(**given), VideoBatch(torch.zeros(1, length, 3, side, side), torch.arange(length)[None], **clip)


def coded_step(experiment: str, quick: bool) -> Callable[[], None]:
    """Forward and backward of a model of codes; of eleven frames TECO has a loss of one, as of a tenth of 300."""
    task, batch = coded(experiment, 2 if quick else 11 if "teco" in experiment else 4)

    def step() -> None:
        task.zero_grad(set_to_none=True)
        task.training_loss(batch).backward()

    with FlopCounterMode(display=False) as counter:
        step()
    print(f"{experiment}: {counter.get_total_flops() / 1e9:.0f} GFLOP a step", flush=True)
    return step


def coded_frame(experiment: str, quick: bool) -> Callable[[], None]:
    """Reads two frames and draws two."""
    task, batch = coded(experiment, 4)
    task.eval()

    @torch.no_grad()
    def frame() -> None:
        for _ in task.rollout_steps(batch, 2, 2):
            pass

    return frame


def cases(what: str, quick: bool) -> Iterator[tuple[str, Callable[[], Callable[[], None]]]]:
    """Name and maker of each case."""
    if what in ("steps", "memory"):
        for name in list(STEPS)[3:5] if quick else STEPS:
            yield name, partial(core_step, name, quick)
        return
    if what == "codes":
        for name in CODES[:1] if quick else CODES:
            yield f"{name}, training step", partial(coded_step, name, quick)
            yield f"{name}, 2 frames after 2", partial(coded_frame, name, quick)
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
    parser.add_argument("what", choices=["steps", "length", "memory", "codes"], nargs="?", default="steps")
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
