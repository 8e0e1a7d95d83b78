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
from slotbench.callbacks.mp4 import can_encode_mp4, encode_mp4
from slotbench.runs.folder import RunFolder

__all__ = ["MediaLogger"]


class MediaLogger(Callback):
    """Asks the task for pictures and videos of the first clips of the first batch, and for plots, at every evaluation.

    While fitting they become `media/<name>_step<step>.png` and `media/<name>_latest.png`, from the untrained model of
    the sanity check on; of the numbered ones remain the first, the first of every doubling of the step, and the newest.
    In `validate` and `test` they become `media/<subcommand>/<name>.png`.

    In `predict` it asks for each clip of every batch on its own, for the first `num_predicted` of the data set, each
    process for those that it has. The files are named
    `media/predict/clip<index>_<what the data calls the clip>.png`, with the name of the picture at the end if the task
    makes several of one clip.

    Videos have 10 frames per second and end in `.gif`, and in `.mp4` too where PyAV is installed. W&B gets the pictures
    and the GIFs. The random state is put back afterwards, so that looking does not change the run.

    Args:
        folder: the run.
        num_clips: clips per picture, and clips that a task may make videos of.
        num_predicted: clips that `predict` makes pictures of.

    Raises:
        TypeError: a picture is no uint8 array "height width 3", or a video none "time height width 3".
    """

    def __init__(self, folder: RunFolder, num_clips: int = 4, num_predicted: int = 64) -> None:
        self._folder = folder
        self._num_clips = num_clips
        self._num_predicted = num_predicted
        self._predicted = 0

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

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Starts to count clips."""
        self._predicted = 0

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Pictures of each clip of the batch."""
        for i in range(len(batch)):
            # clips that come from no loader of ours are numbered as they come
            index = self._predicted if batch.index is None else int(batch.index[i])
            if index < self._num_predicted:
                title = _title(trainer, index, dataloader_idx)
                self._show_alone(trainer, pl_module, batch.map(lambda value, i=i: value[i : i + 1]), title)
            self._predicted += 1

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Says so if there are clips without pictures."""
        everyone = torch.tensor(self._predicted, device=trainer.strategy.root_device)
        left = int(trainer.strategy.reduce(everyone, reduce_op="sum")) - self._num_predicted
        if trainer.is_global_zero and left > 0:
            print(f"Pictures of the first {self._num_predicted} clips; {left} more have none.")

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
        self._write(trainer, _make(module, "pictures", clips))
        self._write_videos(trainer, _make(module, "videos", clips))

    def _show_alone(self, trainer: Trainer, module: LightningModule, clip: Any, title: str) -> None:
        self._write(trainer, _titled(_make(module, "pictures", clip), title))
        self._write_videos(trainer, _titled(_make(module, "videos", clip), title))

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
            if can_encode_mp4():
                self._store(trainer, name, ".mp4", encode_mp4(video))
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


def _make(module: LightningModule, method: str, clips: Any) -> dict[str, np.ndarray]:
    """What the task makes of the clips; nothing if it has no such method."""
    make: Any = getattr(module, method, None)
    if make is None:
        return {}
    with isolate_rng(), torch.no_grad():
        made: dict[str, np.ndarray] = make(clips)
    return made


def _titled(made: dict[str, np.ndarray], title: str) -> dict[str, np.ndarray]:
    """Pictures of one clip under the clip's title; what the task calls them matters only if there are several."""
    return {title if len(made) == 1 else f"{title}_{name}": picture for name, picture in made.items()}


def _title(trainer: Trainer, index: int, loader: int) -> str:
    """The clip's number, and what its data set calls it, if that can say."""
    loaders: Any = trainer.predict_dataloaders
    if isinstance(loaders, list | tuple):
        loaders = loaders[loader]
    name_of: Any = getattr(getattr(loaders, "dataset", None), "clip_name", None)
    name = None if name_of is None else name_of(index)
    return f"clip{index:04d}" if name is None else f"clip{index:04d}_{name}"


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
