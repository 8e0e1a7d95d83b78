"""Training steps of cores against one another: recurrences beside torch.nn.GRU, modules, and models of frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from slotbench.bench.subjects import Subject, by_shape
from slotbench.bench.timing import Contest, Way
from slotbench.interfaces import DataSpec, TokenSpec, VideoBatch, VideoSpec
from slotbench.ops import linear_scan
from slotbench.registry import load
from slotbench.tasks.video_prediction import VideoPrediction

__all__ = ["SUBJECTS"]


def _trained(module: nn.Module, outputs: Callable[[], Tensor]) -> None:
    """Forward and backward of the mean square."""
    module.zero_grad(set_to_none=True)
    outputs().square().mean().backward()


# --- recurrences


def _recurrences(quick: bool) -> list[Contest]:
    """One contest per (batch, steps, slots, width)."""
    return by_shape([(2, 20, 6, 16) if quick else (8, 100, 6, 64)], _recurrence_ways, "torch.nn.GRU")


class _PassThrough(nn.Module):
    """Stands for a slot encoder: the tokens are the slots."""

    def __init__(self, queries: Tensor):
        super().__init__()
        self.queries = queries

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        return tokens, tokens.new_zeros(tokens.shape[0], tokens.shape[1], tokens.shape[1])


def _recurrence_ways(shape: tuple[int, ...]) -> dict[str, Way]:
    """SlotRNN and RIM without what they have beside a recurrence, as far as the way says.

    torch.nn.GRU sees every slot of every clip as a sequence of its own. There is no slot encoder anywhere (tokens are
    as many and as wide as slots, and pass through), since it is attention and parallel over time.
    """
    batch, steps, slots, dim = shape
    torch.manual_seed(0)
    spec = TokenSpec(dim, slots)
    tokens = torch.randn(batch, steps, slots, dim, requires_grad=True)
    gru = nn.GRU(dim, dim, batch_first=True)
    sparse = max(1, 2 * slots // 3)
    cores = {
        "SlotRNN, no mixer": _slot_rnn(spec, "none"),
        "SlotRNN, attention": _slot_rnn(spec, "attention"),
        "RIM, GRUs alone": _groups_alone(spec),
        "RIM, all active, input attention": _rim(spec, top_k=slots, communication="off"),
        "RIM, top-k, input attention": _rim(spec, top_k=sparse, communication="off"),
        "RIM, top-k, both attentions": _rim(spec, top_k=sparse),
    }

    def both_passes(forward: Callable[[], Tensor]) -> None:
        tokens.grad = None
        forward().sum().backward()

    def slots_of(core: nn.Module) -> Tensor:
        found: Tensor = core(tokens).slots
        return found

    return {
        "torch.nn.GRU": lambda: both_passes(lambda: gru(tokens.transpose(1, 2).flatten(0, 1))[0]),
        **{name: partial(both_passes, partial(slots_of, core)) for name, core in cores.items()},
    }


def _slot_rnn(spec: TokenSpec, mixer: str) -> nn.Module:
    core: Any = load("cores", "SlotRNN")(spec, spec.num_tokens, spec.dim, num_layers=1, mixer=mixer)
    core.encoder = _PassThrough(core.encoder.queries.detach())
    return core


def _rim(spec: TokenSpec, **arguments: Any) -> nn.Module:
    core: nn.Module = load("cores", "RIM")(spec, spec.num_tokens, spec.dim, num_inputs=None, **arguments)
    return core


def _groups_alone(spec: TokenSpec) -> nn.Module:
    """RIM without either attention: each module reads the input of its own index."""
    rim: Any = load("cores", "RIM")

    class GroupsAlone(rim):  # type: ignore[misc]
        def per_step(self, tokens: Tensor) -> Tensor:
            return tokens

        def cell(self, inputs: Tensor, state: Any) -> tuple[Tensor, None, Any]:
            after, _ = self._update(inputs, state, None)
            return after.hidden, None, after

    sizes = (spec.num_tokens, spec.dim, spec.num_tokens)
    return GroupsAlone(spec, *sizes, num_inputs=None, input_value_dim=spec.dim, communication="off")


# --- the RIM family

MODULES, STEPS, TOKEN_DIM = 6, 20, 64


def _modular(quick: bool) -> list[Contest]:
    """One contest per (batch, tokens, width of a module): flat encoders have one token, the others a feature map."""
    full = [(32, 1, 100), (32, 36, 100), (8, 1, 64), (8, 36, 64)]
    return by_shape([(2, 1, 8), (2, 4, 8)] if quick else full, _modular_ways, "GRU")


def _modular_ways(shape: tuple[int, ...]) -> dict[str, Way]:
    """The family against a GRU whose state is as wide as all modules together, which reads a map as one vector."""
    batch, num_tokens, dim = shape
    torch.manual_seed(0)
    spec = TokenSpec(TOKEN_DIM, num_tokens)
    names = ("GRU", "RIM", "OCRIM", "SCOFF", "ALTSCOFF")
    classes: list[Any] = [load("cores", name) for name in names]
    gru, rim, oc, scoff, alt = classes
    cores: dict[str, Any] = {"GRU": gru(spec, MODULES * dim)}
    if num_tokens == 1:
        cores |= {
            "RIM.thesis": rim.thesis(spec, MODULES, MODULES, dim),
            "RIM.thesis, cell by cell": _with(rim.thesis(spec, MODULES, MODULES, dim), path="cell"),
            "RIM.thesis, 4 of 6 active": rim.thesis(spec, MODULES, 4, dim),
            "RIM.thesis, no communication": _with(rim.thesis(spec, MODULES, MODULES, dim), communication_mode="off"),
            "SCOFF.thesis": scoff.thesis(spec, MODULES, dim=dim),
            "ALTSCOFF.thesis": alt.thesis(spec, MODULES, dim=dim),
        }
    else:
        cores |= {
            "OCRIM.thesis": oc.thesis(spec, MODULES, dim=dim),
            "OCRIM, past slots": oc(spec, MODULES, dim, past_slots=True),
            "OCRIM, past slots, cell by cell": _with(oc(spec, MODULES, dim, past_slots=True), path="cell"),
            "OCRIM.feature_flow": oc.feature_flow(spec, MODULES, dim=dim),
            "slot attention of OCRIM.thesis alone": oc.thesis(spec, MODULES, dim=dim),
            "SCOFF.thesis, with slots": scoff.thesis(spec, MODULES, 3, dim),
        }
    x = torch.randn(batch, STEPS, num_tokens, TOKEN_DIM)

    def outputs(name: str, core: Any) -> Tensor:
        found: Tensor = core.per_step(x).values if name.endswith("alone") else core(x).slots
        return found

    return {name: partial(_trained, core.train(), partial(outputs, name, core)) for name, core in cores.items()}


def _with(core: Any, **attributes: str) -> Any:
    for name, value in attributes.items():
        setattr(core, name, value)
    return core


# --- models of frames

FRAME, SIDE, DEPTHS = VideoSpec(1, 32, 32), 8, (8, 16, 64)
WIDTH, LAYERS = 64, 2
WIDER = "FrameTransformer, 4 x width"
MODELS: dict[str, dict[str, int]] = {
    "ConvS5": {"state_dim": WIDTH},
    "ConvLSTM": {},
    "FrameTransformer": {},
    WIDER: {"dim": 4 * WIDTH, "output_dim": WIDTH},
    "Performer": {},
}


def _video_models(quick: bool) -> Iterator[Contest]:
    """Training per length, whole and core alone; sampling from a state; whole clips; the share of the scan.

    Every model is ResNetEncoder, a core of two layers and ResNetDecoder around 8 x 8 cells of width 64, with one clip.
    Transformer and Performer see a frame as one token; beside the Transformer of the same width stands one of four
    times the width, as in the paper (1024 to 256). A training step is forward and backward with the loss of
    VideoPrediction. "The whole clip read again" is the public code's way with the Transformer: no cache, every frame so
    far through encoder and core again for each new frame.
    """
    lengths, steps, windows = [8, 16], [4, 8], [4, 8]
    if not quick:
        lengths, steps, windows = [20, 75, 150, 300, 600], [100, 800], [100, 400, 800, 1200]
    for group, ways in (("training step, whole model", _whole_model), ("training step, core alone", _core_alone)):
        for length in lengths:
            yield Contest(f"T = {length}", partial(ways, length), "ConvS5", group=group, size=float(length))
    for step in steps:
        yield Contest(f"after {step} frames", partial(_sampling, step), "ConvS5", unit="frames", group="sampling")
    group = "sampling, the whole clip read again"
    for window in windows:
        ways = partial(_whole_clip, window)
        yield Contest(f"after {window} frames", ways, "ConvS5, state carried", unit="frames", group=group)
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


def _clip(length: int) -> VideoBatch:
    """Random frames; the cost does not depend on their content."""
    frames = torch.rand(1, length, FRAME.channels, FRAME.height, FRAME.width)
    return VideoBatch(frames, torch.arange(length)[None])


def _whole_model(length: int) -> dict[str, Way]:
    batch = _clip(length)

    def step(task: VideoPrediction) -> None:
        task.zero_grad(set_to_none=True)
        slots = task.core(task.encoder(batch.slice_time(0, length - 1))).slots
        task.loss(task.decoder(slots, batch.slice_time(1, length)), batch).backward()

    return {name: partial(step, _task(name)) for name in MODELS}


def _core_alone(length: int) -> dict[str, Way]:
    tokens = torch.randn(1, length, SIDE * SIDE, WIDTH, requires_grad=True)
    gradient = torch.randn(1, length, SIDE * SIDE, WIDTH)

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
    drive = torch.randn(1, length, SIDE, SIDE, half, dtype=torch.complex64)
    decay = torch.polar(torch.full((half,), 0.99), torch.linspace(0, 3, half))
    inputs, gradient = [drive.requires_grad_(), decay.requires_grad_()], torch.randn_like(drive)

    def scans() -> list[tuple[Tensor, ...]]:
        return [torch.autograd.grad(linear_scan(drive, decay)[0], inputs, gradient) for _ in range(LAYERS)]

    return {"core": _core_alone(length)["ConvS5"], "its scans alone": scans}


SUBJECTS = {
    "recurrent_cores": Subject(
        "recurrences, forward + backward, float32", "batch, steps, slots, width", _recurrences, rounds=11
    ),
    "modular_cores": Subject(
        "modular cores, forward + backward, float32", "batch, tokens, width of a module", _modular
    ),
    "video_models": Subject(
        "video models, 32 x 32 pixels, 8 x 8 cells of width 64, one clip, float32", "length", _video_models, rounds=3
    ),
}
