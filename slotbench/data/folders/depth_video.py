"""A data set of the user's own videos with depth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal, get_args

import numpy as np

from slotbench.data.base import LoaderOptions, Split
from slotbench.data.crops import check_crop
from slotbench.data.folders.depth_files import DEPTH, VALID, check_inside, depth_values, find_depth, resize_depth
from slotbench.data.folders.frame_maps import FrameMaps, name_of
from slotbench.data.folders.mask_files import MASKS, find_masks, mask_ids
from slotbench.data.folders.names import folder_named
from slotbench.data.folders.video_folder import FolderClips, VideoFolder
from slotbench.data.formats.images import middle_square

__all__ = ["DepthUnit", "DepthVideo"]

DepthUnit = Literal["metres", "centimetres", "millimetres"]
"""The unit of the numbers in the files."""

_METRES: dict[str, float] = {"metres": 1.0, "centimetres": 0.01, "millimetres": 0.001}


class DepthVideo(VideoFolder):
    """Videos in a folder as `VideoFolder` has them, with the depth of every frame in a folder `depth` beside them.

    `depth/walk.npz`, `depth/walk.npy` or a folder `depth/walk` of 16-bit PNGs or npy files is the depth of `walk.mp4`
    (`slotbench.data.folders.depth_files`), with a map for each frame, of its size. Maps are cropped and made smaller
    with the frames: a pixel takes the nearest depth that it covers. Masks of objects lie in `masks`, if there are any.

    Depth may be sparse. A pixel has none where its number is `invalid`, not finite or not above 0, or where the masks
    in a folder `depth_valid` are 0. `objects` has "depth" (batch time height width) in metres, 0 where there is none,
    and "depth_valid", which says where there is.

    Files are read without running anything in them, and through no link that leads out of the folder of the videos.

    Args:
        path: the folder, or one video with its depth beside it.
        unit: what the numbers in the files count: "metres", "centimetres", "millimetres", or how many metres one is.
        invalid: the number that stands for no depth, beside those that are none in any case.
        num_frames: frames of a training clip.
        eval_frames: frames of a validation, test or prediction clip; null for whole videos, if all are equally long.
        resolution: pixels per side.
        stride: reads every `stride`-th frame.
        channels: 3, or 1 for frames in grey.
        crop: the least share of the image that a random crop of a training clip keeps, enlarged to the size of all,
            as SAVi++ has it (0.75); 1 for whole images.
        loader: see `VideoFolder`.

    Raises:
        ValueError: for arguments that cannot be; when clips are asked for, as a `DataFilesError`, where there is no
            video, one without depth, or one that cannot be read.
    """

    maps: ClassVar[Sequence[str]] = (MASKS, DEPTH, VALID)

    def __init__(
        self,
        path: str,
        unit: DepthUnit | float,
        invalid: float = 0.0,
        num_frames: int = 6,
        eval_frames: int | None = 24,
        resolution: int = 64,
        stride: int = 1,
        channels: int = 3,
        crop: float = 1.0,
        loader: LoaderOptions = LoaderOptions(val_batch_size=4),
    ) -> None:
        super().__init__(path, num_frames, eval_frames, resolution, stride, channels, loader)
        if isinstance(unit, str) and unit not in _METRES:
            raise ValueError(f"no unit named {unit!r}; choose one of {', '.join(get_args(DepthUnit))}, or give metres")
        self.metres = _METRES[unit] if isinstance(unit, str) else float(unit)
        if not 0 < self.metres < math.inf:
            raise ValueError(f"unit is {unit}; expected how many metres the number 1 stands for, above 0")
        self.invalid = invalid
        self.crop = check_crop(crop)

    def stored_videos(self, split: Split) -> tuple[FolderClips, None]:
        """The videos of a split with their depth, all of them."""
        videos = self.found(split).videos
        for video in videos:
            root, endings = video.path.parent, ("", ".npz", ".npy")
            folders = [folder_named(root, folder) for folder in self.maps]
            beside = [folder / f"{name_of(video)}{end}" for folder in folders for end in endings]
            for place in (video.path, *beside):
                check_inside(root, place)
        clips = _DepthClips(videos, find_masks(videos), self.resolution, self.stride, self.channels)
        return clips.with_depth(find_depth(videos), find_masks(videos, VALID), self.metres, self.invalid), None


class _DepthClips(FolderClips):
    """Clips of videos in a folder with their depth."""

    def with_depth(
        self, depth: list[FrameMaps], valid: list[FrameMaps] | None, metres: float, invalid: float
    ) -> _DepthClips:
        """These clips with the depth of each video and the masks of valid depth."""
        self.depth, self.valid, self.metres, self.invalid = depth, valid, metres, invalid
        return self

    def beside(self, video: int, frames: range, size: tuple[int, ...]) -> dict[str, np.ndarray]:
        """The depth of these frames in metres, and where there is some."""
        stored = depth_values(self.depth[video], frames, size)
        valid = np.isfinite(stored) & (stored > 0) & (stored != np.float32(self.invalid))
        if self.valid is not None:
            valid &= mask_ids(self.valid[video], frames, size) > 0
        depth, kept = resize_depth(middle_square(stored), middle_square(valid), self.resolution)
        return {"depth": depth * np.float32(self.metres), "depth_valid": kept}
