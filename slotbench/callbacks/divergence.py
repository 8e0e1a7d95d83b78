"""Callback that ends a diverged training before it overwrites a good checkpoint."""

from __future__ import annotations

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torch.optim.lr_scheduler import CyclicLR, OneCycleLR

__all__ = ["DivergedError", "Divergence"]

_NEVER = 2**53  # a step that no training reaches


class DivergedError(Exception):
    """The training loss of the step after `step`, or a weight after it, is NaN or infinite."""

    def __init__(self, message: str, step: int) -> None:
        super().__init__(message)
        self.step = step


class Divergence(Callback):
    """Ends the training with a sentence at the first training loss that is NaN or infinite.

    On a CPU with one process that is before the step is made. Elsewhere losses are looked at together, after `every`
    steps and before each validation and checkpoint, as looking waits for the device or for other processes. A
    checkpoint is never made of weights that are not finite.
    """

    def __init__(self, every: int = 20) -> None:
        self._every = every
        self._first: Tensor | None = None  # the first step whose loss was not finite, on the device

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        here = torch.where(torch.isfinite(loss.detach()).all(), _NEVER, trainer.global_step)
        self._first = here if self._first is None else torch.minimum(self._first, here)
        if _is_at_hand(trainer, here):
            self._check_losses(trainer)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: object) -> None:
        if trainer.global_step % self._every == 0:
            self._check_losses(trainer)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.sanity_checking and trainer.state.fn == "fit":
            self.check(trainer)

    def check(self, trainer: Trainer) -> None:
        """Raises DivergedError for losses since the last check, and weights; every process calls it after a step."""
        self._check_losses(trainer)
        weights = [weight.detach() for weight in trainer.lightning_module.parameters() if weight.is_floating_point()]
        if weights:
            finite = torch.stack([torch.isfinite(weight).all() for weight in weights]).all()
            if not _least(trainer, finite.long()):
                raise _diverged(trainer, trainer.global_step, "weights are not finite after step", trainer.global_step)

    def _check_losses(self, trainer: Trainer) -> None:
        if trainer.world_size == 1 and self._first is None:
            return
        device = trainer.strategy.root_device
        first = torch.tensor(_NEVER, device=device) if self._first is None else self._first
        self._first = None
        step = _least(trainer, first)
        if step < _NEVER:
            raise _diverged(trainer, step, "the training loss is not finite in step", step + 1)


def _is_at_hand(trainer: Trainer, value: Tensor) -> bool:
    """Whether a number can be read without waiting for another process or a device."""
    return trainer.world_size == 1 and value.device.type == "cpu"


def _diverged(trainer: Trainer, step: int, what: str, number: int) -> DivergedError:
    """The message: what is not finite, at which step, and what to try."""
    rates = sorted({float(group["lr"]) for optimizer in trainer.optimizers for group in optimizer.param_groups})
    cycles = any(isinstance(config.scheduler, OneCycleLR | CyclicLR) for config in trainer.lr_scheduler_configs)
    key = "--model.schedule.max_lr" if cycles else "--model.optimizer.lr"
    rate, tries = " and ".join(f"{rate:.3g}" for rate in rates), [f"a lower learning rate ({key})"]
    if trainer.gradient_clip_val is None:
        tries.append("gradient clipping (--trainer.gradient_clip_val 1.0)")
    said = f"the training has diverged: {what} {number:,}, at a learning rate of {rate}; try {', '.join(tries)}"
    return DivergedError(said, step)


def _least(trainer: Trainer, value: Tensor) -> int:
    """The smallest value of all processes, which is the same in each of them."""
    if trainer.world_size > 1:
        value = value.to(trainer.strategy.root_device)
        torch.distributed.all_reduce(value, op=torch.distributed.ReduceOp.MIN)
    return int(value)
