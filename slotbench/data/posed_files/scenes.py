"""Clips of several posed cameras out of files: images of any size become frames, and focal lengths theirs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from slotbench.data.clips import ClipReader
from slotbench.data.formats.images import middle_square, resize_bilinear, resize_nearest, square_frame
from slotbench.errors import DataFilesError, FileError
from slotbench.interfaces import VideoBatch

__all__ = ["PosedFiles", "PosedImages", "check_matrices"]

_MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class PosedImages:
    """A clip as its files have it.

    Attributes:
        images: by camera and then by step, "height width 3" in bytes, all of one size.
        masks: ids "time height width" by camera; None where there are none.
        cameras: camera-to-world matrices "time views 4 4": right, up, backward.
        focal: in pixels of the images.
        objects: further entries of `objects`.
    """

    images: Sequence[Sequence[np.ndarray]]
    masks: Sequence[np.ndarray] | None
    cameras: np.ndarray
    focal: float
    objects: dict[str, np.ndarray] = field(default_factory=dict)


class PosedFiles(ClipReader):
    """Clips of files, with all views of each; a subclass sets `lengths` and `num_cameras`, and writes `posed`.

    Args:
        height: rows of pixels of a frame.
        width: columns; where there are as many as rows, the square in the middle of an image is taken, else all of it.
    """

    num_cameras: int

    def __init__(self, height: int, width: int) -> None:
        self.height, self.width = height, width

    @abstractmethod
    def posed(self, video: int, frames: range) -> PosedImages:
        """Some frames of a video.

        Raises:
            DataFilesError: they are missing, or not what they should be.
        """

    def name(self, video: int, start: int) -> str | None:
        """That of the video; videos that are cut into clips say which one, too."""
        return self.video_name(video)

    def read(self, videos: Sequence[int], starts: Sequence[int], num_frames: int) -> VideoBatch:
        """Clips, if they are not too long to be meant."""
        if num_frames * self.num_cameras * 3 * self.height * self.width > _MOST_BYTES:
            raise DataFilesError(
                f"a clip of {num_frames:,} frames of {self.num_cameras} cameras takes more than {_MOST_BYTES >> 20} "
                f"MiB at {self.height} x {self.width} pixels: set num_frames or eval_frames to fewer"
            )
        return super().read(videos, starts, num_frames)

    def clip(self, video: int, frames: range) -> dict[str, np.ndarray]:
        """The arrays of a clip."""
        try:
            found = self.posed(video, frames)
        except FileError as error:
            raise error if isinstance(error, DataFilesError) else DataFilesError(str(error)) from error
        rows, columns = found.images[0][0].shape[:2]
        for view in found.images:
            for image in view:
                if image.shape[:2] != (rows, columns):
                    raise DataFilesError(
                        f"{self.origin(video)} has images of {image.shape[1]} x {image.shape[0]} and of {columns} x "
                        f"{rows} pixels; expected one size"
                    )
        square = self.height == self.width
        if not square and self.height * columns != self.width * rows:
            raise DataFilesError(
                f"{self.origin(video)} has images of {columns} x {rows} pixels, which do not become {self.width} x "
                f"{self.height} without being stretched: set a height and a width in the same ratio, or equal ones for "
                "the square in the middle"
            )
        made = {
            "frames": np.stack([[self._frame(image) for image in view] for view in found.images], axis=1),
            "cameras": found.cameras.astype(np.float32),
            "focal": np.array(found.focal * (self.height / min(rows, columns) if square else self.width / columns),
                              np.float32),
        }  # fmt: skip
        if found.masks is not None:
            ids = np.stack(found.masks, axis=1)
            if ids.shape[2:] != (rows, columns):
                raise DataFilesError(
                    f"{self.origin(video)} has masks of {ids.shape[3]} x {ids.shape[2]} pixels, and images of "
                    f"{columns} x {rows}; expected the same"
                )
            made["masks"] = resize_nearest(middle_square(ids) if square else ids, self.height, self.width)
        return made | found.objects

    def _frame(self, image: np.ndarray) -> np.ndarray:
        if self.height == self.width:
            return square_frame(image, self.height)
        pixels = torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))[None]
        return resize_bilinear(pixels, self.height, self.width)[0].numpy()


def check_matrices(matrices: np.ndarray, path: Path) -> np.ndarray:
    """Checks that matrices "... 4 4" lead from a camera to the world.

    Raises:
        DataFilesError: they have other numbers in their last row or no rotation before it.
    """
    values = matrices.astype(np.float64)
    rotation = values[..., :3, :3]
    unit = np.allclose(rotation @ np.swapaxes(rotation, -1, -2), np.eye(3), atol=1e-2)
    if not (np.isfinite(values).all() and np.allclose(values[..., 3, :], [0, 0, 0, 1], atol=1e-4) and unit):
        raise DataFilesError(
            f"{path} holds a matrix that leads from no camera to the world; expected a rotation and a centre, and 0 0 "
            "0 1 in the last row"
        )
    return values
