"""Callback that writes an image, a video, and with `--save` an npz file of arrays of every predicted video.

    slots           float32         time slots dim
    masks           uint8, uint16   time height width            the slot that has each pixel, or their number for none
    attention       uint8, uint16   time height width            the slot whose attention is largest, in the same way
    soft_masks      float16         time slots height width      the share of each slot in each pixel
    reconstruction  uint8           time channels height width   the decoder's output
    depth           float32         time height width            predicted depth, in the unit of the data
    frame           int64           time                         the number of each of these frames in the source
    view            int64           [6]                          height and width of the source's frames, and what the
                                                                 arrays show of them: top, left, height and width
    video           text: what the source is called, and its masks
    source, about                   text: the source video; the run and its checkpoint, as JSON
    shown           int64           views                        of several cameras, those that the encoder was shown

Of several cameras, arrays but `slots` have an axis of views after that of time, in the order of the data's cameras.
`view` and `video` are there where the data set provides them, as `VideoFolder` does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from slotbench.callbacks.media import clip_title, file_name, made_by, write_image, write_video
from slotbench.errors import UserError, lines
from slotbench.interfaces import DescribedClips, Piece, Recording, WholeVideos, rounded_shares
from slotbench.io import open_atomically
from slotbench.metrics.contingency import masks_to_labels
from slotbench.runs.evaluation_place import EvaluationPlace

__all__ = ["AXES", "PredictionWriter"]

AXES = {
    "slots": "time slots dim",
    "masks": "time height width",
    "attention": "time height width",
    "soft_masks": "time slots height width",
    "reconstruction": "time channels height width",
    "depth": "time height width",
}
"""What can be saved, and the axes of each, to which that of views comes after time where there are several cameras."""


def _arrays_of_clip(found: Mapping[str, Tensor], clip: int, names: Iterable[str], task: str) -> dict[str, np.ndarray]:
    """The arrays of one clip, out of the result of a task's `predict_step`; names are keys of `AXES`."""
    there: dict[str, Tensor] = {}
    if "slots" in found:
        there["slots"] = found["slots"][clip].float()
    if "masks" in found:
        soft = found["masks"][clip]
        soft = soft[None] if soft.ndim == 3 else soft  # a task with one target has no axis of time
        there["masks"] = masks_to_labels(soft).to(torch.uint8 if soft.shape[-3] < 256 else torch.uint16)
        there["soft_masks"] = rounded_shares(soft)
    if "labels" in found:
        slots = found["masks"].shape[-3] if "masks" in found else int(found["labels"].max()) + 1
        there["masks"] = found["labels"][clip].to(torch.uint8 if slots < 256 else torch.uint16)
    if "attention" in found:
        winners = masks_to_labels(found["attention"][clip])
        there["attention"] = winners.to(torch.uint8 if found["attention"].shape[-3] < 256 else torch.uint16)
    if "frames" in found:
        there["reconstruction"] = (found["frames"][clip].float().clamp(0, 1) * 255).round().to(torch.uint8)
    if "depth" in found:
        there["depth"] = found["depth"][clip].float()
    if absent := [name for name in names if name not in there]:
        raise UserError(lines(f"{task} gives no {', '.join(absent)} to save", available=", ".join(there)))
    return {name: there[name].cpu().numpy() for name in names}


def _write_arrays(path: Path, arrays: Mapping[str, np.ndarray], origin: Mapping[str, Any]) -> None:
    """Writes `path`.npz; arrays may be mapped ones."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_atomically(path.with_name(f"{path.name}.npz")) as file:
        np.savez_compressed(file, **{**arrays, **origin})


def _origin(videos: Any, number: int | None, frames: Any, source: str) -> dict[str, Any]:
    """The frames' numbers in the source, what the source is called, and what is seen of it."""
    described = videos if isinstance(videos, DescribedClips) else DescribedClips()
    origin = {"frame": np.asarray(frames, np.int64), "source": source}
    if number is not None:
        name, view = described.video_name(number), described.view(number)
        origin |= {} if name is None else {"video": name}
        origin |= {} if view is None else {"view": np.array([*view.frame, *view.box], np.int64)}
    return origin


