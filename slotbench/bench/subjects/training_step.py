"""Where one training step of an experiment goes: making the batch, each part forward and backward, the optimiser.

AdamW is the one that a task builds, without clipping beside the loop over parameters that PyTorch takes by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from slotbench.bench.subjects import Subject
from slotbench.bench.timing import Contest, Way
from slotbench.data.base import LoaderOptions
from slotbench.errors import FileError
from slotbench.nn.parameters import decay_groups
from slotbench.registry import load
from slotbench.tasks.optimizer_factories import build_optimizer
from slotbench.yaml_files import read_yaml

__all__ = ["SUBJECTS"]


def _training_step(quick: bool, config: str = "experiments/blinking_balls.yaml") -> Iterator[Contest]:
    """A contest whose ways are the parts of a step in their order, and one of AdamW's step.

    Args:
        quick: nothing is smaller; the command makes fewer rounds.
        config: an experiment with the task LongContextReasoning.

    Raises:
        FileError: the file is no such experiment.
    """
    yield Contest(config, partial(_ways, config), None)
    yield Contest(f"{config}, AdamW alone", partial(_optimisers, config), "loop over parameters", group="AdamW")


def _ways(config: str) -> dict[str, Way]:
    data, task = _build(config)
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


def _optimisers(config: str) -> dict[str, Way]:
    """AdamW's step over the parameters of a task, plain and as a task builds it."""
    _, task = _build(config)
    for parameter in task.parameters():
        parameter.grad = torch.randn_like(parameter)
    makers: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "loop over parameters": partial(torch.optim.AdamW, foreach=False),
        "fused": torch.optim.AdamW,
    }
    return {name: build_optimizer(make, decay_groups(task.parameters())).step for name, make in makers.items()}


def _build(path: str) -> tuple[Any, Any]:
    """Data and task of an experiment file."""
    config = read_yaml(path)
    try:
        given = config["data"].get("init_args", {})
        loader = LoaderOptions(**given.get("loader", {}))
        data = load("datasets", config["data"]["class_path"])(**given | {"loader": loader})
        arguments = dict(config["model"]["init_args"])
        parts = {kind: _component(f"{kind}s", arguments.pop(kind)) for kind in ("encoder", "core", "decoder")}
        if config["model"]["class_path"] != "LongContextReasoning":
            raise KeyError
    except (KeyError, TypeError) as error:
        raise FileError(
            f"{path} is not an experiment whose step is taken apart here: expected model.class_path "
            "LongContextReasoning with encoder, core and decoder, as in experiments/blinking_balls.yaml"
        ) from error
    for unused in ("optimizer", "schedule"):
        arguments.pop(unused, None)
    return data, load("tasks", config["model"]["class_path"])(**parts, **arguments, data_spec=data.spec)


def _component(kind: str, part: dict[str, Any]) -> Callable[..., Any]:
    return partial(load(kind, part["class_path"]), **part.get("init_args", {}))


SUBJECTS = {"training_step": Subject("one training step, by part", "experiment", _training_step, rounds=20)}
