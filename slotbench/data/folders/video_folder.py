"""A data set of the user's own videos, with or without masks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol, get_args

import numpy as np
from lightning.pytorch.utilities import rank_zero_warn

from slotbench.data.augmentation import Augmentation
from slotbench.data.base import LoaderOptions, Split
from slotbench.data.clips import ClipReader, StoredVideos
from slotbench.data.folders.found_videos import FoundVideos, find_videos, has_splits, reading_of
from slotbench.data.folders.frame_maps import MASKS, FrameMaps, find_maps, name_of
from slotbench.data.folders.video_files import VideoFile
from slotbench.data.formats.images import Fit, Fitting, Resolution, sides
from slotbench.data.reading_order import ResumableLoader
from slotbench.errors import DataFilesError
from slotbench.interfaces import View

__all__ = ["FolderClips", "VideoFolder", "VideoMasks"]

_USUALLY_VOID = 255


class VideoFolder(StoredVideos):
    """Videos in a folder: movies (PyAV reads them), GIFs, numpy arrays, folders of images, and mixtures of these.

    Each is cropped as `fit` says, resized with anti-aliasing, and cut into clips: at random in training, one after the
    other in evaluation. Movies are decoded once, and kept at `resolution` in the user's cache folder.
    Subfolders train, val and test are the splits; without any of them every split has all videos, and a warning says
    that the scores are then those of training videos.

    Masks lie in a folder `masks` beside the videos (`slotbench.data.folders.frame_maps`): `masks/walk.npz` or a folder
    of images `masks/walk` for `walk.mp4`. They are cropped with the frames, ids unchanged, and segmentations are
    scored against them. `objects` has "video", the number of the video in the order of their names, and "first_frame".

    Args:
        path: the folder, or one movie, GIF, array or folder of images.
        channels: 3, or 1 for frames in grey.
        resolution: pixels per side, or [height, width].
        fit: "crop" takes the largest box of the resolution's proportions in the middle of a frame, "stretch" all of it
            in other proportions, and "letterbox" all of it between black bars, which are background in masks and have
            no depth.
        void: ids in the masks whose pixels count nowhere, such as 255 in sets like DAVIS; they become -1.
        augment: how training clips are changed at random: `crop`, `flip` and `colour`; by default they are not.
    """

    def __init__(
        self,
        path: str,
        num_frames: int = 6,
        eval_frames: int | None = 24,
        resolution: Resolution = 64,
        stride: int = 1,
        channels: Literal[1, 3] = 3,
        loader: LoaderOptions = LoaderOptions(val_batch_size=4),
        void: Sequence[int] = (),
        fit: Fitting = "crop",
        augment: Augmentation = Augmentation(),
    ) -> None:
        super().__init__(loader, num_frames, eval_frames, stride)
        self.augment = augment
        self.path = Path(path).expanduser()
        self.channels = channels
        self.resolution = resolution
        self.fit = Fit(*sides(resolution), channels, fit)
        self.void = tuple(void)
        self._found: dict[Split, FoundVideos] = {}
        self._masks: dict[Split, list[FrameMaps] | None] = {}

    def stored_videos(self, split: Split) -> tuple[FolderClips, None]:
        """The videos of a split, all of them."""
        return FolderClips(self.found(split).videos, self.masks(split), self.fit, self.stride), None

    def found(self, split: Split) -> FoundVideos:
        """The videos of a split, and what was left out; looked for once."""
        if split not in self._found:
            self._found[split] = find_videos(self.path, split, self.fit)
        return self._found[split]

    def masks(self, split: Split) -> list[FrameMaps] | None:
        """The masks of a split's videos, if there are any; looked for once."""
        if split not in self._masks:
            self._masks[split] = find_maps(self.found(split).videos, MASKS, self.void)
        return self._masks[split]

    def reading(self, splits: Sequence[Split] = get_args(Split)) -> str:
        """Two lines: the videos of these splits, as far as they have any; what was left out, and why."""
        found: dict[str, FoundVideos] = {}
        refused: DataFilesError | None = None
        maps: dict[Path, FrameMaps] = {}
        for split in splits:
            try:
                found[split] = self.found(split)
                maps |= {one.path: one for one in self.masks(split) or ()}
            except DataFilesError as error:  # of one split, it is an error of whoever reads that
                refused = refused or error
        if refused and not found:
            raise refused
        clips = {split: self.num_frames if split == "train" else self.eval_frames for split in found}
        first, second = reading_of(self.path, found, clips, self.stride)
        looked_at = list(maps.values())[:: -(-len(maps) // 50) or 1]
        if _USUALLY_VOID not in self.void and any(one.hold(_USUALLY_VOID) for one in looked_at):
            first += f", in which id {_USUALLY_VOID} is taken for an object (or type --data.void [{_USUALLY_VOID}])"
        return f"{first}\n{second}"

    def _loader(self, split: Split, batch_size: int, one_per_video: bool = False) -> ResumableLoader:
        if split != "train" and not one_per_video and not has_splits(self.path):
            rank_zero_warn(
                f"{self.path} has no folders train, val and test, so that training, validation and test have the same "
                "videos: their scores do not say how a model that was trained on them does on others. Move some videos "
                f"to {self.path / 'val'}, and the rest to {self.path / 'train'}."
            )
        return super()._loader(split, batch_size, one_per_video)


class VideoMasks(Protocol):
    """The masks of a video."""

    def ids(self, numbers: Sequence[int], size: tuple[int, int]) -> np.ndarray:
        """Ids "time height width" of these frames, of this size; -1 counts nowhere."""


class FolderClips(ClipReader):
    """Clips of videos in a folder, cropped and resized."""

    def __init__(
        self, videos: Sequence[VideoFile], masks: Sequence[VideoMasks] | None, fit: Fit, stride: int = 1
    ) -> None:
        self.videos, self.masks, self.fit, self.stride = videos, masks, fit, stride
        self.lengths = np.array([-(-video.length // stride) for video in videos])

    def clip(self, video: int, frames: range) -> dict[str, np.ndarray]:
        """A clip, of which only these frames are read."""
        file = self.videos[video]
        found = {"frames": file.fitted(frames, self.fit)}
        if self.masks is not None:
            found["masks"] = self.fit.masks(self.masks[video].ids(frames, file.size))
        return found

    def video_name(self, video: int) -> str:
        """The file's name without its ending, by which its masks are called too."""
        return name_of(self.videos[video].path)

    def view(self, video: int) -> View:
        """The box in the middle, or all of the frame."""
        return self.fit.view(self.videos[video].size)

    def origin(self, video: int) -> str:
        """The file or folder."""
        return str(self.videos[video].path)
