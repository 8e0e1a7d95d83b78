"""Images and videos of what the model does, saved in training and in evaluation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.trainer.states import TrainerFn

from slotbench.callbacks.evaluation import EvaluationPlace
from slotbench.callbacks.media import check_media, file_name, made_by, write_image, write_video
from slotbench.files import write_atomically
from slotbench.interfaces import Reporter
from slotbench.runs.folder import RunFolder

__all__ = ["MediaLogger"]

_STEP = re.compile(r"_step\d+$")


class MediaLogger(Callback):
    """Asks the task for pictures and videos of the first clips of the first batch, and for plots, at every evaluation.

    While fitting they become `media/<name>_step<step>.png` and `media/<name>_latest.png`, from the untrained model of
    the sanity check on; of the numbered ones remain the first, the first of every doubling of the step, and the newest.
    In `validate` and `test` they become `<name>.png` in a folder of the evaluation's own (`EvaluationPlace`). What
    `predict` shows, `PredictionWriter` writes.

    Videos have 10 frames per second and end in `.gif`, and in `.mp4` too where PyAV is installed. W&B gets the pictures
    and the GIFs. The random state is put back afterwards, so that looking does not change the run.

    Args:
        folder: the run.
        num_clips: clips per picture, and clips that a task may make videos of.
        place: where an evaluation writes; one of its own if absent.

    Raises:
        TypeError: a picture is no uint8 array "height width 3", or a video none "time height width 3".
    """

    def __init__(self, folder: RunFolder, num_clips: int = 4, place: EvaluationPlace | None = None) -> None:
        self._folder = folder
        self._num_clips = num_clips
        self._place = place or EvaluationPlace(folder)
        self._own_place = place is None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Finds the place of an evaluation."""
        if trainer.state.fn != TrainerFn.FITTING:
            self._place.enter(trainer)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Leaves the place, unless somebody else does."""
        if self._own_place:
            self._place.leave()

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

    on_test_batch_end = on_validation_batch_end

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Plots of the whole data set."""
        if trainer.is_global_zero and isinstance(pl_module, Reporter):
            self._write(trainer, pl_module.plots())

    on_test_end = on_validation_end

    def _show(self, trainer: Trainer, module: LightningModule, batch: Any) -> None:
        if not trainer.is_global_zero:
            return
        clips = batch.map(lambda value: value[: self._num_clips])
        self._write(trainer, made_by(module, "pictures", clips))
        self._write_videos(trainer, made_by(module, "videos", clips))

    def _write(self, trainer: Trainer, pictures: dict[str, np.ndarray]) -> None:
        for name, picture in pictures.items():
            check_media("picture", name, picture, "height width 3")
            first, *others = self._paths(trainer, name)
            self._keep(trainer, write_image(first, picture), others)
            for logger, step in _wandb(trainer):
                logger.log_image(f"pictures/{name}", [picture], step=step)

    def _write_videos(self, trainer: Trainer, videos: dict[str, np.ndarray]) -> None:
        for name, video in videos.items():
            check_media("video", name, video, "time height width 3")
            first, *others = self._paths(trainer, name)
            written = write_video(first, video, len(video))
            movie = written.with_suffix(".mp4")
            for file in (written, movie) if movie.is_file() else (written,):
                self._keep(trainer, file, others)
            for logger, step in _wandb(trainer):
                logger.log_video(f"videos/{name}", [str(written)], step=step)

    def _paths(self, trainer: Trainer, name: str) -> list[Path]:
        """Where a picture or video belongs, without the ending."""
        name = file_name(name)
        if trainer.state.fn != TrainerFn.FITTING:
            return [self._place.media / name]
        return [self._folder.media / f"{name}_step{trainer.global_step:07d}", self._folder.media / f"{name}_latest"]

    def _keep(self, trainer: Trainer, written: Path, others: list[Path]) -> None:
        """Copies what was written to the other places that it belongs to; in training, few of the older ones stay."""
        for other in others:
            write_atomically(other.with_name(f"{other.name}{written.suffix}"), written.read_bytes())
        if trainer.state.fn == TrainerFn.FITTING:
            _thin_out(self._folder.media, _STEP.sub("", written.stem), written.suffix)


def _wandb(trainer: Trainer) -> list[tuple[WandbLogger, int]]:
    """The loggers that mirror the run to W&B, and the step to file under."""
    # Lightning files a validation's metrics under the index of the step before it, so the pictures too
    step = max(0, trainer.global_step - 1)
    return [(logger, step) for logger in trainer.loggers if isinstance(logger, WandbLogger)]


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
