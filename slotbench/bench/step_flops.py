"""Operations of a training step of an experiment, those of its scans included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from slotbench.bench.core_process import count_flops
from slotbench.config.command_line import resolve
from slotbench.config.jsonargparse_compat import parser_unchanged
from slotbench.interfaces import VideoBatch
from slotbench.ops import set_kernel

__all__ = ["StepFlops", "experiment_flops", "training_flops"]


@dataclass(frozen=True)
class StepFlops:
    """Operations of the forward and the backward pass of one batch.

    Attributes:
        products: of matrix products, convolutions and fused attention, a multiply-add being two (`count_flops`).
        elementwise: one for every number that an element-wise operation makes, four for a complex one: gates,
            activations, and the recurrences of state space models.
    """

    products: int
    elementwise: int

    @property
    def total(self) -> int:
        """Both."""
        return self.products + self.elementwise


def experiment_flops(path: str | Path, settings: Sequence[str] = ()) -> StepFlops:
    """Operations of a training step of an experiment, on the first training batch that its data makes.

    Args:
        path: an experiment's YAML file, or the `config.yaml` of a run.
        settings: more of the command line, such as ["--data.loader.batch_size", "4"].

    Raises:
        UserError: a file or a setting is wrong.
        ValueError: see `training_flops`.
    """
    with parser_unchanged(), torch.random.fork_rng(devices=[]):
        built = resolve(["--config", str(path), *settings]).instantiate()
        data = built["data"]
        batch = data.on_after_batch_transfer(next(iter(data.train_dataloader())), 0)
        return training_flops(built["model"], batch)


def training_flops(task: nn.Module, batch: VideoBatch) -> StepFlops:
    """Operations of a task's loss of a batch and of its gradients; the optimiser's step is not among them.

    The task is put into training, and its ops take the kernel `reference`, which PyTorch executes operation by
    operation: compiled kernels of scans cannot be counted. What these save, or compute twice to save memory, is not
    in the number. Not counted are softmax, norms, sums along an axis, and copies.

    Args:
        task: has `training_loss`; its kernels and its gradients are other ones afterwards.
        batch: clips on the task's device, frames in [0, 1].

    Raises:
        ValueError: PyTorch's counter cannot follow the task.
    """
    set_kernel(task.train(), "reference")
    loss: Any = task.training_loss
    with _ElementwiseCounter() as counter:
        products = count_flops(lambda: loss(batch).backward())
    if products is None:
        raise ValueError(f"PyTorch's counter of operations cannot follow a training step of {type(task).__name__}")
    return StepFlops(products, counter.count)


class _ElementwiseCounter(TorchDispatchMode):
    """Counts the numbers that element-wise operations make while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if torch.Tag.pointwise in func.tags and func.overloadpacket not in _COPIES:
            for one in made if isinstance(made, tuple | list) else (made,):
                if isinstance(one, Tensor) and (one.is_floating_point() or one.is_complex()):
                    # a sum of complex numbers is two of real ones, a product six
                    self.count += (4 if one.is_complex() else 1) * one.numel()
        return made


_COPIES = {getattr(torch.ops.aten, name) for name in ("clone", "copy", "copy_", "fill", "fill_", "_to_copy")}
