"""A stand-in for the compiler of graphs, which traces and differentiates them and counts how often they are run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

__all__ = ["CountedGraphs"]


class CountedGraphs(Callback):
    """Counts the graphs that are run, in training and in validation.

    Args:
        patch: puts a function in the place of torch's, as `setattr` does.

    Attributes:
        run: how many, in "train" and in "val".
        after_steps: how many in training, after each step.
        modes: with which `torch.compile` was called.
        marked: how often the beginning of a step was marked.
    """

    def __init__(self, patch: Callable[[object, str, object], None]) -> None:
        self.run = {"train": 0, "val": 0}
        self.after_steps: list[int] = []
        self.modes: list[str] = []
        self.marked = 0
        self.stage = "train"
        true = torch.compile

        def compile_(function: Any, *, mode: str, **options: Any) -> Any:
            self.modes.append(mode)
            return true(function, backend=self.backend, **options)

        patch(torch, "compile", compile_)
        patch(torch.compiler, "cudagraph_mark_step_begin", self.mark)

    def backend(self, graph: torch.fx.GraphModule, inputs: Any) -> Any:
        """The compiler."""
        from torch._dynamo.backends.debugging import aot_eager

        compiled = aot_eager(graph, inputs)

        @functools.wraps(compiled)
        def count(*given: Any) -> Any:
            self.run[self.stage] += 1
            return compiled(*given)

        return count

    def mark(self) -> None:
        """The stand-in of `torch.compiler.cudagraph_mark_step_begin`."""
        self.marked += 1

    def on_train_batch_end(self, *given: Any) -> None:
        """Notes the number."""
        self.after_steps.append(self.run["train"])

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """From here on it counts for validation."""
        self.stage = "val"

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """From here on it counts for training."""
        self.stage = "train"
