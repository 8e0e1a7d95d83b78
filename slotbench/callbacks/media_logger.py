"""Saves the task's pictures of what the model does."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities.seed import isolate_rng
from PIL import Image

from slotbench.runs.folder import RunFolder

__all__ = ["MediaLogger"]


class MediaLogger(Callback):
    """Asks the task for pictures of the first clips of the first batch, and for plots, at every evaluation.

    While fitting they become `media/<name>_step<step>.png` and `media/<name>_latest.png`, from the untrained model of
    the sanity check on; of the numbered ones remain the first, the first of every doubling of the step, and the newest.
    In `validate`, `test` and `predict` they become `media/<subcommand>/<name>.png`. W&B gets the same pictures. The
    random state is put back afterwards, so that looking does not change the run.

    Args:
        folder: the run.
        num_clips: clips per picture.

    Raises:
        TypeError: a picture is no uint8 array "height width 3".
    """

    def __init__(self, folder: RunFolder, num_clips: int = 4) -> None:
        self._folder = folder
        self._num_clips = num_clips

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Pictures of the first batch."""
        if batch_idx == dataloader_idx == 0:
            self._show(trainer, pl_module, batch)

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Pictures of the first batch."""
        if batch_idx == dataloader_idx == 0:
            self._show(trainer, pl_module, batch)

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Pictures of the first batch."""
        if batch_idx == dataloader_idx == 0:
            self._show(trainer, pl_module, batch)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Plots of the whole validation set."""
        self._plot(trainer, pl_module)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Plots of the whole test set."""
        self._plot(trainer, pl_module)

    def _plot(self, trainer: Trainer, module: LightningModule) -> None:
        make: Any = getattr(module, "plots", None)
        if trainer.is_global_zero and make is not None:
            self._write(trainer, make())

    def _show(self, trainer: Trainer, module: LightningModule, batch: Any) -> None:
        make: Any = getattr(module, "pictures", None)
        if not trainer.is_global_zero or make is None:
            return
        with isolate_rng(), torch.no_grad():
            pictures = make(batch.map(lambda value: value[: self._num_clips]))
        self._write(trainer, pictures)

    def _write(self, trainer: Trainer, pictures: dict[str, np.ndarray]) -> None:
        doing = trainer.state.fn
        assert doing is not None  # a trainer that shows something is doing something
        for name, picture in pictures.items():
            _check(name, picture)
            if doing == TrainerFn.FITTING:
                _save(picture, self._folder.media / f"{_file_name(name)}_step{trainer.global_step:07d}.png")
                _save(picture, self._folder.media / f"{_file_name(name)}_latest.png")
                _thin_out(self._folder.media, _file_name(name))
            else:
                _save(picture, self._folder.media / doing.value / f"{_file_name(name)}.png")
            for logger in trainer.loggers:
                if isinstance(logger, WandbLogger):
                    # Lightning files a validation's metrics under the index of the step before it, so the pictures too
                    logger.log_image(f"pictures/{name}", [picture], step=max(0, trainer.global_step - 1))


def _check(name: str, picture: Any) -> None:
    good = isinstance(picture, np.ndarray) and picture.dtype == np.uint8 and picture.ndim == 3 and picture.shape[2] == 3
    if not good:
        given = f"{picture.dtype} {tuple(picture.shape)}" if hasattr(picture, "shape") else type(picture).__name__
        raise TypeError(f'picture {name!r} is {given}; expected a numpy array uint8 "height width 3"')


def _save(picture: np.ndarray, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    Image.fromarray(picture).save(partial, format="PNG")
    os.replace(partial, path)


def _thin_out(folder: Path, name: str) -> None:
    """Keeps the first picture, the first of every doubling of the step, and the newest."""
    pattern = re.compile(re.escape(name) + r"_step(\d+)\.png")
    steps = {int(match[1]): path for path in folder.iterdir() if (match := pattern.fullmatch(path.name))}
    kept, seen = {max(steps)}, set()
    for step in sorted(steps):
        if step.bit_length() not in seen:
            seen.add(step.bit_length())
            kept.add(step)
    for step, path in steps.items():
        if step not in kept:
            path.unlink()


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name)
