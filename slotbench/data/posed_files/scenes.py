"""Clips of several posed cameras out of files: images of any size become frames, and focal lengths theirs."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from slotbench.data.clips import ClipReader
from slotbench.data.formats.images import Fit
from slotbench.errors import DataFilesError

__all__ = ["PosedFiles", "PosedImages", "check_matrices"]


@dataclass(frozen=True)
class PosedImages:
    """A clip as its files have it.

    Attributes:
        frames: of each camera, "time 3 rows columns", cropped and resized.
        size: height and width of the images in the files.
        masks: ids "time height width" of each camera, as they are stored; None where there are none.
        cameras: camera-to-world matrices "time views 4 4": right, up, backward.
        focal: in pixels of the images.
        objects: further entries of `objects`.
    """

    frames: list[np.ndarray]
    size: tuple[int, int]
    masks: list[np.ndarray] | None
    cameras: np.ndarray
    focal: float
    objects: dict[str, np.ndarray] = field(default_factory=dict)


class PosedFiles(ClipReader):
    """Clips of files, with all views of each; a subclass sets `lengths` and writes `posed`."""

    def __init__(self, height: int, width: int) -> None:
        self.fit = Fit(height, width, mode="crop" if height == width else "stretch")

    @abstractmethod
    def posed(self, video: int, frames: range) -> PosedImages:
        """Some frames of a video."""

    def clip(self, video: int, frames: range) -> dict[str, np.ndarray]:
        """The arrays of a clip."""
        found, fit = self.posed(video, frames), self.fit
        rows, columns = found.size
        if fit.mode == "stretch" and fit.height * columns != fit.width * rows:
            raise DataFilesError(
                f"{self.origin(video)} has images of {columns} x {rows} pixels, which do not become {fit.width} x "
                f"{fit.height} without being stretched: set a height and a width in the same ratio, or equal ones for "
                "the square in the middle"
            )
        scale = fit.height / min(rows, columns) if fit.mode == "crop" else fit.width / columns
        made = {
            "frames": np.stack(found.frames, axis=1),
            "cameras": found.cameras.astype(np.float32),
            "focal": np.array(found.focal * scale, np.float32),
        }
        if found.masks is not None:
            made["masks"] = np.stack([fit.masks(ids) for ids in found.masks], axis=1)
        return made | found.objects


def check_matrices(matrices: np.ndarray, path: Path) -> np.ndarray:
    """Checks that matrices "... 4 4" lead from a camera to the world."""
    values = matrices.astype(np.float64)
    rotation = values[..., :3, :3]
    unit = np.allclose(rotation @ np.swapaxes(rotation, -1, -2), np.eye(3), atol=1e-2)
    if not (np.isfinite(values).all() and np.allclose(values[..., 3, :], [0, 0, 0, 1], atol=1e-4) and unit):
        raise DataFilesError(
            f"{path} holds a matrix that leads from no camera to the world; expected a rotation and a centre, and 0 0 "
            "0 1 in the last row"
        )
    return values
