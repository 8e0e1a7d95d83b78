"""Models of codes: roll-outs at laptop size, training steps and predicted frames at the sizes of the ConvS5 paper."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from slotbench.bench.contests import Contest, Seconds, Way
from slotbench.bench.subjects.models import model_arguments
from slotbench.interfaces import CoreOutput, DataSpec, State, Tokenized, Tokenizer, VideoBatch, VideoSpec
from slotbench.nn.mask_git import MaskGit
from slotbench.registry import load
from slotbench.yaml_files import read_yaml

__all__ = ["LAPTOP", "PAPER", "Codes", "clip_of", "code_models", "laptop_task", "task_of", "timed", "without_memory"]

WIDTH, LAYERS, CONTEXT = 64, 2, 36
CONVOLUTIONAL: dict[str, Any] = {"dim": WIDTH, "state_dim": WIDTH, "num_layers": LAYERS, "clip_eigs": False}
OF_FRAMES: dict[str, Any] = {"dim": WIDTH, "num_layers": LAYERS}
CORES: dict[str, dict[str, Any]] = {
    "ConvS5": CONVOLUTIONAL,
    "S5": {**OF_FRAMES, "state_dim": WIDTH, "clip_eigs": False},
    "FrameTransformer": OF_FRAMES,
}
LAPTOP = {f"{before}{core}": core for before in ("", "TECO-") for core in CORES}
RERUN = "{}, all frames again"
"""A Transformer without keys and values of earlier frames."""
PAPER = {
    "moving_mnist_600_convs5": 4,
    "moving_mnist_600_convlstm": 4,
    "moving_mnist_600_transformer": 4,
    "dmlab_convs5": 4,
    "dmlab_s5": 4,
    "dmlab_transformer": 4,
    "dmlab_performer": 4,
    "dmlab_teco_convs5": 11,
    "dmlab_teco_s5": 11,
    "dmlab_teco_transformer": 11,
    "minecraft_teco_convs5": 11,
    "habitat_teco_convs5": 11,
}
"""Files of experiments/paper, and frames of a training clip; of TECO's ten predicted frames one has a loss."""


class Codes(Tokenizer):
    """Stands for a VQ-GAN: a table of code vectors; the frames that it paints are blank."""

    def __init__(self, video_spec: VideoSpec, num_codes: int = 1024, dim: int = 256):
        super().__init__()
        self.frame, self.code_spec = video_spec, VideoSpec(num_codes, 16, 16)
        self.register_buffer("codebook", torch.randn(num_codes, dim))

    def forward(self, frames: Tensor) -> Tokenized:
        """Refused: a batch has its codes."""
        raise TypeError("clips of this benchmark come with their codes, and no frame is read")

    def decode(self, codes: Tensor) -> Tensor:
        """Blank frames."""
        return self.codebook.new_zeros(*codes.shape[:2], self.frame.channels, self.frame.height, self.frame.width)


def code_models(quick: bool) -> Iterator[Contest]:
    """The first and the last third of a roll-out; models in turns; steps and frames at the paper's sizes.

    At laptop size the models of the ConvS5 paper's DMLab experiments have an eighth of ConvS5's width and two layers.
    A roll-out is the task's own, of one clip with actions, without the tokenizer's painting. A training step is the
    loss of a clip and its gradients.
    """
    horizon, several = (6, 2) if quick else (300, 20)
    for name in LAPTOP:
        ways = partial(_thirds, name, horizon)
        fields: dict[str, Any] = {"amount": horizon / 3, "unit": "frames", "group": f"a roll-out of {horizon} frames"}
        yield Contest(name, ways, "first third", **fields)
    ways = partial(_side_by_side, 4 * CONTEXT, several)
    yield Contest(f"from frame {4 * CONTEXT}", ways, "ConvS5", amount=several, unit="frames", group="a predicted frame")
    for name, length in {} if quick else PAPER.items():
        ways = partial(_at_paper_size, name, length)
        yield Contest(name, ways, "training step", flops=("training step",), group="the paper's sizes, one clip")


# --- tasks and clips


def task_of(config: dict[str, Any], num_codes: int = 1024) -> Any:
    """The task of an experiment's configuration, with `Codes` where it has a tokenizer."""
    arguments, data = model_arguments(config), config["data"]["init_args"]
    if "prior" in arguments:
        arguments["prior"] = partial(MaskGit, **arguments["prior"].get("init_args", {}))
    if "tokenizer_run" in arguments:
        arguments |= {"tokenizer_run": None, "tokenizer": partial(Codes, num_codes=num_codes)}
    channels = 3 if "tokenizer" in arguments else 1
    frame = VideoSpec(channels, data["resolution"], data["resolution"], data.get("num_actions", 0))
    return load("tasks", config["model"]["class_path"])(**arguments, data_spec=DataSpec(frame, frame))


