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
    """`torch.compile` of encoder, core and decoder in training steps; validation runs as written.

    Where a step is hundreds of small operations (SAVi, RIM, SlotRNN), starting them takes longer than they do. "on"
    fuses them; "graphs" also records them as CUDA graphs (torch's mode "reduce-overhead"), which are replayed as one.
    Parts are compiled in place: names of weights, checkpoints and copies of the model are those of a model as written.
    Of several processes each compiles its own parts, within what averages the gradients.

    Random numbers are drawn as they are without (`fallback_random`), so that drawn slots and dropout are the same.
    Values differ by rounding, so that a run that is resumed does, too. The first step of a process runs as written, and
    what the parts return is checked in it. What cannot be compiled (the numba kernels of a CPU) runs as written between
    what can. The second step takes one to several minutes, and again wherever a clip has another length.

    Args:
        mode: "off", "on" or "graphs".

    Raises:
        ValueError: another mode.
    """

    def __init__(self, mode: CompileMode = "on") -> None:
        if mode not in get_args(CompileMode):
            raise ValueError(f"compile is {mode!r}; expected one of {', '.join(get_args(CompileMode))}")
        self.mode = mode
        self._as_written = ExitStack()

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Compiles the parts, each when it is first called."""
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
        """The first step runs as written: parts are checked in it."""
        self._run_as_written()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """From here on steps are compiled."""
        self._as_written.close()

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Lets graphs write over what the step before has returned."""
        if self.mode == "graphs":
            torch.compiler.cudagraph_mark_step_begin()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """From here on parts run as written."""
        self._run_as_written()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Training steps are compiled again."""
        self._as_written.close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Leaves torch as it was."""
        self._as_written.close()

    def _run_as_written(self) -> None:
        if self.mode != "off":
            self._as_written.enter_context(torch.compiler.set_stance("force_eager"))
