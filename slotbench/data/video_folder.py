"""The user's own videos, without annotations: to look at what a model makes of them, or to train on them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset

from slotbench.data.base import SlotDataModule, Split
from slotbench.data.clip_source import ClipSource, CutClips
from slotbench.data.files import DataFilesError
from slotbench.data.resizing import resize_bilinear
from slotbench.data.video_files import ARRAYS, IMAGES, MOVIES, VideoFile, open_video
from slotbench.interfaces import DataSpec, VideoBatch, VideoSpec

__all__ = ["VideoFolder"]


class VideoFolder(SlotDataModule):
    """Videos in a folder: movies (PyAV reads them), GIFs, numpy arrays, folders of pictures, and mixtures of these.

    Each is cropped to the square in its middle, resized with anti-aliasing, and cut into clips: at random in training,
    one after the other in evaluation, what is left at the end being passed over. Videos that are shorter than a clip
    are passed over too. Where the folder has folders train, val and test, they are the splits, and one that is not
    there has no videos; otherwise every split has all videos, so that nothing measured on them says how a model
    generalises.

    There are no masks. `objects` has "video", the number of the video in the order of their names, and "first_frame".

    Args:
        path: the folder, or one movie, GIF, array or folder of pictures.
        num_frames: frames of a training clip.
        eval_frames: frames of a validation, test or prediction clip; null for whole videos, if all are equally long.
        resolution: pixels per side.
        stride: takes every so manieth frame.
        batch_size: clips per training batch.
        val_batch_size: clips per batch in validation, test and prediction.
        num_workers: processes that read.
        seed: of the order of the videos and of the cuts.
        train_size: training clips; the videos are gone through again and again until there are as many.
        val_size: clips in the validation split at most, a random subset of all.
        test_size: clips in the test split at most.

    Raises:
        ValueError: for arguments that cannot be; when clips are asked for, as a `DataFilesError`, where there is no
            video, or one that cannot be read.
    """

    def __init__(
        self,
        path: str,
        num_frames: int = 6,
        eval_frames: int | None = 24,
        resolution: int = 64,
        stride: int = 1,
        batch_size: int = 16,
        val_batch_size: int = 4,
        num_workers: int = 0,
        seed: int = 0,
        train_size: int = 1_000_000,
        val_size: int = 100_000,
        test_size: int = 100_000,
    ) -> None:
        super().__init__(batch_size, val_batch_size, num_workers, seed, train_size, val_size, test_size)
        given = {"num_frames": num_frames, "eval_frames": eval_frames, "resolution": resolution, "stride": stride}
        for name, value in given.items():
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; expected 1 or more")
        self.path = Path(path).expanduser()
        self.num_frames = num_frames
        self.eval_frames = eval_frames
        self.resolution = resolution
        self.stride = stride

    @property
    def spec(self) -> DataSpec:
        """Three channels in, three channels out."""
        frame = VideoSpec(channels=3, height=self.resolution, width=self.resolution)
        return DataSpec(input=frame, target=frame)

    def dataset(self, split: Split) -> Dataset[VideoBatch]:
        """Clips of `num_frames` frames for training, of `eval_frames` frames otherwise.

        Raises:
            DataFilesError: there is no video, or one that cannot be read.
        """
        source = _Videos(_find(self.path, split), self.resolution, self.stride)
        num_frames = self.num_frames if split == "train" else self.eval_frames
        return CutClips(source, split, self.sizes[split], num_frames, self.seed)


class _Videos(ClipSource):
    def __init__(self, videos: list[VideoFile], resolution: int, stride: int) -> None:
        self.videos, self.resolution, self.stride = videos, resolution, stride
        self.lengths = np.array([-(-video.length // stride) for video in videos])

    def read(self, videos: Sequence[int], starts: Sequence[int], num_frames: int) -> VideoBatch:
        clips = []
        for video, start in zip(videos, starts, strict=True):
            numbers = [self.stride * (start + frame) for frame in range(num_frames)]
            clips.append(torch.stack([_square(frame, self.resolution) for frame in self.videos[video].frames(numbers)]))
        return VideoBatch(
            frames=torch.stack(clips),
            time=torch.arange(num_frames).repeat(len(videos), 1),
            objects={"video": torch.tensor(videos), "first_frame": torch.tensor(starts) * self.stride},
        )

    def name(self, video: int, start: int) -> str:
        """The file's name without its ending, and the first frame of the clip in it."""
        return f"{self.videos[video].path.stem}_frame{start * self.stride:05d}"


def _square(frame: np.ndarray, side: int) -> torch.Tensor:
    """The middle of a frame "height width 3" as "3 side side"."""
    rows, columns = frame.shape[:2]
    size = min(rows, columns)
    top, left = (rows - size) // 2, (columns - size) // 2
    cropped = frame[top : top + size, left : left + size].transpose(2, 0, 1)
    return resize_bilinear(torch.from_numpy(np.ascontiguousarray(cropped))[None], side, side)[0]


def _find(path: Path, split: Split) -> list[VideoFile]:
    """The videos of a split, in the order of their names."""
    expected = (
        f"expected a folder of videos ({', '.join((*MOVIES, '.gif', *ARRAYS))}), or of folders of pictures "
        f"({', '.join(IMAGES)}), or one of these itself"
    )
    if not path.exists():
        raise DataFilesError(f"there is nothing at {path}; {expected}")
    alone = open_video(path)
    if alone is not None:
        return [alone]
    if not path.is_dir():
        raise DataFilesError(f"{path} is no video; {expected}")
    folder = path / split if any((path / name).is_dir() for name in ("train", "val", "test")) else path
    inside = sorted(folder.iterdir()) if folder.is_dir() else []
    videos = [video for video in map(open_video, inside) if video is not None]
    if not videos:
        raise DataFilesError(f"there is no video in {folder}; {expected}")
    return videos