class PredictionWriter(Callback):
    """One picture and one video of each video of the data set, in a folder of this prediction's own.

    Where the task reads whole videos piece by piece (`SlotTask.piece_frames`), they are `video<number>_<name>.png` and
    `.gif`, elsewhere `clip<index>_<name>.png`. With `save`, keys of `AXES`, an npz file of the same name holds the
    arrays. Only the first `num_pictured` videos have pictures.
    """

    def __init__(self, place: EvaluationPlace, save: Sequence[str] = (), num_pictured: int = 64) -> None:
        self._place, self._save, self._num_pictured = place, tuple(save), num_pictured
        self._seen = 0
        self._recording: Recording | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._place.enter(trainer)

    def on_predict_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        """A piece of a video is kept until the video is complete; a clip is shown at once."""
        outputs, batch, batch_idx, *_ = args
        dataset = _dataset(trainer)
        if isinstance(dataset, WholeVideos):
            self._piece(trainer, pl_module, outputs, batch, dataset, dataset.pieces[batch_idx])
            return
        for i in range(len(batch)):
            # clips that come from no loader of ours are numbered as they come
            index = self._seen if batch.index is None else int(batch.index[i])
            pictures, videos, arrays, origin = {}, {}, {}, {}
            if index < self._num_pictured:
                clip = batch.map(lambda value, i=i: value[i : i + 1])
                pictures, videos = made_by(pl_module, "pictures", clip), made_by(pl_module, "videos", clip)
            if self._save:
                arrays = _arrays_of_clip(outputs, i, self._save, type(pl_module).__name__)
                origin = _origin_of_clip(outputs, batch, i, len(arrays[self._save[0]]), dataset)
            length = max(map(len, videos.values()), default=0)
            self._write(trainer, clip_title(dataset, index), length, pictures, videos, arrays, origin)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, *args: Any, **kwargs: Any) -> None:
        self._forget()

    teardown = on_exception  # after a stop, too

    def _piece(
        self, trainer: Trainer, task: Any, outputs: Mapping[str, Any], batch: Any, videos: WholeVideos, piece: Piece
    ) -> None:
        pictured = piece.number < self._num_pictured
        if piece.start == 0 and (pictured or self._save):
            _arrays_of_clip(outputs, 0, self._save, type(task).__name__)  # refuses at once what the task does not give
            self._forget()
            hidden = self._place.media / f".video{piece.number:04d}"
            self._recording = task.recording(hidden, piece.length, self._save)
        if (recording := self._recording) is None:
            self._seen += piece.is_last
            return
        recording.add(batch, outputs)
        if piece.is_last:
            with torch.no_grad():
                pictures, shown = (recording.pictures(), recording.videos()) if pictured else ({}, {})
            arrays = recording.arrays(self._save) if self._save else {}
            origin = _origin(videos, piece.video, videos.frame_numbers(piece), videos.origin(piece))
            self._write(trainer, videos.title(piece), piece.length, pictures, shown, arrays, origin)
            self._forget()

    def _forget(self) -> None:
        if self._recording is not None:
            self._recording.close()
            self._recording = None

    def _write(self, trainer: Trainer, title: str, length: int, *made: Mapping[str, Any]) -> None:
        """Writes pictures, videos, and arrays with their origin, under the title."""
        pictures, videos, arrays, origin = made
        self._seen += 1
        for name, picture in pictures.items():
            write_image(self._place.media / file_name(title if len(pictures) == 1 else f"{title}_{name}"), picture)
        for name, frames in videos.items():
            write_video(self._place.media / file_name(title if len(videos) == 1 else f"{title}_{name}"), frames, length)
        if arrays:
            about = {"run": str(self._place.run), "checkpoint": str(trainer.ckpt_path)}
            _write_arrays(self._place.media / file_name(title), arrays, {**origin, "about": json.dumps(about)})


def _dataset(trainer: Trainer) -> Any:
    loaders: Any = trainer.predict_dataloaders
    return getattr(loaders[0] if isinstance(loaders, list | tuple) else loaders, "dataset", None)


def _origin_of_clip(outputs: Mapping[str, Any], batch: Any, i: int, length: int, dataset: Any) -> dict[str, Any]:
    """The numbers of the frames that the arrays are about, and the source of the clip."""
    steps = outputs["steps"][i] if "steps" in outputs else batch.time[i, -length:]
    first = int(batch.objects["first_frame"][i]) if "first_frame" in batch.objects else 0
    described = dataset if isinstance(dataset, DescribedClips) else DescribedClips()
    number = int(batch.objects["video"][i]) if "video" in batch.objects else None
    source = None if number is None else described.video_origin(number)
    if source is None:
        clip = i if batch.index is None else int(batch.index[i])
        number, source = None, f"{type(dataset).__name__ if dataset is not None else 'clips'}, clip {clip}"
    origin = _origin(dataset, number, first + described.frame_stride * steps.cpu().numpy(), source)
    return origin | ({"shown": outputs["shown"][i].cpu().numpy().astype(np.int64)} if "shown" in outputs else {})
