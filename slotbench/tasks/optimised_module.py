"""OptimisedModule, the training side of a task: its optimiser, its schedule, and the progress of the training."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from types import MappingProxyType
from typing import Any, Literal, get_args

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.plugins.precision import MixedPrecision, Precision
from lightning.pytorch.utilities import GradClipAlgorithmType
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from slotbench.errors import lines
from slotbench.lightning_compat import follow_until_averaged, planned_steps, restore_position
from slotbench.nn.parameters import decay_groups, one_group
from slotbench.tasks.factories import OptimizerFactory
from slotbench.tasks.optimisation import Decay
from slotbench.tasks.optimizer_factories import (
    TrainingSettingsError,
    build_optimizer,
    build_schedule,
    hold_constant,
    part_groups,
)
from slotbench.tasks.resumed_training import changed_settings, lay_over

__all__ = ["ClipBy", "OptimisedModule"]

ClipBy = Literal["norm", "largest"]
"""What `trainer.gradient_clip_val` bounds: the Euclidean norm of all gradients, or the largest number among them, to
which all are scaled."""


class OptimisedModule(LightningModule):
    """A module whose optimiser and schedule are given as factories.

    Args:
        optimizer: makes an optimiser from parameter groups.
        schedule: makes a learning-rate schedule from the optimiser; see `build_schedule` for what else it is given.
        decay: what the optimiser's weight decay is for.

    Attributes:
        part_rates: learning rates of parts, by name, where they are not the optimiser's.
        constant_parts: parts whose learning rate the schedule leaves alone.
        clip_by: what the trainer's gradient clipping bounds.
    """

    part_rates: Mapping[str, float] = MappingProxyType({})
    constant_parts: Sequence[str] = ()
    clip_by: ClipBy = "norm"

    def __init__(
        self,
        optimizer: OptimizerFactory,
        schedule: Callable[..., LRScheduler],
        decay: Decay,
    ) -> None:
        super().__init__()
        if decay not in get_args(Decay):
            raise ValueError(f"no decay named {decay!r}; choose one of {', '.join(get_args(Decay))}")
        self._optimizer = optimizer
        self._schedule = schedule
        self._decay = decay
        self._planned: int | None = None
        self._resumed: dict[str, Any] | None = None  # the checkpoint, until there is an optimiser

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """The optimiser over its parameter groups, and the schedule stepped after every batch."""
        scaled = getattr(self.trainer.precision_plugin, "scaler", None) is not None
        optimizer = self.build_optimizer(fuse=not scaled)
        resumed, self._resumed = self._resumed, None
        self._planned = planned_steps(self.trainer, resumed)
        schedule = build_schedule(self._schedule, optimizer, self._planned)
        hold_constant(schedule)
        if resumed is not None:
            lay_over(resumed, optimizer, schedule, changed_settings(resumed, self.hparams, self._planned))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def build_optimizer(self, fuse: bool = True) -> Optimizer:
        """The optimiser over the parameter groups of the parts."""
        grouped = decay_groups if self._decay == "matrices" else one_group
        groups = part_groups(self, self.part_rates, self.constant_parts, grouped)
        return build_optimizer(self._optimizer, groups, fuse=fuse)

    def check_training_settings(self, total_steps: int | None, with_schedule: bool = True) -> None:
        """Builds an optimiser and a schedule to see whether they take their arguments; nothing is kept."""
        part_groups(self, self.part_rates, self.constant_parts, one_group)
        optimizer = build_optimizer(self._optimizer, [nn.Parameter(torch.zeros(1))])
        if with_schedule:
            build_schedule(self._schedule, optimizer, total_steps)

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Back-propagates as Lightning does; gradients of the last batches of an epoch are of their mean too."""
        trainer: Any = self.trainer
        every, batches = trainer.accumulate_grad_batches, trainer.num_training_batches
        if every > 1 and math.isfinite(batches):
            in_this_step = min(every, batches - trainer.fit_loop.batch_idx // every * every)
            loss = loss * (every / in_this_step)
        super().backward(loss, *args, **kwargs)

    def optimizer_step(
        self,
        epoch: int,
        batch_idx: int,
        optimizer: Optimizer | LightningOptimizer,
        optimizer_closure: Callable[[], Any] | None = None,
    ) -> None:
        """Takes a step as Lightning does; an average of weights that begins later is, until then, the weights."""
        super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
        follow_until_averaged(self.trainer, self)

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: int | float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clips as Lightning does, and in bfloat16 with a fused optimiser too.

        Lightning refuses that: such an optimiser takes gradients that a scaler has enlarged, and makes them small again
        only in its step, after the clipping. Bfloat16 has the range of float32, and no scaler.

        The norm before clipping is logged.
        """
        self._log_gradient_norm()
        plugin = self.trainer.precision_plugin
        if self.clip_by == "largest" and gradient_clip_val is not None:
            nn.utils.clip_grad_norm_(self.parameters(), float(gradient_clip_val), norm_type=math.inf)
        elif isinstance(plugin, MixedPrecision) and plugin.scaler is None and gradient_clip_val is not None:
            kind = GradClipAlgorithmType(gradient_clip_algorithm or "norm")
            Precision.clip_gradients(plugin, optimizer, gradient_clip_val, kind)
        else:
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def _log_gradient_norm(self) -> None:
        """Euclidean norm of all gradients as `train/gradient_norm`, at the steps that are logged."""
        trainer: Any = self.trainer  # sets what its type does not declare
        every = trainer.log_every_n_steps
        if every and (self.global_step + 1) % every == 0:
            gradients = [parameter.grad for parameter in self.parameters() if parameter.grad is not None]
            self.log("train/gradient_norm", nn.utils.get_total_norm(gradients), batch_size=1)

    def on_fit_start(self) -> None:
        """Averages of weights were made before the task has loaded those that it starts from."""
        follow_until_averaged(self.trainer, self)

    def on_train_start(self) -> None:
        """Goes on where the checkpoint was made."""
        restore_position(self.trainer)

    @property
    def total_steps(self) -> int | None:
        """Optimiser steps of the whole training, as counted at its start; None if nothing but the clock ends it."""
        return planned_steps(self.trainer) if self._planned is None else self._planned

    @property
    def progress(self) -> float:
        """Share of the training that is done, 0 to 1."""
        if self.total_steps is None:
            raise TrainingSettingsError(
                lines(
                    f"the training has no end in steps, and {type(self).__name__} needs one",
                    expected="--trainer.max_steps N beside it",
                )
            )
        return self.global_step / max(1, self.total_steps)

    def __deepcopy__(self, memo: dict[int, Any]) -> OptimisedModule:
        """A copy that shares the factories, which from the command line hold what cannot be copied."""
        memo |= {id(factory): factory for factory in (self._optimizer, self._schedule)}
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        copied.__setstate__(deepcopy(self.__getstate__(), memo))
        return copied
