"""Callback that saves a task's images and videos in training and evaluation."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.trainer.states import TrainerFn

from slotbench.callbacks.evaluation import EvaluationPlace
from slotbench.callbacks.media import check_media, file_name, made_by, write_image, write_video
from slotbench.errors import FileError
from slotbench.files import remove_file, write_atomically
from slotbench.interfaces import Reporter
from slotbench.runs.folder import RunFolder
from slotbench.text import one_line

__all__ = ["MediaLogger"]

_STEP = re.compile(r"_step\d+$")
_AXES = {"picture": "height width 3", "video": "time height width 3"}
_MOST_KEPT = 256 << 20
"""Bytes of pictures that wait to be written."""


@dataclass(frozen=True)
class _Late:
    """A picture or a video of a step."""

    kind: Literal["picture", "video"]
    name: str
    made: np.ndarray
    step: int


class MediaLogger(Callback):
    """Asks the task for pictures and videos of the first clips of the first batch, and for plots, at every evaluation.

    While fitting they become `media/<name>_step<step>.png` and `media/<name>_latest.png`, from the untrained model of
    the sanity check on; of the numbered ones remain the first, the first of every doubling of the step, and the newest.
    In `validate` and `test` they become `<name>.png` in a folder of the evaluation's own (`EvaluationPlace`). What
    `predict` shows, `PredictionWriter` writes.

    Videos have 10 frames per second and end in `.gif`, and in `.mp4` too where PyAV is installed. W&B gets the pictures
    and the GIFs. The random state is put back afterwards, so that looking does not change the run.

    No picture ends a training: a picture that fails is reported once, and one that the disk did not take is written at
    the next evaluation, also of the run as it is resumed.

    Args:
        folder: the run.
        num_clips: clips per picture, and clips that a task may make videos of.
        place: where an evaluation writes; one of its own if absent.

    Raises:
        TypeError: in an evaluation, or before the first step: a picture is no uint8 array "height width 3", or a video
            none "time height width 3".
    """

    def __init__(self, folder: RunFolder, num_clips: int = 4, place: EvaluationPlace | None = None) -> None:
        self._folder = folder
        self._num_clips = num_clips
        self._place = place or EvaluationPlace(folder)
        self._own_place = place is None
        self._late: list[_Late] = []
        self._said = False

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Finds the place of an evaluation."""
        if trainer.state.fn != TrainerFn.FITTING:
            self._place.enter(trainer)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Leaves the place, unless another process does."""
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
        if batch_idx == dataloader_idx == 0 and trainer.is_global_zero:
            with self._sparing(trainer):
                self._write_late(trainer)
                clips = batch.map(lambda value: value[: self._num_clips])
                self._write(trainer, "picture", made_by(pl_module, "pictures", clips))
                self._write(trainer, "video", made_by(pl_module, "videos", clips))

    on_test_batch_end = on_validation_batch_end

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Plots of the whole data set."""
        if trainer.is_global_zero and isinstance(pl_module, Reporter):
            with self._sparing(trainer):
                self._write(trainer, "picture", pl_module.plots())

    on_test_end = on_validation_end

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes the pictures that a full disk refused before."""
        if trainer.is_global_zero:
            with self._sparing(trainer):
                self._write_late(trainer)

    def state_dict(self) -> dict[str, Any]:
        """Pictures that could not be written yet; nothing as a rule."""
        late = [(one.kind, one.name, torch.from_numpy(one.made), one.step) for one in self._late]
        return {"late": late} if late else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the pictures that an earlier part of the run could not write."""
        self._late = [_Late(kind, name, made.numpy(), step) for kind, name, made, step in state_dict.get("late", [])]

    @contextlib.contextmanager
    def _sparing(self, trainer: Trainer) -> Iterator[None]:
        """Reports a failed picture once and goes on; raises before the first step: the task may be at fault."""
        try:
            yield
        except Exception as error:
            before = trainer.sanity_checking and not isinstance(error, OSError | FileError)
            if trainer.state.fn != TrainerFn.FITTING or before:
                raise
            self._say(error)

    def _say(self, error: Exception) -> None:
        if not self._said:
            warning = one_line(f"warning: a picture could not be made or written ({error}); the training goes on", 500)
            print(warning, file=sys.stderr)
        self._said = True

    def _write(self, trainer: Trainer, kind: Literal["picture", "video"], shown: dict[str, np.ndarray]) -> None:
        for name, made in shown.items():
            check_media(kind, name, made, _AXES[kind])
            self._write_or_keep(trainer, _Late(kind, name, made, trainer.global_step))

    def _write_late(self, trainer: Trainer) -> None:
        late, self._late = self._late, []
        for one in late:
            self._write_or_keep(trainer, one)

    def _write_or_keep(self, trainer: Trainer, one: _Late) -> None:
        """In a training, what cannot be written is written at the next evaluation."""
        try:
            self._write_one(trainer, one)
        except OSError as error:
            if trainer.state.fn != TrainerFn.FITTING:
                raise
            self._say(error)
            if one.made.nbytes + sum(other.made.nbytes for other in self._late) <= _MOST_KEPT:
                self._late.append(_Late(one.kind, one.name, np.array(one.made), one.step))

    def _write_one(self, trainer: Trainer, one: _Late) -> None:
        first, *others = self._paths(trainer, one.name, one.step)
        if one.kind == "picture":
            self._keep(trainer, write_image(first, one.made), others)
        else:
            written = write_video(first, one.made, len(one.made))
            movie = written.with_suffix(".mp4")
            for file in (written, movie) if movie.is_file() else (written,):
                self._keep(trainer, file, others)
        # Lightning files a validation's metrics under the index of the step before it, so the pictures too
        step = max(0, one.step - 1)
        for logger in trainer.loggers:
            if isinstance(logger, WandbLogger) and one.kind == "picture":
                logger.log_image(f"pictures/{one.name}", [one.made], step=step)
            elif isinstance(logger, WandbLogger):
                logger.log_video(f"videos/{one.name}", [str(written)], step=step)

    def _paths(self, trainer: Trainer, name: str, step: int) -> list[Path]:
        """Where a picture or video belongs, without the ending."""
        name = file_name(name)
        if trainer.state.fn != TrainerFn.FITTING:
            return [self._place.media / name]
        return [self._folder.media / f"{name}_step{step:07d}", self._folder.media / f"{name}_latest"]

    def _keep(self, trainer: Trainer, written: Path, others: list[Path]) -> None:
        """Copies what was written to the other places that it belongs to; in training, few of the older ones stay."""
        for other in others:
            write_atomically(other.with_name(f"{other.name}{written.suffix}"), written.read_bytes())
        if trainer.state.fn == TrainerFn.FITTING:
            _thin_out(self._folder.media, _STEP.sub("", written.stem), written.suffix)


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
            remove_file(path)
