"""Writing the features of a data set's videos to the files that `FeatureFile` reads."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

import h5py
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from slotbench.checksums import SUMS, add_sums, file_digest, read_sums
from slotbench.data.base import SlotDataModule, Split
from slotbench.data.clips import ClipSource, CutClips
from slotbench.data.features.feature_file import StoredFeatures
from slotbench.data.formats.hdf5 import one_line, opened_hdf5, plain_datasets
from slotbench.data.formats.images import resize_nearest
from slotbench.data.preparing import Marks, Report, as_marks, in_order, processes_for, sole_writer
from slotbench.errors import DataFilesError
from slotbench.files import write_atomically
from slotbench.interfaces import VideoBatch, VideoSpec
from slotbench.records import Whole, read_record

__all__ = ["write_features"]

_FIELDS = ("features", "frames", "masks", "num_objects")
_WORTH_READING_ELSEWHERE = 16  # videos; most of the time is the network's


def write_features(
    data: SlotDataModule,
    extract: Callable[[Tensor], Tensor],
    spec: VideoSpec,
    resolution: int,
    out: Path,
    description: dict[str, Any],
    splits: Iterable[Split] = get_args(Split),
    report: Report | None = None,
    jobs: int | None = None,
) -> None:
    """Writes train.h5, val.h5 and test.h5, or resumes where an earlier call was interrupted.

    Args:
        data: where the videos are from: a data set that cuts clips out of stored videos.
        extract: makes the features "time channels rows cols" of frames "time channels height width" in [0, 1].
        spec: their sizes.
        resolution: pixels per side of the frames (bicubic, no anti-aliasing) and masks (nearest) that are written.
        out: the folder.
        description: content and origin of the features, in JSON's types; files of another one are not touched.
        splits: those to write; of these, the ones that the data set does not have are left out.
        report: called with the split, the number of its videos written, and their total.
        jobs: processes that read the videos; None for as many as the machine has.

    Raises:
        DataFilesError: the data set has none of the splits, no stored videos, or videos of different lengths; `out`
            holds something else.
    """
    found, refusal = {}, None
    for split in splits:
        try:
            found[split] = data.dataset(split)
        except DataFilesError as error:
            refusal = error
    if not found:
        raise refusal or DataFilesError("no split is named; expected some of train, val and test")
    with sole_writer(out):
        for split, clips in found.items():
            if not isinstance(clips, CutClips):
                raise DataFilesError(
                    f"{type(data).__name__} makes its clips as they are asked for; features are computed once for a "
                    "data set of stored videos, such as MOVi"
                )
            writer = _Writer(out, split, clips, description, resolution)
            writer.write(extract, spec, report or (lambda what, done, total: None), jobs)


@dataclass(frozen=True)
class _Progress:
    """How far a file has come, `SPLIT.progress.json`."""

    videos: Whole
    source: str
    marks: list[Any] | None = None


class _Writer:
    """One split: written to a file of its own, which gets its name when it is complete."""

    def __init__(self, out: Path, split: Split, clips: CutClips, description: dict[str, Any], resolution: int) -> None:
        self.split, self.videos, self.source, self.resolution = split, clips.videos, clips.source, resolution
        lengths = self.source.lengths[self.videos]
        if lengths.min() != lengths.max():
            raise DataFilesError(
                f"the videos of the {split} split have {lengths.min()} to {lengths.max()} frames; features are kept "
                "for videos of one length"
            )
        self.length = int(lengths[0])
        self.complete, self.partial = out / f"{split}.h5", out / f"{split}.h5.part"
        self.progress, self._sums = out / f"{split}.progress.json", out / SUMS
        self.description = json.dumps(description | {"split": split, "videos": len(self.videos)}, sort_keys=True)
        self._marks = Marks()

    def write(self, extract: Callable[[Tensor], Tensor], spec: VideoSpec, report: Report, jobs: int | None) -> None:
        total = len(self.videos)
        done = self._done()
        report(self.split, done, total)
        jobs = processes_for(jobs, (total - done) // _WORTH_READING_ELSEWHERE)
        read = partial(_whole, self.source, self.length)
        for number, batch in enumerate(in_order(read, map(int, self.videos[done:]), jobs), start=done):
            features = extract(batch.frames[0].float() / 255)
            try:
                if not number:
                    self.partial.unlink(missing_ok=True)  # of a link, what it leads to stays as it is
                with h5py.File(self.partial, "a" if number else "x") as file:
                    if not number:
                        self._lay_out(file, spec, batch)
                    self._put(file, number, features, batch)
                # only now, so that what it says is written has been
                self._marks.set(number + 1)
                state = _Progress(number + 1, self.description, self._marks.stored())
                write_atomically(self.progress, json.dumps(asdict(state)))
            except (OSError, RuntimeError) as error:
                raise DataFilesError(
                    f"{self.partial} cannot be written ({one_line(error)}): the same command resumes from there"
                ) from error
            report(self.split, number + 1, total)
        if not self.complete.is_file():
            StoredFeatures(self.partial)
            os.replace(self.partial, self.complete)
        if self.complete.name not in (read_sums(self.complete.parent) if self._sums.is_file() else {}):
            add_sums(self.complete.parent, {self.complete.name: file_digest(self.complete)})
        self.progress.unlink(missing_ok=True)

    def _done(self) -> int:
        """Videos that have been written and are on the disk as they were."""
        if self.complete.is_file():
            StoredFeatures(self.complete)
            with opened_hdf5(self.complete) as file:
                self._check_source(self.complete, str(file.attrs.get("source")))
            return len(self.videos)
        if not (self.partial.is_file() and self.progress.is_file()):
            return 0
        state = read_record(self.progress, _Progress, advice="delete it and prepare the features anew")
        self._check_source(self.partial, state.source)
        self._marks = as_marks(state.marks)
        return self._marks.resume(self._written, state.videos, self.partial)

    def _written(self, start: int, stop: int) -> Iterator[tuple[str, bytes]]:
        """The content of the partial file, of the videos from one number to another."""
        with opened_hdf5(self.partial) as file:
            for name, dataset in plain_datasets(file, _FIELDS).items():
                for video in range(start, stop):
                    yield name, np.asarray(dataset[video]).tobytes()

    def _check_source(self, path: Path, source: str) -> None:
        if source != self.description:
            raise DataFilesError(
                f"{path} holds features of something else: {source}, and {self.description} is asked for; name another "
                "folder, or delete that file"
            )

    def _lay_out(self, file: h5py.File, spec: VideoSpec, batch: VideoBatch) -> None:
        videos = (len(self.videos), self.length)
        side, tokens = self.resolution, spec.height * spec.width
        # whole arrays, not chunks: any run of frames is one stretch of the file
        file.create_dataset("features", (*videos, tokens, spec.channels), np.float16)
        file.create_dataset("frames", (*videos, batch.frames.shape[2], side, side), np.uint8)
        if batch.masks is not None:
            file.create_dataset("masks", (*videos, side, side), np.uint8)
        if "num_objects" in batch.objects:
            file.create_dataset("num_objects", videos[:1], np.int64)
        file.attrs["grid"] = (spec.height, spec.width)
        file.attrs["has_class_token"] = False
        file.attrs["source"] = self.description

    def _put(self, file: h5py.File, number: int, features: Tensor, batch: VideoBatch) -> None:
        values: dict[str, np.ndarray] = {
            "features": features.flatten(2).transpose(1, 2).half().numpy(),
            "frames": _resized(batch.frames[0], self.resolution).numpy().astype(np.uint8),
        }
        if batch.masks is not None:
            masks = resize_nearest(batch.masks[0].numpy(), self.resolution, self.resolution)
            values["masks"] = masks.astype(np.uint8)
        if "num_objects" in batch.objects:
            values["num_objects"] = np.array(int(batch.objects["num_objects"]), np.int64)
        for name, value in values.items():
            file[name][number] = value
            self._marks.update(name, value.tobytes())


def _whole(source: ClipSource, length: int, video: int) -> VideoBatch:
    return source.read([video], [0], length)


def _resized(frames: Tensor, side: int) -> Tensor:
    if frames.shape[-2:] == (side, side):
        return frames
    resized = F.interpolate(frames.float(), size=(side, side), mode="bicubic", align_corners=False)
    return resized.round_().clamp_(0, 255).to(torch.uint8)
