"""Bouncing balls in the HDF5 files of R-NEM."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import ClassVar, get_args

import numpy as np

from slotbench.data.base import LoaderOptions, Split
from slotbench.data.clips import ClipReader, StoredVideos
from slotbench.data.formats.hdf5 import HDF5File
from slotbench.errors import DataFilesError
from slotbench.interfaces import DataSpec

__all__ = ["BallFile", "StoredBalls"]

_GROUPS: Mapping[Split, str] = {"train": "training", "val": "validation", "test": "test"}
_LAYOUT = (
    "expected the groups training, validation and test, each with `features` (frames, clips, height, width, channels), "
    "values from 0 to 1, and perhaps `groups` of the same shape with one channel, the ball in each pixel from 1, and "
    "`positions` and `velocities` (frames, clips, balls, 2), as in balls4mass64.h5 of R-NEM"
)


class BallFile(StoredVideos):
    """Bouncing balls as R-NEM distributes them: one HDF5 file, time first, for video prediction.

    The files (balls4mass64.h5, balls678mass64.h5, balls3curtain64.h5) have 51 binary frames of 64 x 64 pixels per clip;
    nothing is downloaded. Training cuts a window out of every clip at random, evaluation takes the first frames.
    `masks` are there if the file has `groups`; `objects` has "video", the clip's number in its split, "first_frame",
    and, where the file has them by ball, "positions" and "velocities" in its own units. Masses are not in the file, so
    there are no oracles.

    Source: van Steenkiste, Chang, Greff, Schmidhuber, "Relational Neural Expectation Maximization", ICLR 2018, and the
    layout that its code reads; SlotSSM, section 7.1, uses these data.

    Args:
        path: the file.
        num_frames: frames of a training clip.
        eval_frames: frames of a validation or test clip (10 to look at and 20 to continue).
        stride: frames of the file from one frame to the next.
        loader: batches, workers, sizes, and the seed of the clips' order and of the cuts. Training goes through the
            clips again and again until there are `train_size`; `val_size` and `test_size` are upper bounds.
    """

    default_sizes: ClassVar[Mapping[Split, int]] = {"train": 100_000_000, "val": 1000, "test": 1000}

    def __init__(
        self,
        path: str,
        num_frames: int = 20,
        eval_frames: int | None = 30,
        stride: int = 1,
        loader: LoaderOptions = LoaderOptions(),
    ) -> None:
        super().__init__(loader, num_frames, eval_frames, stride)
        self.path = Path(path).expanduser()

    @cached_property
    def spec(self) -> DataSpec:  # type: ignore[override]
        """A frame in and a frame out, in the size that the file has."""
        file = HDF5File(self.path, _LAYOUT)
        there = [split for split in get_args(Split) if file.arrays({"features": 5}, f"{_GROUPS[split]}/")]
        return StoredBalls(self.path, there[0] if there else "train", self.stride).spec

    def stored_videos(self, split: Split) -> tuple[StoredBalls, None]:
        """The clips of a split."""
        return StoredBalls(self.path, split, self.stride), None


class StoredBalls(ClipReader):
    """The clips of one split of a file.

    Attributes:
        lengths: frames of each clip, all the same.
        spec: size of the frames.
    """

    def __init__(self, path: Path, split: Split, stride: int = 1) -> None:
        self.path, self.split, self.stride = path, split, stride
        self._file, group = HDF5File(path, _LAYOUT), _GROUPS[split]
        found = self._file.arrays({"features": 5, "groups": 5}, f"{group}/")
        shapes = {name: array.shape for name, array in found.items()}
        features = shapes.get("features", ())
        if not features or features[4] not in (1, 3) or shapes.get("groups", (*features[:4], 1)) != (*features[:4], 1):
            raise DataFilesError(f"{path} has {group} of shapes {shapes}; {_LAYOUT}")
        self._has_masks = "groups" in found
        # files differ in what they log; what is not by ball is left out
        self._logged = []
        for name in ("positions", "velocities"):
            shape = self._file.shape(f"{group}/{name}")
            if len(shape) == 4 and shape[:2] == features[:2] and shape[3] == 2:
                self._logged.append(name)
        self.lengths = np.full(features[1], (features[0] - 1) // stride + 1)
        self.spec = DataSpec.of_frames(features[4], features[2], features[3])

    def clip(self, video: int, frames: range) -> dict[str, np.ndarray]:
        """A clip, with one read per field."""
        index = (slice(frames[0], frames[-1] + 1, frames.step), video)

        def cut(name: str) -> np.ndarray:
            return self._file.read(f"{_GROUPS[self.split]}/{name}", index)

        found = {"frames": np.ascontiguousarray(_bytes(cut("features"), 255).transpose(0, 3, 1, 2))}
        if self._has_masks:
            found["masks"] = _bytes(cut("groups")[..., 0], 1)
        return found | {name: cut(name).astype(np.float32) for name in self._logged}


def _bytes(values: np.ndarray, scale: int) -> np.ndarray:
    """Values from 0 to 255 / scale, times scale, as bytes; values outside are clipped, and NaN is 0."""
    return (np.nan_to_num(values.astype(np.float64)).clip(0, 255 / scale) * scale).round().astype(np.uint8)
