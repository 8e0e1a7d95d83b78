"""A data set of the user's own videos with depth."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from slotbench.data.base import Split
from slotbench.data.crops import check_crop
from slotbench.data.folders.frame_maps import DEPTH, VALID, FrameMaps, find_maps, resize_depth
from slotbench.data.folders.video_folder import FolderClips, VideoFolder
from slotbench.errors import DataFilesError

__all__ = ["DepthUnit", "DepthVideo"]

DepthUnit = Literal["metres", "centimetres", "millimetres"]
"""The unit of the numbers in the files."""

_METRES: dict[str, float] = {"metres": 1.0, "centimetres": 0.01, "millimetres": 0.001}


class DepthVideo(VideoFolder):
    """Videos in a folder as `VideoFolder` has them, with the depth of every frame in a folder `depth` beside them.

    `depth/walk.npz`, `depth/walk.npy` or a folder `depth/walk` of 16-bit PNGs or npy files is the depth of `walk.mp4`,
    with a map for each frame, of its size. Maps become square and smaller with the frames: a pixel takes the nearest
    depth that it covers. Masks of objects lie in `masks`, if there are any.

    Depth may be sparse. A pixel has none where its number is `invalid`, not finite or not above 0, or where the masks
    in a folder `depth_valid` are 0. `objects` has "depth" (batch time height width) in metres, 0 where there is none,
    and "depth_valid", which says where there is.

    Args:
        path: the folder, or one video with its depth beside it.
        unit: what the numbers in the files count: "metres", "centimetres", "millimetres", or how many metres one is.
        invalid: the number that stands for no depth, beside those that are none in any case.
        crop: the least share of the image that a random crop of a training clip keeps, enlarged to the size of all,
            as SAVi++ has it (0.75); 1 for whole images.
        options: see `VideoFolder`.
    """

    def __init__(
        self, path: str, unit: DepthUnit | float, invalid: float = 0.0, crop: float = 1.0, **options: Any
    ) -> None:
        super().__init__(path, **options)
        self.metres = _METRES[unit] if isinstance(unit, str) else float(unit)
        if not 0 < self.metres < math.inf:
            raise ValueError(f"unit is {unit}; expected how many metres the number 1 stands for, above 0")
        self.invalid = invalid
        self.crop, self.augment = check_crop(crop), None

    def stored_videos(self, split: Split) -> tuple[FolderClips, None]:
        """The videos of a split with their depth, all of them."""
        videos = self.found(split).videos
        depth = find_maps(videos, DEPTH)
        if depth is None:
            raise DataFilesError(f"there is no folder {videos[0].path.parent / DEPTH}; expected depth of every video")
        clips = _DepthClips(videos, self.masks(split), self.fit, self.stride)
        clips.depth, clips.valid = depth, find_maps(videos, VALID)
        clips.metres, clips.invalid = self.metres, self.invalid
        return clips, None


class _DepthClips(FolderClips):
    """Clips of videos in a folder with their depth."""

    depth: list[FrameMaps]
    valid: list[FrameMaps] | None
    metres: float
    invalid: float

    def clip(self, video: int, frames: range) -> dict[str, np.ndarray]:
        size = self.videos[video].size
        with np.errstate(over="ignore"):  # too large for float32 is infinite, which is no depth
            stored = self.depth[video].read(frames, size).astype(np.float32)
        valid = np.isfinite(stored) & (stored > 0) & (stored != np.float32(self.invalid))
        if self.valid is not None:
            valid &= self.valid[video].ids(frames, size) > 0
        depth, kept = resize_depth(self.fit.cut(stored), self.fit.cut(valid), self.fit.height, self.fit.width)
        return super().clip(video, frames) | {"depth": depth * np.float32(self.metres), "depth_valid": kept}
