"""Callback that compiles the parts of a task for training steps."""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from typing import Any, Literal, get_args

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn

__all__ = ["CompileMode", "CompiledParts"]

CompileMode = Literal["off", "on", "graphs"]


class CompiledParts(Callback):
    """`torch.compile` of encoder, core and decoder in training steps; the first step and validations run as written.

    "graphs" also records CUDA graphs (torch's mode "reduce-overhead"). Parts are compiled in place, so that names of
    weights stay, and draw the same random numbers as without.
    """

    def __init__(self, mode: CompileMode = "on") -> None:
        if mode not in get_args(CompileMode):
            raise ValueError(f"compile is {mode!r}; expected one of {', '.join(get_args(CompileMode))}")
        self.mode = mode
        self._as_written = ExitStack()

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.mode == "off":
            return
        import torch._inductor.config  # half a second, for those who compile alone

        torch._inductor.config.fallback_random = True
        # torch's tracer looks at what goes into a part
        warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not a leaf Tensor")
        parts = getattr(pl_module, "parts", {})
        for part in {id(part): part for part in parts.values() if isinstance(part, nn.Module)}.values():
            part.compile(mode="reduce-overhead" if self.mode == "graphs" else "default")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.mode != "off":
            self._as_written.enter_context(torch.compiler.set_stance("force_eager"))

    on_validation_start = on_train_start

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        self._as_written.close()

    on_train_batch_end = on_exception = on_validation_end  # type: ignore[assignment]

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Lets graphs write over what the step before has returned."""
        if self.mode == "graphs":
            torch.compiler.cudagraph_mark_step_begin()
