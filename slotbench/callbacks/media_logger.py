"""Callback that saves a task's images and videos in training and evaluation."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import WandbLogger

from slotbench.callbacks.media import Kind, file_name, made_by, write_image, write_video
from slotbench.interfaces import VideoBatch
from slotbench.io import write_atomically
from slotbench.runs.evaluation_place import EvaluationPlace
from slotbench.runs.folder import RunFolder

__all__ = ["MediaLogger"]


class MediaLogger(Callback):
    """Asks the task for pictures and videos of the first clips of the first batch, and for plots, at every evaluation.

    While fitting they become `media/<name>_step<step>.png` and `media/<name>_latest.png`, from the untrained model of
    the sanity check on; of the numbered ones remain the first, the first of every doubling of the step, and the newest.
    In `validate` and `test` they go to a folder of the evaluation. W&B gets the pictures and the GIFs. A picture that
    fails during a training is reported once, and the training goes on.
    """

    def __init__(self, folder: RunFolder, num_clips: int = 4, place: EvaluationPlace | None = None) -> None:
        self._folder, self._num_clips = folder, num_clips
        self._place, self._own_place = place or EvaluationPlace(folder), place is None
        self._said = False

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if trainer.state.fn != "fit":
            self._place.enter(trainer)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self._own_place:
            self._place.leave()

    def on_validation_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        _, batch, batch_idx, *loader = args
        if batch_idx == 0 and not any(loader):
            self._show(trainer, pl_module, batch.map(lambda value: value[: self._num_clips]))

    on_test_batch_end = on_validation_batch_end  # type: ignore[assignment]

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._show(trainer, pl_module)

    on_test_end = on_validation_end

    def _show(self, trainer: Trainer, task: LightningModule, *clips: VideoBatch) -> None:
        """Writes pictures and videos of clips, or the plots; before the first step of a training errors are raised."""
        if not trainer.is_global_zero:
            return
        kinds: tuple[Kind, ...] = ("pictures", "videos") if clips else ("plots",)
        try:
            for kind in kinds:
                for name, made in made_by(task, kind, *clips).items():
                    self._write(trainer, name, made)
        except Exception as error:
            if trainer.state.fn != "fit" or (trainer.sanity_checking and not isinstance(error, OSError)):
                raise
            if not self._said:
                print(f"warning: no picture ({error}); the training goes on", file=sys.stderr)
            self._said = True

    def _write(self, trainer: Trainer, name: str, made: np.ndarray) -> None:
        fitting, plain = trainer.state.fn == "fit", file_name(name)
        folder = self._folder.media if fitting else self._place.media
        path = folder / (f"{plain}_step{trainer.global_step:07d}" if fitting else plain)
        written = write_image(path, made) if made.ndim == 3 else write_video(path, made, len(made))
        if fitting:
            write_atomically(folder / f"{plain}_latest{written.suffix}", written.read_bytes())
            _thin_out(folder, plain, written.suffix)
        # Lightning files a validation's metrics under the step before it, so the pictures too
        step = max(0, trainer.global_step - 1)
        for logger in trainer.loggers:
            if isinstance(logger, WandbLogger) and made.ndim == 3:
                logger.log_image(f"pictures/{name}", [made], step=step)
            elif isinstance(logger, WandbLogger):
                logger.log_video(f"videos/{name}", [str(written)], step=step)


def _thin_out(folder: Path, name: str, suffix: str) -> None:
    """Keeps the first picture, the first of every doubling of the step, and the newest."""
    pattern = re.compile(re.escape(name) + r"_step(\d+)" + re.escape(suffix))
    steps = {int(match[1]): path for path in folder.iterdir() if (match := pattern.fullmatch(path.name))}
    firsts = {step.bit_length(): step for step in sorted(steps, reverse=True)}
    for step in steps.keys() - {max(steps), *firsts.values()}:
        steps[step].unlink(missing_ok=True)
