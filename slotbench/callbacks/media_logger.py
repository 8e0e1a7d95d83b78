"""Saves the task's pictures and videos of what the model does."""

from __future__ import annotations

import io
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

from slotbench.callbacks.gif import encode_gif
from slotbench.runs.folder import RunFolder

__all__ = ["MediaLogger"]


class MediaLogger(Callback):
    """Asks the task for pictures and videos of the first clips of the first batch, and for plots, at every evaluation.

    While fitting they become `media/<name>_step<step>.png` and `media/<name>_latest.png`, from the untrained model of
    the sanity check on; of the numbered ones remain the first, the first of every doubling of the step, and the newest.
    In `validate`, `test` and `predict` they become `media/<subcommand>/<name>.png`. Videos are GIF of 10 frames per
    second and end in `.gif`. W&B gets the same files. The random state is put back afterwards, so that looking does not
    change the run.

    Args:
        folder: the run.
        num_clips: clips per picture, and clips that a task may make videos of.

    Raises:
        TypeError: a picture is no uint8 array "height width 3", or a video none "time height width 3".
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
        if not trainer.is_global_zero:
            return
        clips = batch.map(lambda value: value[: self._num_clips])
        for method, write in (("pictures", self._write), ("videos", self._write_videos)):
            make: Any = getattr(module, method, None)
            if make is not None:
                with isolate_rng(), torch.no_grad():
                    made = make(clips)
                write(trainer, made)

    def _write(self, trainer: Trainer, pictures: dict[str, np.ndarray]) -> None:
        for name, picture in pictures.items():
            _check("picture", name, picture, "height width 3")
            self._store(trainer, name, ".png", _encode_png(picture))
            for logger, step in _wandb(trainer):
                logger.log_image(f"pictures/{name}", [picture], step=step)

    def _write_videos(self, trainer: Trainer, videos: dict[str, np.ndarray]) -> None:
        for name, video in videos.items():
            _check("video", name, video, "time height width 3")
            path = self._store(trainer, name, ".gif", encode_gif(video))
            for logger, step in _wandb(trainer):
                logger.log_video(f"videos/{name}", [str(path)], step=step)

    def _store(self, trainer: Trainer, name: str, suffix: str, content: bytes) -> Path:
        """Writes a picture or video to where it belongs, and says where."""
        doing = trainer.state.fn
        assert doing is not None  # a trainer that shows something is doing something
        name = _file_name(name)
        if doing != TrainerFn.FITTING:
            return _save(content, self._folder.media / doing.value / f"{name}{suffix}")
        _save(content, self._folder.media / f"{name}_step{trainer.global_step:07d}{suffix}")
        path = _save(content, self._folder.media / f"{name}_latest{suffix}")
        _thin_out(self._folder.media, name, suffix)
        return path


def _wandb(trainer: Trainer) -> list[tuple[WandbLogger, int]]:
    """The loggers that mirror the run to W&B, and the step to file under."""
    # Lightning files a validation's metrics under the index of the step before it, so the pictures too
    step = max(0, trainer.global_step - 1)
    return [(logger, step) for logger in trainer.loggers if isinstance(logger, WandbLogger)]


def _check(kind: str, name: str, given: Any, axes: str) -> None:
    dims = len(axes.split())
    good = isinstance(given, np.ndarray) and given.dtype == np.uint8 and given.ndim == dims and given.shape[-1] == 3
    if not good or 0 in given.shape:
        what = f"{given.dtype} {tuple(given.shape)}" if hasattr(given, "shape") else type(given).__name__
        raise TypeError(f'{kind} {name!r} is {what}; expected a numpy array uint8 "{axes}"')


def _encode_png(picture: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(picture).save(out, format="PNG")
    return out.getvalue()


def _save(content: bytes, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(content)
    os.replace(partial, path)
    return path


def _thin_out(folder: Path, name: str, suffix: str) -> None:
    """Keeps the first picture, the first of every doubling of the step, and the newest."""
    pattern = re.compile(re.escape(name) + r"_step(\d+)" + re.escape(suffix))
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
