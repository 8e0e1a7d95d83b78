"""Videos of several posed cameras of the user's own, in folders."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from slotbench.data.base import LoaderOptions, Split, check_counts
from slotbench.data.folders.frame_maps import MASKS, find_maps
from slotbench.data.folders.names import check_same_frames, visible
from slotbench.data.folders.video_files import VideoFile, open_video
from slotbench.data.formats.images import Fit
from slotbench.data.formats.movies import keep_movies
from slotbench.data.posed_data import Frame, PosedData, PosedVideos
from slotbench.data.posed_files.scenes import PosedFiles, PosedImages, check_matrices
from slotbench.errors import DataFilesError
from slotbench.interfaces import View
from slotbench.io import read_npz

__all__ = ["PosedVideoFolder"]

Axes = Literal["opengl", "opencv"]

_CAMERA = re.compile(r"cam_(\d{1,6})(\.[A-Za-z0-9]+)?\Z")
_LAYOUT = "expected train/CLIP/cam_0.mp4, cam_1.mp4, ... (or folders of images) and cameras.npz"


class PosedVideoFolder(PosedData):
    """Videos of several posed cameras of your own.

    `path` has the folders `train`, `val` and `test`, and each of them a folder for every clip:

        CLIP/cam_0.mp4, CLIP/cam_1.mp4, ...     the cameras, frame t of each at one instant; or folders of images, whose
                                                numbers are the same in each
        CLIP/cameras.npz                        camera_to_world, (cameras, 4, 4) of cameras that stand still or (time,
                                                cameras, 4, 4), in the order of the cameras' numbers; focal, in pixels
        CLIP/masks/cam_0.npz, ...               as `VideoFolder` has masks; an object has one id in all cameras

    Where `val` or `test` is missing, the other takes its place. A clip is as long as its shortest camera. Batches are
    as those of `MultiCameraLike`, with "cameras", "focal", "views" and "to_world" in `objects`.

    Args:
        num_cameras: cameras of each clip.
        num_shown: those that are shown in training, 2 or more.
        eval_shown: those that are shown otherwise; null for as many.
        resolution: pixels per side, of the square in the middle of an image.
        axes: columns of the rotations: "opengl" (right, up, backward; Blender) or "opencv" (right, down, forward).
        frame: of matrices and rays: "world", or "first", that of the first shown camera at the clip's first step.
        void: see `VideoFolder`.
    """

    def __init__(
        self,
        path: str,
        num_cameras: int,
        num_shown: int = 2,
        eval_shown: int | None = None,
        num_frames: int = 6,
        eval_frames: int | None = None,
        resolution: int = 64,
        axes: Axes = "opengl",
        frame: Frame = "world",
        loader: LoaderOptions = LoaderOptions(batch_size=8, val_batch_size=8),
        void: Sequence[int] = (),
    ) -> None:
        super().__init__(loader, num_frames, eval_frames)
        check_counts(num_cameras=num_cameras, resolution=resolution)
        self.set_views(num_cameras, num_shown, eval_shown, frame)
        self.path = Path(path).expanduser()
        self.resolution = resolution
        self.axes: Axes = axes
        self.void = tuple(void)

    def stored_videos(self, split: Split) -> tuple[PosedVideos, None]:
        """The clips of a split."""
        folder = self.path / split
        if split != "train" and not folder.is_dir():
            folder = self.path / ("test" if split == "val" else "val")
        if not folder.is_dir():
            raise DataFilesError(f"no {split} split: the folder {folder} does not exist; {_LAYOUT}")
        return self.posed(_Clips(folder, self), split), None


class _Clips(PosedFiles):
    def __init__(self, folder: Path, data: PosedVideoFolder) -> None:
        super().__init__(data.resolution, data.resolution)
        self.axes = data.axes
        self.folders = [clip for clip in visible(folder) if clip.is_dir()]
        if not self.folders:
            raise DataFilesError(f"{folder} has no folder of a clip; {_LAYOUT}")
        self.videos = [_cameras_of(clip, data.num_cameras, self.fit) for clip in self.folders]
        keep_movies(video for videos in self.videos for video in videos)
        self.masks = [find_maps(videos, MASKS, data.void) for videos in self.videos]
        if len({masks is None for masks in self.masks}) > 1:
            raise DataFilesError(f"some clips of {folder} have masks and others none; expected all or none")
        self.lengths = np.array([min(video.length for video in videos) for videos in self.videos])
        self.poses = [
            _poses(clip / "cameras.npz", videos, length)
            for clip, videos, length in zip(self.folders, self.videos, self.lengths.tolist(), strict=True)
        ]

    def posed(self, video: int, frames: range) -> PosedImages:
        cameras, focal = self.poses[video]
        files, maps = self.videos[video], self.masks[video]
        if len({file.size for file in files}) > 1:
            raise DataFilesError(f"the cameras of {self.origin(video)} have images of several sizes; expected one")
        size = files[0].size
        masks = None if maps is None else [one.ids(frames, size) for one in maps]
        cameras = cameras.repeat(len(frames), 0) if len(cameras) == 1 else cameras[frames.start : frames.stop]
        if self.axes == "opencv":
            cameras = cameras * np.array([1.0, -1.0, -1.0, 1.0])
        return PosedImages([file.fitted(frames, self.fit) for file in files], size, masks, cameras, focal)

    def video_name(self, video: int) -> str:
        return self.folders[video].name

    def view(self, video: int) -> View:
        return self.fit.view(self.videos[video][0].size)

    def origin(self, video: int) -> str:
        return str(self.folders[video])


def _cameras_of(folder: Path, count: int, fit: Fit) -> list[VideoFile]:
    named = [(int(found[1]), path) for path in visible(folder) if (found := _CAMERA.match(path.name))]
    videos = [video for _, path in sorted(named) if (video := open_video(path, fit)) is not None]
    if len(videos) != count or len({number for number, _ in named}) != len(named):
        raise DataFilesError(
            f"{folder} has {len(videos)} cameras and num_cameras is {count}; expected cam_0, cam_1, ... with the "
            "ending of a movie, or folders of images"
        )
    for video in videos:
        check_same_frames("frames", video.path, video.numbers, videos[0].path, videos[0].numbers)
    return videos


def _poses(path: Path, videos: list[VideoFile], length: int) -> tuple[np.ndarray, float]:
    """Matrices "time or 1, cameras 4 4" and the focal length."""
    count = len(videos)
    found = read_npz(path, ("camera_to_world", "focal"))
    matrices, focal = found.get("camera_to_world", np.empty(0)), found.get("focal", np.empty(0))
    matrices = matrices[None] if matrices.ndim == 3 else matrices
    if matrices.shape[1:] != (count, 4, 4) or len(matrices) not in (1, *range(length, len(matrices) + 1)):
        raise DataFilesError(
            f"{path} needs camera_to_world of shape ({count}, 4, 4), or ({length}, {count}, 4, 4) for the {length} "
            f"frames of the clip; it has {matrices.shape}"
        )
    if len(matrices) > length:  # those of frame t are the t-th
        for video in videos:
            check_same_frames("matrices", path, range(len(matrices)), video.path, video.numbers)
    if focal.size != 1 or not 0 < float(focal.reshape(())) < np.inf:
        raise DataFilesError(f"{path} needs focal, one number: the focal length in pixels of the files")
    return check_matrices(matrices, path), float(focal.reshape(()))
