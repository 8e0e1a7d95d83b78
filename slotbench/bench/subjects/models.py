"""Cores against one another, whole models on videos, and the parts of a training step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import grad

from slotbench.bench.contests import Contest, Way, by_shape
from slotbench.data.base import LoaderOptions
from slotbench.errors import FileError
from slotbench.interfaces import DataSpec, TokenSpec, VideoBatch, VideoSpec
from slotbench.nn.parameters import decay_groups
from slotbench.ops import linear_scan
from slotbench.registry import load
from slotbench.tasks.optimizer_factories import build_optimizer
from slotbench.tasks.video_prediction import VideoPrediction
from slotbench.yaml_files import read_yaml

# --- recurrences


def recurrent_cores(quick: bool) -> list[Contest]:
    """SlotRNN and RIM without what they have beside a recurrence, as far as the way says.

    torch.nn.GRU sees every slot of every clip as a sequence of its own. There is no slot encoder anywhere (tokens are
    as many and as wide as slots, and pass through), since it is attention and parallel over time.
    """
    return by_shape([(2, 20, 6, 16) if quick else (8, 100, 6, 64)], _recurrence_ways, "torch.nn.GRU")


class _PassThrough(nn.Module):
    """Stands for a slot encoder: the tokens are the slots."""

    def __init__(self, queries: Tensor):
        super().__init__()
        self.queries = queries

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        return tokens, tokens.new_zeros(*tokens.shape[:-1], tokens.shape[-2])


def _recurrence_ways(batch: int, steps: int, slots: int, dim: int) -> dict[str, Way]:
    torch.manual_seed(0)
    spec, rim = TokenSpec(dim, slots), load("cores", "RIM")
    tokens = torch.randn(batch, steps, slots, dim, requires_grad=True)
    gru = nn.GRU(dim, dim, batch_first=True)

    def slot_rnn(mixer: str) -> Any:
        core: Any = load("cores", "SlotRNN")(spec, slots, dim, num_layers=1, mixer=mixer)
        core.encoder = _PassThrough(core.encoder.queries.detach())
        return core

    top_k = max(1, 2 * slots // 3)
    cores: dict[str, Any] = {
        "SlotRNN, no mixer": slot_rnn("none"),
        "SlotRNN, attention": slot_rnn("attention"),
        "RIM, GRUs alone": _grus_alone(rim)(
            spec, slots, dim, slots, num_inputs=None, input_value_dim=dim, communication="off"
        ),
        "RIM, all active, input attention": rim(spec, slots, dim, num_inputs=None, top_k=slots, communication="off"),
        "RIM, top-k, input attention": rim(spec, slots, dim, num_inputs=None, top_k=top_k, communication="off"),
        "RIM, top-k, both attentions": rim(spec, slots, dim, num_inputs=None, top_k=top_k),
    }

    def both(forward: Callable[[], Tensor]) -> None:
        tokens.grad = None
        forward().sum().backward()

    def slots_of(core: Any) -> Any:
        return core(tokens).slots

    ways: dict[str, Way] = {"torch.nn.GRU": lambda: both(lambda: gru(tokens.transpose(1, 2).flatten(0, 1))[0])}
    return ways | {name: partial(both, partial(slots_of, core)) for name, core in cores.items()}


def _grus_alone(rim: Any) -> Any:
    """RIM without either attention: each module reads the input of its own index."""

    class GRUsAlone(rim):  # type: ignore[misc]
        def per_step(self, tokens: Tensor) -> Tensor:
            return tokens

        def cell(self, inputs: Tensor, state: Any) -> tuple[Tensor, None, Any]:
            after, _ = self._update(inputs, state, None)
            return after.hidden, None, after

    return GRUsAlone


# --- the RIM family

MODULES, STEPS, TOKEN_DIM = 6, 20, 64


def modular_cores(quick: bool) -> list[Contest]:
    """The family against a GRU whose state is as wide as all modules together, which reads a map as one vector.

    Flat encoders have one token, the others a feature map.
    """
    full = [(32, 1, 100), (32, 36, 100), (8, 1, 64), (8, 36, 64)]
    return by_shape([(2, 1, 8), (2, 4, 8)] if quick else full, _modular_ways, "GRU")


def _modular_ways(batch: int, num_tokens: int, dim: int) -> dict[str, Way]:
    torch.manual_seed(0)
    spec = TokenSpec(TOKEN_DIM, num_tokens)
    classes: list[Any] = [load("cores", name) for name in ("GRU", "RIM", "OCRIM", "SCOFF", "ALTSCOFF")]
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

    def step(name: str, core: Any) -> None:
        core.zero_grad(set_to_none=True)
        outputs = core.per_step(x).values if name.endswith("alone") else core(x).slots
        outputs.square().mean().backward()

    return {name: partial(step, name, core.train()) for name, core in cores.items()}


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


def video_models(quick: bool) -> Iterator[Contest]:
    """Training per length, whole and core alone; sampling from a state; whole clips; the share of the scan.

    Every model is ResNetEncoder, a core of two layers and ResNetDecoder around 8 x 8 cells of width 64, with one clip.
    Transformer and Performer see a frame as one token; beside the Transformer of the same width stands one of four
    times the width, as in the paper (1024 to 256). A training step is forward and backward with the loss of
    VideoPrediction. "The whole clip read again" is the public code's way with the Transformer: no cache, every frame so
    far through encoder and core again for each new frame.
    """
    lengths, steps, windows = [20, 75, 150, 300, 600], [100, 800], [100, 400, 800, 1200]
    if quick:
        lengths, steps, windows = [8, 16], [4, 8], [4, 8]
    for group, ways in (("training step, whole model", _whole_model), ("training step, core alone", _core_alone)):
        for length in lengths:
            yield Contest(f"T = {length}", partial(ways, length), "ConvS5", group=group, size=float(length))
    for step in steps:
        yield Contest(f"after {step} frames", partial(_sampling, step), "ConvS5", unit="frames", group="sampling")
    group, base = "sampling, the whole clip read again", "ConvS5, state carried"
    for window in windows:
        yield Contest(f"after {window} frames", partial(_whole_clip, window), base, unit="frames", group=group)
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
    outer = torch.randn(1, length, SIDE * SIDE, WIDTH)

    def step(core: Any) -> None:
        core.zero_grad(set_to_none=True)
        tokens.grad = None
        core(tokens).slots.backward(outer)

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
    drive = torch.randn(1, length, SIDE, SIDE, half, dtype=torch.complex64).requires_grad_()
    decay = torch.polar(torch.full((half,), 0.99), torch.linspace(0, 3, half)).requires_grad_()
    outer = torch.randn_like(drive)
    return {
        "core": _core_alone(length)["ConvS5"],
        "its scans alone": lambda: [grad(linear_scan(drive, decay)[0], [drive, decay], outer) for _ in range(LAYERS)],
    }


# --- one training step of an experiment


def training_step(quick: bool, config: str = "experiments/blinking_balls.yaml") -> list[Contest]:
    """The parts of a step in their order as ways, and AdamW's step, plain and as tasks build it.

    Args:
        quick: nothing is smaller; the command makes fewer rounds.
        config: an experiment with the task LongContextReasoning.

    Raises:
        FileError: the file is no such experiment.
    """
    alone, base = f"{config}, AdamW alone", "loop over parameters"
    return [
        Contest(config, partial(_step_ways, config), None),
        Contest(alone, partial(_optimizer_ways, config), base, group="AdamW"),
    ]


def _step_ways(config: str) -> dict[str, Way]:
    data, task = _experiment(config)
    optimizer = build_optimizer(torch.optim.AdamW, task.parameters())
    batches = iter(data.train_dataloader())
    now: dict[str, Any] = {}

    def make_batch() -> None:
        now["batch"] = data.on_after_batch_transfer(next(batches), 0)

    def encode() -> None:
        now["tokens"] = task.encoder(now["batch"])
        now["tokens_in"] = now["tokens"].detach().requires_grad_()

    def run_core() -> None:
        batch, out = now["batch"], task.core(now["tokens_in"])
        due = (batch.target_time[0] - batch.time[0, 0]).tolist()
        now["slots"] = out.slots[:, due if task.dense_targets else due[-1:]]
        now["slots_in"] = now["slots"].detach().requires_grad_()

    def decode() -> None:
        now["loss"] = task.loss(task.decoder(now["slots_in"], now["batch"]), now["batch"])

    def optimise() -> None:
        torch.nn.utils.clip_grad_norm_(task.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return {
        "make the batch": make_batch,
        "encoder, forward": encode,
        "core, forward": run_core,
        "decoder and loss, forward": decode,
        "decoder and loss, backward": lambda: now["loss"].backward(),
        "core, backward": lambda: now["slots"].backward(now["slots_in"].grad),
        "encoder, backward": lambda: now["tokens"].backward(now["tokens_in"].grad),
        "clip and optimise": optimise,
    }


def _optimizer_ways(config: str) -> dict[str, Way]:
    _, task = _experiment(config)
    for parameter in task.parameters():
        parameter.grad = torch.randn_like(parameter)
    makers: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "loop over parameters": partial(torch.optim.AdamW, foreach=False),
        "fused": torch.optim.AdamW,
    }
    return {name: build_optimizer(make, decay_groups(task.parameters())).step for name, make in makers.items()}


def model_arguments(config: dict[str, Any]) -> dict[str, Any]:
    """Arguments of an experiment's task, with parts as factories, and without those of the training."""
    arguments = _with_tuples(config["model"]["init_args"])
    for unused in ("optimizer", "schedule"):
        arguments.pop(unused, None)
    for kind in {"encoder", "core", "decoder"} & arguments.keys():
        part = arguments[kind]
        component = load(f"{kind}s", part["class_path"])
        arguments[kind] = partial(component, **_with_tuples(part.get("init_args", {})))
    return arguments


def _with_tuples(given: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(one) if isinstance(one, list) else one for key, one in given.items()}


def _experiment(path: str) -> tuple[Any, Any]:
    """Data and task of an experiment file."""
    config = read_yaml(path)
    try:
        given = config["data"].get("init_args", {})
        loader = LoaderOptions(**given.get("loader", {}))
        data = load("datasets", config["data"]["class_path"])(**given | {"loader": loader})
        arguments = model_arguments(config)
        if config["model"]["class_path"] != "LongContextReasoning":
            raise KeyError
    except (KeyError, TypeError) as error:
        raise FileError(
            f"{path} is not an experiment whose step is taken apart here: expected model.class_path "
            "LongContextReasoning with encoder, core and decoder, as in experiments/blinking_balls.yaml"
        ) from error
    return data, load("tasks", config["model"]["class_path"])(**arguments, data_spec=data.spec)
