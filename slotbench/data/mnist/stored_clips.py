"""The published test clips of Moving-MNIST, from a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from slotbench.data.base import ClipDataset
from slotbench.errors import DataFilesError, FileError
from slotbench.interfaces import VideoBatch
from slotbench.io import map_npy

__all__ = ["StoredClips"]

_EXPECTED = (
    "expected mnist_test_seq.npy, an npy file of uint8 values, frames x clips x height x width (20 x 10000 x 64 x 64)"
)


class StoredClips(ClipDataset):
    """Clips of an npy file with an axis of time before that of clips, read on demand.

    Args:
        path: the file.
        size: clips at most.
        num_frames: frames of a clip, the first of the file's.
        resolution: pixels per side that the frames must have.

    Raises:
        DataFilesError: it is not there, or not what is expected.
    """

    def __init__(self, path: str, size: int, num_frames: int, resolution: int) -> None:
        self.path = Path(path).expanduser()
        self.num_frames = num_frames
        try:
            values = map_npy(self.path)
        except FileError as error:
            raise DataFilesError(f"{error}; {_EXPECTED}") from error
        if values.ndim != 4 or values.dtype != np.uint8 or not values.size:
            raise DataFilesError(f"{self.path} holds {values.dtype} values of shape {values.shape}; {_EXPECTED}")
        if values.shape[2:] != (resolution, resolution):
            raise DataFilesError(
                f"{self.path} has frames of {values.shape[2]} x {values.shape[3]} pixels and resolution is "
                f"{resolution}: set data.resolution to theirs, which must be square"
            )
        if num_frames > len(values):
            raise DataFilesError(
                f"{self.path} has clips of {len(values)} frames and eval_frames is {num_frames}: set data.eval_frames "
                f"to {len(values)} or less"
            )
        super().__init__(min(size, values.shape[1]))

    def clips(self, indices: Sequence[int]) -> VideoBatch:
        """The clips of these indices."""
        # mapped anew, so that nothing that is open goes into a worker
        frames = np.stack([map_npy(self.path)[: self.num_frames, index] for index in indices])
        return VideoBatch(
            frames=torch.from_numpy(frames)[:, :, None],
            time=torch.arange(self.num_frames).repeat(len(indices), 1),
        )
