"""Writes what `predict` shows of every video: a picture, a moving picture, and arrays if they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from slotbench.callbacks.evaluation_place import EvaluationPlace
from slotbench.callbacks.media_files import check_media, file_name, made_by, write_picture, write_video
from slotbench.callbacks.saved_arrays import arrays_of_clip, write_arrays

__all__ = ["PredictionWriter"]


@runtime_checkable
class _Piece(Protocol):
    number: int
    start: int
    length: int

    @property
    def is_last(self) -> bool: ...


@runtime_checkable
class _Pieces(Protocol):
    """A data set of the pieces of whole videos, in order: `slotbench.data.video_pieces.VideoPieces`."""

    pieces: list[Any]

    def title(self, piece: Any) -> str: ...

    def origin(self, piece: Any) -> str: ...

    def frame_numbers(self, piece: Any) -> np.ndarray: ...


class PredictionWriter(Callback):
    """One picture and one video of each video of the data set, in a folder of this prediction's own.

    Where the task reads whole videos piece by piece (`SlotTask.piece_frames`), they are
    `video<number>_<what the data calls it>.png` and `.gif`, whatever the video's length. Elsewhere the task's
    `pictures` and `videos` are asked for each clip alone, and they are `clip<index>_<name>.png`, with the name of the
    picture at the end if the task makes several of one clip. GIFs come with an `.mp4` where PyAV is installed.

    With `save`, an npz file of the same name holds the arrays (`slotbench.callbacks.saved_arrays`), of every video.

    Args:
        place: where to write.
        save: what to save, keys of `saved_arrays.AXES`.
        num_pictured: videos that there are pictures of; each process makes those that it has.

    Raises:
        TypeError: a picture is no uint8 array "height width 3", or a video none "time height width 3".
        UserError: the task does not give what is to be saved.
    """

    def __init__(self, place: EvaluationPlace, save: Sequence[str] = (), num_pictured: int = 64) -> None:
        self._place = place
        self._save = tuple(save)
        self._num_pictured = num_pictured
        self._seen = 0
        self._recording: Any = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Finds the place."""
        self._place.enter(trainer)

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Starts to count."""
        self._seen = 0

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """A piece of a video is kept until the video is complete; a clip is shown at once."""
        dataset = _dataset(trainer, dataloader_idx)
        if isinstance(dataset, _Pieces):
            self._piece(trainer, pl_module, outputs, batch, dataset, dataset.pieces[batch_idx])
            return
        for i in range(len(batch)):
            # clips that come from no loader of ours are numbered as they come
            index = self._seen if batch.index is None else int(batch.index[i])
            title = _clip_title(dataset, index)
            if index < self._num_pictured:
                clip = batch.map(lambda value, i=i: value[i : i + 1])
                self._write_pictures(_titled(made_by(pl_module, "pictures", clip), title))
                self._write_videos(_titled(made_by(pl_module, "videos", clip), title))
            if self._save:
                arrays = arrays_of_clip(outputs, i, self._save, type(pl_module).__name__)
                frames, source = _frames_of_clip(outputs, batch, i, arrays, dataset)
                write_arrays(self._place.media / file_name(title), arrays, frames, source, self._about(trainer))
            self._seen += 1

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Says so if there are videos without pictures."""
        everyone = torch.tensor(self._seen, device=trainer.strategy.root_device)
        left = int(trainer.strategy.reduce(everyone, reduce_op="sum")) - self._num_pictured
        if trainer.is_global_zero and left > 0:
            print(f"Pictures of the first {self._num_pictured} videos; {left} more have none.")

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Removes what was kept of a video that was not finished."""
        self._forget()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """The same, if the prediction was stopped in the middle of a video."""
        self._forget()

    def _piece(
        self, trainer: Trainer, task: Any, outputs: Mapping[str, Any], batch: Any, dataset: _Pieces, piece: _Piece
    ) -> None:
        pictured = piece.number < self._num_pictured
        if self._save and piece.start == 0:
            arrays_of_clip(outputs, 0, self._save, type(task).__name__)  # refuses at once what the task does not give
        if pictured or self._save:
            if piece.start == 0:
                self._forget()
                hidden = self._place.media / f".video{piece.number:04d}"
                self._recording = task.recording(hidden, piece.length, self._save)
            self._recording.add(batch, outputs)
        if not piece.is_last:
            return
        self._seen += 1
        title = dataset.title(piece)
        if pictured:
            with torch.no_grad():
                self._write_pictures(_titled(self._recording.pictures(), title))
            for name, frames in _titled(self._recording.videos(), title).items():
                write_video(self._place.media / file_name(name), frames, piece.length)
        if self._save:
            arrays = self._recording.arrays(self._save)
            path = self._place.media / file_name(title)
            write_arrays(path, arrays, dataset.frame_numbers(piece), dataset.origin(piece), self._about(trainer))
        self._forget()

    def _forget(self) -> None:
        if self._recording is not None:
            self._recording.close()
            self._recording = None

    def _write_pictures(self, pictures: Mapping[str, np.ndarray]) -> None:
        for name, picture in pictures.items():
            check_media("picture", name, picture, "height width 3")
            write_picture(self._place.media / file_name(name), picture)

    def _write_videos(self, videos: Mapping[str, np.ndarray]) -> None:
        for name, video in videos.items():
            check_media("video", name, video, "time height width 3")
            write_video(self._place.media / file_name(name), video, len(video))

    def _about(self, trainer: Trainer) -> dict[str, Any]:
        return {"run": str(self._place.run), "checkpoint": str(trainer.ckpt_path)}


def _dataset(trainer: Trainer, loader: int) -> Any:
    loaders: Any = trainer.predict_dataloaders
    if isinstance(loaders, list | tuple):
        loaders = loaders[loader]
    return getattr(loaders, "dataset", None)


def _titled(made: Mapping[str, Any], title: str) -> dict[str, Any]:
    """Pictures of one clip under the clip's title; what the task calls them matters only if there are several."""
    return {title if len(made) == 1 else f"{title}_{name}": picture for name, picture in made.items()}


def _clip_title(dataset: Any, index: int) -> str:
    """The clip's number, and what its data set calls it, if that can say."""
    name_of: Callable[[int], str | None] | None = getattr(dataset, "clip_name", None)
    name = None if name_of is None else name_of(index)
    return f"clip{index:04d}" if name is None else f"clip{index:04d}_{name}"


def _frames_of_clip(
    outputs: Mapping[str, Any], batch: Any, i: int, arrays: Mapping[str, np.ndarray], dataset: Any
) -> tuple[np.ndarray, str]:
    """The numbers of the frames that the arrays are about, and the source of the clip, in words."""
    source: Any = getattr(dataset, "source", None)
    length = len(next(iter(arrays.values())))
    steps = outputs["steps"][i] if "steps" in outputs else batch.time[i, -length:]
    first = int(batch.objects["first_frame"][i]) if "first_frame" in batch.objects else 0
    frames = first + getattr(source, "stride", 1) * steps.cpu().numpy()
    if source is not None and "video" in batch.objects:
        return frames, source.origin(int(batch.objects["video"][i]))
    number = i if batch.index is None else int(batch.index[i])
    name = type(dataset).__name__ if dataset is not None else "clips"
    return frames, f"{name}, clip {number}"
