"""ConvS5, ConvLSTM and frame transformers against length: a training step, a sampled frame, and a clip read again.

Every model is ResNetEncoder, a core and ResNetDecoder around 8 x 8 cells of width 64, with two layers in the core and
one clip in the batch. Transformer and Performer see a frame as one token; beside the Transformer of the same width
stands one of four times the width, as in the paper (1024 to 256). A training step is forward and backward with the loss
of VideoPrediction, without the optimiser. Sampling a frame is decoder, encoder and one step of the core, from the state
after 100 and after 800 frames. A whole clip is the public code's way with the Transformer: no cache, every frame so far
through encoder and core again for each new frame.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from slotbench.bench.contest import Contest, Way
from slotbench.bench.subjects import Subject
from slotbench.interfaces import DataSpec, VideoBatch, VideoSpec
from slotbench.ops import linear_scan
from slotbench.registry import load
from slotbench.tasks.video_prediction import VideoPrediction

__all__ = ["SUBJECT"]

FRAME = VideoSpec(1, 32, 32)
CELLS = (FRAME.height // 4) * (FRAME.width // 4)
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
LENGTHS, STEPS, WINDOWS = (20, 75, 150, 300, 600), (100, 800), (100, 400, 800, 1200)
QUICK_LENGTHS, QUICK_STEPS, QUICK_WINDOWS = (8, 16), (4, 8), (4, 8)


def contests(quick: bool) -> Iterator[Contest]:
    """Training per length, whole and core alone; sampling; whole clips; the share of the scan."""
    lengths, steps, windows = (QUICK_LENGTHS, QUICK_STEPS, QUICK_WINDOWS) if quick else (LENGTHS, STEPS, WINDOWS)
    for group, ways in (("training step, whole model", _whole_model), ("training step, core alone", _core_alone)):
        for length in lengths:
            yield Contest(f"T = {length}", partial(ways, length), "ConvS5", group=group, size=float(length))
    for step in steps:
        yield Contest(f"after {step} frames", partial(_sampling, step), "ConvS5", unit="frames", group="sampling")
    for window in windows:
        yield Contest(
            f"after {window} frames",
            partial(_whole_clip, window),
            "ConvS5, state carried",
            unit="frames",
            group="sampling, the whole clip read again",
        )
    length = lengths[-2]
    yield Contest(f"T = {length}", partial(_scan_in_step, length), "core", group="the scan in ConvS5's step")


@cache
def _task(name: str) -> VideoPrediction:
    torch.manual_seed(0)
    arguments = {"dim": WIDTH, "num_layers": LAYERS} | MODELS[name]
    return VideoPrediction(
        partial(load("encoders", "ResNetEncoder"), depths=DEPTHS),
        partial(load("cores", name.partition(",")[0]), **arguments),
        partial(load("decoders", "ResNetDecoder"), depths=DEPTHS),
        loss="l1_l2",
        data_spec=DataSpec(FRAME, FRAME),
    )


def _clip(length: int, start: int = 0) -> VideoBatch:
    """Random frames; what is in them does not change the cost."""
    frames = torch.rand(1, length, FRAME.channels, FRAME.height, FRAME.width)
    return VideoBatch(frames, torch.arange(start, start + length)[None])


def _whole_model(length: int) -> dict[str, Way]:
    batch = _clip(length)

    def step(task: VideoPrediction) -> None:
        task.zero_grad(set_to_none=True)
        slots = task.core(task.encoder(batch.slice_time(0, length - 1))).slots
        task.loss(task.decoder(slots, batch.slice_time(1, length)), batch).backward()

    return {name: partial(step, _task(name)) for name in MODELS}


def _core_alone(length: int) -> dict[str, Way]:
    tokens = torch.randn(1, length, CELLS, WIDTH, requires_grad=True)
    gradient = torch.randn(1, length, CELLS, WIDTH)

    def step(core: Any) -> None:
        core.zero_grad(set_to_none=True)
        tokens.grad = None
        core(tokens).slots.backward(gradient)

    return {name: partial(step, _task(name).core) for name in MODELS}


def _sampling(step: int) -> dict[str, Way]:
    return {name: _next_frame(_task(name), step) for name in MODELS}


def _next_frame(task: VideoPrediction, step: int) -> Way:
    """Makes one more frame from the state after `step` frames, as a roll-out does."""
    encode, one_step, decode = task.encoder.prepared(), task.core.prepared(), task.decoder.prepared()
    with torch.no_grad():
        out = task.core(task.encoder(_clip(step)))
    slots, state = out.slots[:, -1:], out.state

    @torch.no_grad()
    def frame() -> None:
        made = task.frames(decode(slots))
        one_step(encode(VideoBatch(made, torch.tensor([[step]]))), state)

    return frame


def _whole_clip(window: int) -> dict[str, Way]:
    batch = _clip(window)

    @torch.no_grad()
    def frame(task: VideoPrediction) -> None:
        task.frames(task.decoder(task.core(task.encoder(batch)).slots[:, -1:]))

    ways: dict[str, Way] = {name: partial(frame, _task(name)) for name in ("FrameTransformer", WIDER)}
    return ways | {f"{name}, state carried": _next_frame(_task(name), window) for name in ("ConvS5", "ConvLSTM")}


def _scan_in_step(length: int) -> dict[str, Way]:
    half = WIDTH // 2
    drive = torch.randn(1, length, FRAME.height // 4, FRAME.width // 4, half, dtype=torch.complex64)
    decay = torch.polar(torch.full((half,), 0.99), torch.linspace(0, 3, half))
    inputs, gradient = [drive.requires_grad_(), decay.requires_grad_()], torch.randn_like(drive)

    def scans() -> list[tuple[Tensor, ...]]:
        return [torch.autograd.grad(linear_scan(drive, decay)[0], inputs, gradient) for _ in range(LAYERS)]

    return {"core": _core_alone(length)["ConvS5"], "its scans alone": scans}


SUBJECT = Subject(
    "video models, 32 x 32 pixels, 8 x 8 cells of width 64, one clip, float32", "length", contests, rounds=3
)
