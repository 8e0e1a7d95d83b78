"""DAVIS 2016 and 2017: videos of 25 to 104 frames with a mask of every object in each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from slotbench.data.augmentation import Augmentation
from slotbench.data.base import LoaderOptions, Split, check_choices
from slotbench.data.folders.frame_maps import MASKS, FrameMaps, check_maps
from slotbench.data.folders.video_files import FrameFolder
from slotbench.data.folders.video_folder import FolderClips
from slotbench.data.formats.images import Fitting, Resolution
from slotbench.data.real.listed_videos import ListedVideos
from slotbench.errors import DataFilesError
from slotbench.io import read_text

__all__ = ["DAVIS"]

Void = Literal["ignored", "background"]
Annotated = Literal["Annotations", "Annotations_unsupervised"]

_RELEASE = "DAVIS-2017-trainval-480p.zip and DAVIS-2017-Unsupervised-trainval-480p.zip are at davischallenge.org"
_VOID = 255


class DAVIS(ListedVideos):
    """DAVIS in its official tree, below the folder that has JPEGImages in it.

        ImageSets/2017/train.txt, val.txt    names, a line each; 2016 too, whose own release has 480p/train.txt
        JPEGImages/480p/bear/00000.jpg
        Annotations/480p/bear/00000.png      ids in a palette; or Annotations_unsupervised/480p

    The lists decide the videos: 60 for training and 30 for validation in 2017, 30 and 20 in 2016. Tests are on the
    validation list too, as the masks of the test sets are not public.

    Source: Perazzi et al. (CVPR 2016), Pont-Tuset et al. (2017). The code of the challenge (davis2017-evaluation,
    `davis2017/davis.py`) sets 255 to 0 as it reads a mask, so that its scores count void pixels as background.

    Args:
        path: the folder.
        year: 2016 has one object, all that is not 0 in a mask; 2017 has an id for each.
        files: the folder of frames and masks, by their size: "480p", "Full-Resolution" or another.
        annotations: which masks; those of the unsupervised challenge have other ids and void regions.
        void: what 255 is in 2017: "ignored", pixels that count nowhere, or "background", as in the challenge's code.
        num_frames: frames of a training clip, cut out of a video at random.
        eval_frames: frames of a validation or test clip; null for whole videos of any lengths, one in a batch.
        resolution: pixels per side, or [height, width].
        fit: how frames get these proportions, as in `VideoFolder`.
        stride: reads every `stride`-th frame.
        first_videos: validates and tests on so many videos, the first of the list; null for all.
        augment: how training clips are changed at random, as in `VideoFolder`.
    """

    def __init__(
        self,
        path: str,
        year: Literal[2016, 2017] = 2017,
        files: str = "480p",
        annotations: Annotated = "Annotations",
        void: Void = "ignored",
        num_frames: int = 4,
        eval_frames: int | None = None,
        resolution: Resolution = 224,
        fit: Fitting = "crop",
        stride: int = 1,
        first_videos: int | None = None,
        loader: LoaderOptions = LoaderOptions(val_batch_size=1),
        augment: Augmentation = Augmentation(),
    ) -> None:
        super().__init__(path, num_frames, eval_frames, resolution, fit, stride, first_videos, loader)
        self.augment = augment
        check_choices(annotations=(annotations, Annotated), void=(void, Void))
        self.year, self.files, self.annotations, self.void = year, files, annotations, void

    def listed(self, split: Split) -> FolderClips:
        """The videos of a list, in its order."""
        frames, masks = self.path / "JPEGImages" / self.files, self.path / self.annotations / self.files
        names = self._names("train" if split == "train" else "val")
        for place in (frames, masks, *(folder / name for name in names for folder in (frames, masks))):
            if not place.is_dir():
                files = f"JPEGImages/{self.files}/NAME/00000.jpg and {self.annotations}/{self.files}/NAME/00000.png"
                raise self.missing(place, f"{files} in {self.path} for every video of its list", _RELEASE)
        videos = [self._video(frames / name) for name in names]
        found = [_DAVISMasks(masks / name, self.year, self.void) for name in names]
        check_maps(videos, found)
        return FolderClips(videos, found, self.fit, self.stride)

    def _names(self, stored: str) -> list[str]:
        """The names of a list; the release of 2016 has a line for each frame, with its path and that of its mask."""
        lists = [self.path / "ImageSets" / str(self.year) / f"{stored}.txt"]
        if self.year == 2016:
            lists.append(self.path / "ImageSets" / "480p" / f"{stored}.txt")
        found = next((file for file in lists if file.is_file()), None)
        if found is None:
            expected = f"the official lists ImageSets/{self.year}/train.txt and val.txt"
            raise self.missing(lists[0], expected, _RELEASE, lists=True)
        lines = [line.split()[0] for line in read_text(found).splitlines() if line.strip()]
        if not lines:
            raise DataFilesError(f"{found} names no video; expected a name in each line")
        return list(dict.fromkeys(Path(line).parent.name if "/" in line else line for line in lines))

    def _video(self, folder: Path) -> FrameFolder:
        video = FrameFolder.open(folder)
        if video is None:
            raise self.missing(folder / "00000.jpg", "a JPEG for each frame", _RELEASE)
        return video


class _DAVISMasks(FrameMaps):
    """The masks of one video."""

    def __init__(self, place: Path, year: int, void: Void) -> None:
        super().__init__(place, MASKS, [_VOID] if year == 2017 else ())
        self.year, self.kept_void = year, void == "ignored"

    def ids(self, numbers: Sequence[int], size: tuple[int, int]) -> np.ndarray:
        """Ids of these frames as int32."""
        if self.year == 2016:
            return (self.read(numbers, size) > 0).astype(np.int32)
        found = super().ids(numbers, size)
        return found if self.kept_void else np.maximum(found, 0)
