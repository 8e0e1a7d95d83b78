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
        """The last collected states."""
        return {"states": self._states}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keeps the states until training starts: what is built until then may draw numbers."""
        self._loaded = state_dict["states"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restores the generators."""
        states, self._loaded = self._loaded, None
        if not states:
            return
        if len(states) != trainer.world_size:
            what = f"the checkpoint is of {len(states)} processes, not {trainer.world_size}: random numbers will differ"
            warnings.warn(what, stacklevel=2)
            return
        _write(states[trainer.global_rank], trainer.strategy.root_device)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        """Remembers the states: a validation that comes now begins to draw before any other hook is called."""
        self._before_validation = _read(trainer.strategy.root_device)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restores the generators to their state before the validation."""
        if self._before_validation is not None and trainer.state.fn == TrainerFn.FITTING:
            _write(self._before_validation, trainer.strategy.root_device)


def _read(device: torch.device) -> dict[str, Any]:
    version, internal, following = random.getstate()
    kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)  # noqa: NPY002  the one that plugins may draw from
    state: dict[str, Any] = {
        # as tensors: a checkpoint holds nothing that reading it could execute
        "python": (version, torch.from_numpy(np.array(internal, dtype=np.int64)), following),
        "numpy": (kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, gauss),
        "torch": torch.get_rng_state(),
    }
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def _write(state: dict[str, Any], device: torch.device) -> None:
    version, internal, following = state["python"]
    random.setstate((version, tuple(internal.tolist()), following))
    kind, keys, position, has_gauss, gauss = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, gauss))  # noqa: NPY002
    torch.set_rng_state(state["torch"].cpu())
    if (device.type == "cuda") != ("cuda" in state):
        what = "the checkpoint is from another kind of device: random numbers will differ"
        warnings.warn(what, stacklevel=2)
    elif device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"].cpu(), device)
