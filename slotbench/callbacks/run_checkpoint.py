"""Saves `last.ckpt` and `best.ckpt`, whole or not at all."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_warn

__all__ = ["RunCheckpoint"]


class RunCheckpoint(Checkpoint):
    """Two files under fixed names: the newest state, and the one that scored best on the task's `monitor`.

    `last.ckpt` is replaced after each validation, every `minutes`, at the end, and on a clean interruption. `best.ckpt`
    is another name for the `last.ckpt` that scored best, so that it costs no second serialisation. A file is written
    beside its place and renamed into it. Lightning's ModelCheckpoint writes to the system's temporary folder and moves
    the file, which is a plain copy, torn by a kill, whenever that folder is on another file system; and it saves the
    last state only when the best ones changed.

    Args:
        folder: where the checkpoints go.
        minutes: longest time without a checkpoint while training.
    """

    def __init__(self, folder: str | Path, minutes: int | float = 10.0) -> None:
        self._folder = Path(folder)
        self._seconds = 60 * minutes
        self._saved_at = time.monotonic()
        self._saved_step: int | None = None
        self._warned = False
        self.best_score: float | None = None
        self.best_step: int | None = None

    @property
    def last_model_path(self) -> str:
        """`last.ckpt`, or "" before the first one; the name is Lightning's."""
        return self._existing("last.ckpt")

    @property
    def best_model_path(self) -> str:
        """`best.ckpt`, or "" before the first one; the name is Lightning's, for `ckpt_path="best"`."""
        return self._existing("best.ckpt")

    def save(self, trainer: Trainer) -> None:
        """Replaces `last.ckpt` by the present state, unless it is that already."""
        if trainer.global_step == self._saved_step:
            return
        last = self._folder / "last.ckpt"
        partial = self._folder / ".last.ckpt.partial"
        trainer.save_checkpoint(partial, weights_only=False)  # on every process: sharded strategies gather here
        if trainer.is_global_zero:
            os.replace(partial, last)
        self._saved_at, self._saved_step = time.monotonic(), trainer.global_step

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Counts the time from here; a state that was loaded need not be saved again."""
        self._saved_at, self._saved_step = time.monotonic(), trainer.global_step

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Saves if the last checkpoint is old."""
        # not at every step: with several processes asking costs a broadcast
        if trainer.global_step % 20 == 0 and trainer.strategy.broadcast(
            time.monotonic() - self._saved_at >= self._seconds
        ):
            self.save(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Saves, and keeps the state as the best if it is."""
        if trainer.state.fn != TrainerFn.FITTING or trainer.sanity_checking:
            return
        is_best = self._is_best(trainer, getattr(pl_module, "monitor", None))
        self._saved_step = None if is_best else self._saved_step  # the score is part of what is saved
        self.save(trainer)
        if is_best and trainer.is_global_zero:
            _link(self._folder / "last.ckpt", self._folder / "best.ckpt")

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Saves the final state."""
        self.save(trainer)

    def state_dict(self) -> dict[str, Any]:
        """The best score, so that a resumed run compares with it."""
        return {"best_score": self.best_score, "best_step": self.best_step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes up the best score of an earlier part of the run."""
        self.best_score, self.best_step = state_dict["best_score"], state_dict["best_step"]

    def _is_best(self, trainer: Trainer, monitor: tuple[str, str] | None) -> bool:
        if monitor is None:
            return False
        name, direction = monitor
        if name not in trainer.callback_metrics:
            if not self._warned:
                known = ", ".join(sorted(trainer.callback_metrics)) or "none"
                rank_zero_warn(f"no best.ckpt: the task monitors {name!r}, which was not logged; logged are {known}")
            self._warned = True
            return False
        score = float(trainer.callback_metrics[name])
        if score != score:
            return False
        if self.best_score is not None and not (
            score > self.best_score if direction == "max" else score < self.best_score
        ):
            return False
        self.best_score, self.best_step = score, trainer.global_step
        return True

    def _existing(self, name: str) -> str:
        path = self._folder / name
        return str(path) if path.is_file() else ""


def _link(source: Path, target: Path) -> None:
    """Makes `target` the same file as `source` in one step; a copy where the file system has no hard links."""
    partial = target.with_name(f".{target.name}.partial")
    partial.unlink(missing_ok=True)
    try:
        os.link(source, partial)
    except OSError:
        shutil.copyfile(source, partial)
    os.replace(partial, target)
