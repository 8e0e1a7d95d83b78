"""The checkpoints of a run, `last.ckpt`, `previous.ckpt` and `best.ckpt`: written whole or not at all."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from lightning.pytorch.utilities import rank_zero_warn

from slotbench.callbacks.divergence import Divergence
from slotbench.callbacks.final_validation import is_last_step
from slotbench.callbacks.random_state import RandomState
from slotbench.interfaces import Reporter
from slotbench.io import open_atomically
from slotbench.runs.checkpoints import BEST, LAST, PREVIOUS, link

__all__ = ["CheckpointFile", "RunCheckpoint"]


class CheckpointFile(TorchCheckpointIO):
    """Writes a file beside its place, waits until the disk has it, and renames it; Lightning's own does not wait."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        """Writes the file."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with open_atomically(path) as file:
            torch.save(checkpoint, file)


class RunCheckpoint(Checkpoint):
    """Three files under fixed names: the newest state, the one before it, and the one that scored best on `monitor`.

    `last.ckpt` is replaced after each validation, every `minutes`, at the end, and on a clean interruption; what it was
    is `previous.ckpt` then, to resume from if the newest is damaged. `best.ckpt` is a hard link to the `last.ckpt` that
    scored best. Before a checkpoint `divergence` may refuse, and `random_state` is told, to be part of it.
    """

    def __init__(
        self,
        folder: str | Path,
        minutes: float = 10.0,
        random_state: RandomState | None = None,
        divergence: Divergence | None = None,
    ) -> None:
        self._folder, self._seconds = Path(folder), 60 * minutes
        self._partial = self._folder / f".{LAST}.partial"
        self._random_state, self._divergence = random_state, divergence
        self._saved_at = time.monotonic()
        self._saved_step: int | None = None  # of the state that need not be saved again
        self._last_step: int | None = None  # of what last.ckpt is
        self._written_step: int | None = None  # of the file that is written and not yet in its place
        self.best_score: float | None = None
        self.best_step: int | None = None

    @property
    def best_model_path(self) -> str:
        """`best.ckpt`, or "" before the first one; the name is Lightning's, for `ckpt_path="best"`."""
        return str(path) if (path := self._folder / BEST).is_file() else ""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if isinstance(trainer.strategy, SingleDeviceStrategy | DDPStrategy):
            trainer.strategy.checkpoint_io = CheckpointFile()

    def save(self, trainer: Trainer) -> None:
        """Replaces `last.ckpt` by the current state, unless it is current; every process calls it."""
        if trainer.global_step != self._saved_step:
            self.write(trainer)
            self._put_in_place(trainer)

    def write(self, trainer: Trainer) -> None:
        """Writes the current state beside `last.ckpt`; every process calls it, between a step and its metrics.

        It is put in its place once these are on record, and dropped if a validation follows: a run that is resumed from
        it would log neither.
        """
        if trainer.global_step in (self._written_step, self._saved_step):
            return
        if self._divergence is not None:
            self._divergence.check(trainer)
        if self._random_state is not None:
            self._random_state.collect(trainer)
        trainer.save_checkpoint(self._partial, weights_only=False)  # on every process: sharded strategies gather here
        self._written_step = trainer.global_step

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Starts the timer; a loaded state need not be saved again."""
        self._saved_at, self._saved_step = time.monotonic(), trainer.global_step

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        """Moves the file of the previous step to `last.ckpt`."""
        self._put_in_place(trainer)

    on_train_epoch_end = on_train_batch_start

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        waits = (args[-1] + 1) % trainer.accumulate_grad_batches  # for more gradients, which are in no checkpoint
        if not waits and (is_last_step(trainer) or self._is_time(trainer)):
            self.write(trainer)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Drops the file written right before this validation."""
        if self._written_step is not None and trainer.is_global_zero:
            self._partial.unlink(missing_ok=True)
        self._written_step = None

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn != "fit" or trainer.sanity_checking:
            return
        is_best = self._is_best(trainer, pl_module.monitor if isinstance(pl_module, Reporter) else None)
        self._saved_step = None  # the scores are part of what is saved
        self.save(trainer)
        if is_best and trainer.is_global_zero:
            link(self._folder / LAST, self._folder / BEST)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.save(trainer)

    def state_dict(self) -> dict[str, Any]:
        return {"best_score": self.best_score, "best_step": self.best_step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best_score, self.best_step = state_dict["best_score"], state_dict["best_step"]

    def _is_time(self, trainer: Trainer) -> bool:
        if trainer.global_step % 20:  # with several processes asking costs a broadcast
            return False
        return bool(trainer.strategy.broadcast(time.monotonic() - self._saved_at >= self._seconds))

    def _put_in_place(self, trainer: Trainer) -> None:
        if self._written_step is None:
            return
        if trainer.is_global_zero:
            last = self._folder / LAST
            if last.is_file() and self._last_step != self._written_step:
                link(last, self._folder / PREVIOUS)
            self._partial.replace(last)
        # the launcher ends the other processes when one is gone
        trainer.strategy.barrier("checkpoint in its place")
        self._last_step = self._written_step
        self._saved_at, self._saved_step, self._written_step = time.monotonic(), self._written_step, None

    def _is_best(self, trainer: Trainer, monitor: tuple[str, str] | None) -> bool:
        if monitor is None:
            return False
        name, direction = monitor
        if name not in trainer.callback_metrics:
            rank_zero_warn(f"no best.ckpt: the task monitors {name!r}, which was not logged")
            return False
        score, sign = float(trainer.callback_metrics[name]), 1 if direction == "max" else -1
        if score != score or (self.best_score is not None and sign * score <= sign * self.best_score):
            return False
        self.best_score, self.best_step = score, trainer.global_step
        return True