def clip_of(task: Any, length: int) -> VideoBatch:
    """A clip of blank frames with random codes and actions; the cost does not depend on them."""
    frame = task.data_spec.input
    frames = torch.zeros(1, 1, frame.channels, frame.height, frame.width).expand(-1, length, -1, -1, -1)
    batch = VideoBatch(frames, torch.arange(length)[None])
    if frame.num_actions:
        chosen = torch.randint(frame.num_actions, (1, length))
        batch = replace(batch, actions=one_hot(chosen, frame.num_actions).float())
    if hasattr(task, "tokenizer"):
        codes = task.tokenizer.code_spec
        batch = replace(batch, codes=torch.randint(codes.channels, (1, length, codes.height, codes.width)))
    return batch


def laptop_task(name: str) -> Any:
    """A model of `LAPTOP`, in evaluation."""
    torch.manual_seed(0)
    core, teco = LAPTOP[name], name.startswith("TECO-")
    encoder = {"depths": [32, WIDTH], "blocks": 2} if teco else {"depths": [32], "blocks": 1, "action_dim": 16}
    model: dict[str, Any] = {
        "encoder": {"class_path": "ResNetEncoder", "init_args": {**encoder, "rescale": False}},
        "core": {"class_path": core, "init_args": CORES[core] | ({} if core == "ConvS5" else {"patch": 16 >> teco})},
        "decoder": {"class_path": "ResNetDecoder", "init_args": {"depths": [32, WIDTH][not teco :], "blocks": 4}},
        "tokenizer_run": None,
    }
    if teco:
        prior = {"dim": WIDTH, "num_layers": LAYERS, "num_heads": 8, "code_dim": 32}
        model |= {"prior": {"init_args": prior}, "latent_dim": 32, "num_latent_codes": 128}
    task = "TECO" if teco else "CodePrediction"
    data = {"resolution": 64, "num_actions": 6}
    config = {"model": {"class_path": task, "init_args": model}, "data": {"init_args": data}}
    return task_of(config, num_codes=128).eval()


# --- roll-outs


def timed(frames: Iterator[Any], count: int) -> Seconds:
    """The processor's time of so many more frames of a roll-out."""
    began = time.process_time()
    with torch.no_grad():
        made = sum(1 for _ in islice(frames, count))
    if made < count:
        raise ValueError(f"the roll-out has {made} of {count} frames left")
    return Seconds(time.process_time() - began)


def _rolled(task: Any, context: int, horizon: int) -> Iterator[Any]:
    """A roll-out that has read its context and made a frame, so that its parts are prepared; `horizon` are left."""
    with torch.no_grad():
        steps: Iterator[Any] = task.rollout_steps(clip_of(task, context + 1 + horizon), context, 1 + horizon)
        next(steps)
    return steps


def _thirds(name: str, horizon: int) -> dict[str, Way]:
    task, third = laptop_task(name), horizon // 3
    running: list[Iterator[Any]] = []

    def first() -> Seconds:
        running[:] = [_rolled(task, CONTEXT, horizon)]
        return timed(running[0], third)

    def last() -> Seconds:
        timed(running[0], third)
        return timed(running[0], third)

    return {"first third": first, "last third": last}


def _side_by_side(context: int, count: int) -> dict[str, Way]:
    """The next frames of a roll-out that goes on from turn to turn."""
    tasks = {name: laptop_task(name) for name in LAPTOP}
    for name in ("FrameTransformer", "TECO-FrameTransformer"):
        tasks[RERUN.format(name)] = without_memory(laptop_task(name))
    # as many turns as anyone asks for
    return {name: partial(timed, _rolled(task, context, 16 * count), count) for name, task in tasks.items()}


def without_memory(task: Any) -> Any:
    """The task with a core that runs over all frames so far for each new one."""
    core, seen = task.core, []

    def note(_: Any, given: tuple[Any, ...]) -> None:
        seen.append(given[0])

    reading = core.register_forward_pre_hook(note)

    def prepared() -> Callable[[Tensor, State], CoreOutput]:
        def call(tokens: Tensor, state: State) -> CoreOutput:
            reading.remove()  # the context has been read
            seen.append(tokens)
            out = core(torch.cat(seen, dim=1))
            return replace(out, slots=out.slots[:, -1:])

        return call

    core.prepared = prepared
    return task


# --- the paper's sizes


def _at_paper_size(name: str, length: int) -> dict[str, Way]:
    torch.manual_seed(0)
    config = read_yaml(Path("experiments", "paper", f"{name}.yaml"))
    task = task_of(config, num_codes=8192 if name.startswith("habitat") else 1024)
    batch, steps = clip_of(task, length), _rolled(task.eval(), 2, 64)

    def step() -> None:
        task.train().zero_grad(set_to_none=True)
        task.training_loss(batch).backward()

    def frame() -> Seconds:
        task.eval().zero_grad(set_to_none=True)
        return timed(steps, 1)

    return {"training step": step, "a predicted frame": frame}
