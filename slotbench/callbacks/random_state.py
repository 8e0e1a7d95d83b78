"""The states of the random generators, kept in checkpoints."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.trainer.states import TrainerFn

__all__ = ["RandomState"]


class RandomState(Callback):
    """Lets a resumed run draw the same random numbers: those of Python, numpy, torch, and the device, in each process.

    What a validation draws, training does not notice: how much that is depends on which workers run already.
    """

    def __init__(self) -> None:
        self._before_validation: dict[str, Any] | None = None
        self._states: list[dict[str, Any]] = []
        self._loaded: list[dict[str, Any]] | None = None

    def collect(self, trainer: Trainer) -> None:
        """Collects the states of all processes; every process calls it, right before a checkpoint is saved."""
        self._states = [own := _read(trainer.strategy.root_device)] * trainer.world_size
        if trainer.world_size > 1:
            torch.distributed.all_gather_object(self._states, own)

    def state_dict(self) -> dict[str, Any]:
        return {"states": self._states}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keeps the states until training starts: what is built until then may draw numbers."""
        self._loaded = state_dict["states"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        states, self._loaded = self._loaded, None
        if states and len(states) != trainer.world_size:
            what = f"the checkpoint is of {len(states)} processes, not {trainer.world_size}: random numbers will differ"
            warnings.warn(what, stacklevel=2)
        elif states:
            _write(states[trainer.global_rank], trainer.strategy.root_device)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        """Remembers the states: a validation that comes now begins to draw before any other hook is called."""
        self._before_validation = _read(trainer.strategy.root_device)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restores the generators to their state before the validation."""
        if self._before_validation is not None and trainer.state.fn == TrainerFn.FITTING:
            _write(self._before_validation, trainer.strategy.root_device)


def _read(device: torch.device) -> dict[str, Any]:
    """As numbers and tensors: a checkpoint holds nothing that reading it could execute."""
    kind, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002  the one that plugins may draw from
    state = {"python": random.getstate(), "numpy": (kind, np.asarray(keys).tolist(), *rest)}
    cuda = {"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {}
    return {**state, "torch": torch.get_rng_state(), **cuda}


def _write(state: dict[str, Any], device: torch.device) -> None:
    random.setstate(state["python"])
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, np.array(keys, np.uint32), *rest))  # noqa: NPY002
    torch.set_rng_state(state["torch"].cpu())
    if (device.type == "cuda") != ("cuda" in state):
        warnings.warn("the checkpoint is from another kind of device: random numbers will differ", stacklevel=2)
    elif device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"].cpu(), device)
