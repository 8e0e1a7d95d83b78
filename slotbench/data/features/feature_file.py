"""A data set of features that a frozen network has computed of videos, in HDF5 files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import h5py
import numpy as np

from slotbench.data.base import LoaderOptions, Split, check_counts
from slotbench.data.clips import ClipReader, StoredVideos, check_alike, first_file
from slotbench.data.formats.hdf5 import HDF5OfProcess, opened_hdf5, plain_datasets
from slotbench.errors import DataFilesError
from slotbench.interfaces import DataSpec, VideoSpec

__all__ = ["FeatureFile", "StoredFeatures"]

# what may be in a file, the kinds of numbers that it may have, and these in words
_FIELDS = {
    "features": ("f", "floats"),
    "frames": ("u", "bytes"),
    "masks": ("iu", "whole numbers"),
    "num_objects": ("iu", "whole numbers"),
}
_MOST_FRAMES = 1 << 24
_MOST_BYTES = 1 << 28  # of a frame
_MOST_CELLS = 1 << 12  # along a side of the grid

_LAYOUT = (
    "expected `features` (videos, frames, tokens, width) in float16, `frames` (videos, frames, 3, height, width) in "
    "bytes, perhaps `masks` (videos, frames, height, width) and `num_objects` (videos), and the attributes grid (rows, "
    "columns) and has_class_token; `slotbench prepare NAME --features DINOFeatures` writes such files"
)


class FeatureFile(StoredVideos):
    """Features of videos with the frames and masks that they belong to, one HDF5 file per split.

    `path` is a folder of train.h5, val.h5 and test.h5, of which those are needed that are used. They are written by
    `slotbench prepare NAME --features DINOFeatures ...` from any data set of stored videos; docs/dinosaur.md says what
    is in them, so that they can be written elsewhere too. Files are opened by each process that reads, when it reads.

    A batch has `features` (float16) beside `frames` and `masks`, and in `objects` "video", the number of the video in
    its file, "first_frame", and "num_objects" if the file has it. With clips of one frame, the default, the frames of
    all videos are independent images: training takes one at random from every video, pass after pass, and evaluation
    a random subset of all, the same for every seed.

    Source: Krimmel et al., TMLR 2024, Appendix F (MOVi-C; MOVi-C6 is max_objects=6, and 1,280 images are scored).

    Args:
        path: the folder.
        num_frames: frames of a training clip.
        eval_frames: frames of a validation or test clip; null for whole videos.
        max_objects: passes over videos of more objects; null takes all.
        loader: batches, workers, sizes, and the seed of the videos' order and of the cuts. Training goes through the
            videos again and again until there are `train_size` clips; `val_size` and `test_size` are upper bounds.

    Raises:
        ValueError: for arguments that cannot be; when sizes or clips are asked for, as a `DataFilesError`, where the
            files are missing or not what they should be.
    """

    default_sizes: ClassVar[Mapping[Split, int]] = {"train": 100_000_000, "val": 100_000, "test": 100_000}

    def __init__(
        self,
        path: str,
        num_frames: int = 1,
        eval_frames: int | None = 1,
        max_objects: int | None = None,
        loader: LoaderOptions = LoaderOptions(batch_size=64),
    ) -> None:
        super().__init__(loader, num_frames, eval_frames)
        check_counts(max_objects=max_objects)
        self.path = Path(path).expanduser()
        self.max_objects = max_objects

    @cached_property
    def spec(self) -> DataSpec:  # type: ignore[override]
        """Coloured frames in and out, and their features, in the sizes that the files have.

        Raises:
            DataFilesError: there is no file, or one that cannot be read.
        """
        return StoredFeatures(first_file(self.path, "features", self.file, _LAYOUT)).spec

    def file(self, split: Split) -> Path:
        """Where a split is."""
        return self.path / f"{split}.h5"

    def stored_videos(self, split: Split) -> tuple[StoredFeatures, np.ndarray | None]:
        """The videos of a split, and those of them that take part if not all do."""
        source = StoredFeatures(self.file(split))
        check_alike(source.path, source.spec, self.spec)
        return source, None if self.max_objects is None else np.flatnonzero(source.object_counts() <= self.max_objects)


class StoredFeatures(ClipReader):
    """The videos of one file.

    Args:
        path: the file.

    Attributes:
        lengths: frames of each video, all the same.
        spec: sizes of the frames and of their features.

    Raises:
        DataFilesError: it is not there, or not what it should be.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = HDF5OfProcess(path)
        with opened_hdf5(path, _LAYOUT) as file:
            self._read_layout(file)

    def object_counts(self) -> np.ndarray:
        """How many objects each video has.

        Raises:
            DataFilesError: the file does not say.
        """
        if self._counts is None:
            raise DataFilesError(f"{self.path} has no num_objects, so videos cannot be passed over for their objects")
        return self._counts

    def clip(self, video: int, frames: range) -> dict[str, np.ndarray]:
        """A clip, with one read per field."""
        index = (video, slice(frames.start, frames.stop))
        names = ("features", "frames", "masks") if self.has_masks else ("features", "frames")
        found = {name: self._file.read(name, index, f"the video {video}") for name in names}
        tokens = found["features"][:, int(self.has_class_token) :]
        # a view: what reads cells as tokens turns the axes back
        found["features"] = tokens.swapaxes(1, 2).reshape(len(frames), -1, *self.grid)
        if self._counts is not None:
            found["num_objects"] = self._counts[video].astype(np.int64)
        return found

    def _read_layout(self, file: h5py.File) -> None:
        found = plain_datasets(file, _FIELDS)
        shapes = {name: tuple(item.shape) for name, item in found.items()}
        missing = [name for name in ("features", "frames") if name not in shapes]
        missing += [name for name in ("grid", "has_class_token") if name not in file.attrs]
        if missing:
            raise DataFilesError(f"{self.path} has no {', '.join(missing)}; {_LAYOUT}")
        grid = np.asarray(file.attrs["grid"])
        if grid.shape != (2,) or grid.dtype.kind not in "iu" or grid.min() < 1 or grid.max() > _MOST_CELLS:
            raise DataFilesError(f"{self.path} has the grid {str(grid)[:60]}; expected rows and columns; {_LAYOUT}")
        self.grid = (int(grid[0]), int(grid[1]))
        class_token = np.asarray(file.attrs["has_class_token"])
        if class_token.shape != () or class_token.dtype.kind not in "biu":
            raise DataFilesError(f"{self.path} does not say whether it has a class token; {_LAYOUT}")
        self.has_class_token = bool(class_token)
        self.has_masks = "masks" in shapes
        features, frames = shapes["features"], shapes["frames"]
        rows, cols = self.grid
        expected = {"features": (*features[:2], rows * cols + int(self.has_class_token), *features[3:4])}
        expected |= {"frames": (*features[:2], 3, *frames[3:5]), "num_objects": features[:1]}
        expected |= {"masks": (*features[:2], *frames[3:5])}
        for name, axes in {"features": 4, "frames": 5, "masks": 4, "num_objects": 1}.items():
            if name in shapes and (len(shapes[name]) != axes or shapes[name] != expected[name]):
                raise DataFilesError(
                    f"{self.path} has {name} of shape {shapes[name]}, which does not fit features of shape {features} "
                    f"on a grid of {rows} x {cols} {'with' if self.has_class_token else 'without'} a class token; "
                    f"{_LAYOUT}"
                )
        for name, dataset in found.items():
            kinds, called = _FIELDS[name]
            if dataset.dtype.kind not in kinds or (name == "frames" and dataset.dtype != np.uint8):
                raise DataFilesError(f"{self.path} has {name} of type {dataset.dtype}, not {called}; {_LAYOUT}")
        for name in ("features", "frames"):
            if math.prod(shapes[name][2:]) * found[name].dtype.itemsize > _MOST_BYTES:
                raise DataFilesError(
                    f"{self.path} has {name} of shape {shapes[name]}, too large to be meant; {_LAYOUT}"
                )
        if not all(features) or not all(frames) or features[0] * features[1] > _MOST_FRAMES:
            raise DataFilesError(
                f"{self.path} has features of shape {features} and frames of shape {frames}; {_LAYOUT}"
            )
        self._counts: np.ndarray | None = file["num_objects"][:] if "num_objects" in shapes else None
        self.lengths = np.full(features[0], features[1])
        frame = VideoSpec(channels=3, height=frames[3], width=frames[4])
        self.spec = DataSpec(input=frame, target=frame, features=VideoSpec(features[3], rows, cols))
