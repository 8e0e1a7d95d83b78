"""A reader from outside, written after the walk in CONTRIBUTING: videos with masks in one npz file for each split."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from slotbench.arrays import read_npz
from slotbench.data.base import LoaderOptions, Split
from slotbench.data.clips import ClipReader, StoredVideos
from slotbench.errors import DataFilesError
from slotbench.registry import register

_LAYOUT = "expected `frames` (videos, time, height, width, 3) and `masks` (videos, time, height, width), both in bytes"


class ArchivedVideos(ClipReader):
    """The videos of one archive."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise DataFilesError(f"there is no file {path}; {_LAYOUT}")
        self.path, self.arrays = path, read_npz(path)
        frames, masks = (self.arrays.get(name, np.zeros(0)) for name in ("frames", "masks"))
        if frames.dtype != np.uint8 or frames.ndim != 5 or masks.shape != frames.shape[:4]:
            raise DataFilesError(f"{path} has frames of shape {frames.shape} and masks of {masks.shape}; {_LAYOUT}")
        self.lengths = np.full(len(frames), frames.shape[1])

    def clip(self, video: int, frames: range) -> dict[str, np.ndarray]:
        """A clip."""
        window = slice(frames.start, frames.stop)
        images = self.arrays["frames"][video, window]
        return {"frames": images.transpose(0, 3, 1, 2), "masks": self.arrays["masks"][video, window]}


@register("datasets")
class VideoArchive(StoredVideos):
    """Videos with masks, one npz file for each split.

    Args:
        path: folder of train.npz, val.npz and test.npz.
        num_frames: frames of a training clip.
        eval_frames: frames of a validation or test clip; null for whole videos.
        resolution: pixels per side.
        loader: batches, workers, sizes and seed.
    """

    def __init__(
        self,
        path: str,
        num_frames: int = 2,
        eval_frames: int | None = 2,
        resolution: int = 16,
        loader: LoaderOptions = LoaderOptions(),
    ) -> None:
        super().__init__(loader, num_frames, eval_frames)
        self.path = Path(path).expanduser()
        self.resolution = resolution

    def stored_videos(self, split: Split) -> tuple[ArchivedVideos, None]:
        """The videos of a split, all of them."""
        return ArchivedVideos(self.path / f"{split}.npz"), None


def write_archive(folder: Path) -> None:
    """Random videos of all splits."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 4), ("val", 3), ("test", 2)):
        frames = rng.integers(0, 256, (count, 8, 16, 16, 3), dtype=np.uint8)
        np.savez(folder / f"{split}.npz", frames=frames, masks=(frames[..., 0] // 90).astype(np.uint8))
