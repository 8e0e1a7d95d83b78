"""A data set of features that a frozen network has computed of videos, in HDF5 files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar, get_args

import h5py
import numpy as np
import torch

from slotbench.data.base import LoaderOptions, Split, check_counts
from slotbench.data.clips import ClipSource, StoredVideos
from slotbench.data.formats.hdf5 import DAMAGED_HDF5, HDF5OfProcess, one_line, opened_hdf5, plain_dataset
from slotbench.errors import DataFilesError
from slotbench.interfaces import DataSpec, VideoBatch, VideoSpec

__all__ = ["FeatureFile", "StoredFeatures"]

# what may be in a file, and the kinds of numbers that it may have
_FIELDS = {"features": "f", "frames": "u", "masks": "iu", "num_objects": "iu"}
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
        super().__init__(loader)
        check_counts(num_frames=num_frames, eval_frames=eval_frames, max_objects=max_objects)
        self.path = Path(path).expanduser()
        self.num_frames = num_frames
        self.eval_frames = eval_frames
        self.max_objects = max_objects

    @cached_property
    def spec(self) -> DataSpec:  # type: ignore[override]
        """Coloured frames in and out, and their features, in the sizes that the files have.

        Raises:
            DataFilesError: there is no file, or one that cannot be read.
        """
        for split in get_args(Split):
            if self.file(split).exists():
                return StoredFeatures(self.file(split)).spec
        what = "has none of them" if self.path.is_dir() else "does not exist"
        raise DataFilesError(f"no features: the folder {self.path} {what}; expected train.h5, val.h5 or test.h5")

    def file(self, split: Split) -> Path:
        """Where a split is."""
        return self.path / f"{split}.h5"

    def stored_videos(self, split: Split) -> tuple[StoredFeatures, np.ndarray | None]:
        """The videos of a split, and those of them that take part if not all do."""
        source = StoredFeatures(self.file(split))
        if source.spec != self.spec:
            raise DataFilesError(f"{source.path} holds {source.spec}, and the files beside it {self.spec}")
        return source, None if self.max_objects is None else np.flatnonzero(source.object_counts() <= self.max_objects)


class StoredFeatures(ClipSource):
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
        if not path.exists():
            raise DataFilesError(f"there is no file {path}; {_LAYOUT}")
        with opened_hdf5(path) as file:
            self._read_layout(file)

    def object_counts(self) -> np.ndarray:
        """How many objects each video has.

        Raises:
            DataFilesError: the file does not say.
        """
        if self._counts is None:
            raise DataFilesError(f"{self.path} has no num_objects, so videos cannot be passed over for their objects")
        return self._counts

    def read(self, videos: Sequence[int], starts: Sequence[int], num_frames: int) -> VideoBatch:
        """Clips, each with one read per field."""
        file, places = self._file.opened(), list(zip(videos, starts, strict=True))

        def cut(name: str) -> torch.Tensor:
            try:
                dataset = file[name]
                parts = [dataset[video, start : start + num_frames] for video, start in places]
            except DAMAGED_HDF5 as error:
                raise DataFilesError(
                    f"{self.path} is damaged: {name} of the videos {list(videos)} cannot be read ({one_line(error)})"
                ) from error
            return torch.from_numpy(np.stack(parts))

        objects = {"video": torch.tensor(videos), "first_frame": torch.tensor(starts)}
        if self._counts is not None:
            objects["num_objects"] = torch.from_numpy(self._counts[list(videos)]).long()
        tokens = cut("features")[:, :, int(self.has_class_token) :]
        return VideoBatch(
            frames=cut("frames"),
            time=torch.arange(num_frames).repeat(len(videos), 1),
            masks=cut("masks") if self.has_masks else None,
            # a view: what reads cells as tokens turns the axes back
            features=tokens.transpose(2, 3).unflatten(3, self.grid),
            objects=objects,
        )

    def _read_layout(self, file: h5py.File) -> None:
        found = {name: plain_dataset(file, name) for name in _FIELDS}
        shapes = {name: tuple(item.shape) for name, item in found.items() if item is not None}
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
        for name, kinds in _FIELDS.items():
            dtype = None if (item := found[name]) is None else item.dtype
            if dtype is not None and dtype.kind not in kinds:
                expected_type = "bytes" if name == "frames" else "floats" if name == "features" else "whole numbers"
                raise DataFilesError(f"{self.path} has {name} of type {dtype}, not {expected_type}; {_LAYOUT}")
        if (frames_of := found["frames"]) is not None and frames_of.dtype != np.uint8:
            raise DataFilesError(f"{self.path} has frames of type {frames_of.dtype}, not bytes; {_LAYOUT}")
        for name in ("features", "frames"):
            if (item := found[name]) is not None and math.prod(shapes[name][2:]) * item.dtype.itemsize > _MOST_BYTES:
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
