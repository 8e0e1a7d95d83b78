"""YouTube-VIS 2019 and 2021: short videos with the masks and categories of their objects in every fifth frame."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from slotbench.data.augmentation import Augmentation
from slotbench.data.base import LoaderOptions, Split, check_choices, padded
from slotbench.data.folders.video_files import FrameFolder
from slotbench.data.folders.video_folder import FolderClips
from slotbench.data.formats.images import Fit, Fitting, Resolution, read_frame, refused_if_damaged
from slotbench.data.real.listed_videos import ListedVideos
from slotbench.errors import DataFilesError
from slotbench.io import read_bytes

__all__ = ["YouTubeVIS", "covered"]

SplitRule = Literal["release", "last_300", "tfds"]
Overlaps = Literal["smaller", "ignored"]

_RELEASE = "train.zip and its JSON are had after registering at youtube-vos.org/dataset/vis"
_STORED: dict[Split, str] = {"train": "train", "val": "valid", "test": "test"}
_TFDS: dict[Split, slice] = {"train": slice(0, 1838), "val": slice(1838, 2038), "test": slice(2038, 2238)}
_LAST = 300


class RunLengths(msgspec.Struct):
    """A mask column by column: runs of zeros and ones in turn, as numbers or in COCO's compressed text."""

    size: tuple[int, int]
    counts: str | list[int]


class Track(msgspec.Struct):
    """An object through a video: a mask for each listed frame, or null where it is not seen."""

    video_id: int
    category_id: int
    segmentations: list[RunLengths | None]
    iscrowd: int = 0


class Listed(msgspec.Struct):
    """A video, and its frames below JPEGImages."""

    id: int
    height: int
    width: int
    file_names: list[str]


class Category(msgspec.Struct):
    """The name of a category."""

    id: int
    name: str


class Released(msgspec.Struct):
    """What a JSON file of the release holds."""

    videos: list[Listed]
    annotations: list[Track] | None = None
    categories: list[Category] = []


class YouTubeVIS(ListedVideos):
    """YouTube-VIS as it is released: a JSON file for each split, and the frames that it lists.

        train/instances.json      2021; or train.json, annotations/train.json
        train/JPEGImages/0043f083b5/00000.jpg     or train_all_frames/JPEGImages

    The release has no masks of its validation and test videos, so that the field splits its training videos, in the
    order of the file (`split_rule`). In `masks` object i of a video is i + 1, in the order of the file; crowds are
    left out. `objects`, padded to the most objects of a video, has "num_objects" (batch) and "category" (batch
    objects), the ids of the file, -1 for none; `category_names(split)` has their names.

    Source: Yang et al., Video instance segmentation (ICCV 2019).

    Args:
        path: the folder.
        year: 2019 or 2021, which decides the `split_rule` where none is given.
        split_rule: "release" reads train, valid and test as they are; "last_300" validates and tests on the last 300
            training videos and trains on the others (videosaur and slotcontrast, `data/save_ytvis2021.py`); "tfds"
            trains on the training videos 0 to 1837, validates on 1838 to 2037 and tests on 2038 to 2237
            (`only_frames_with_labels_train_split` of TensorFlow Datasets, which videosaur's `data/save_ytvis2019.py`
            reads). Null for last_300 in 2021 and tfds in 2019.
        overlaps: where masks overlap, the "smaller" one of the frame has the pixels (the first of the file among
            equals), or they are "ignored".
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
        year: Literal[2019, 2021] = 2021,
        split_rule: SplitRule | None = None,
        overlaps: Overlaps = "smaller",
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
        self.split_rule: SplitRule = split_rule or ("last_300" if year == 2021 else "tfds")
        check_choices(split_rule=(self.split_rule, SplitRule), overlaps=(overlaps, Overlaps))
        self.year, self.overlaps = year, overlaps
        self._files: dict[str, tuple[Path, Released]] = {}

    def listed(self, split: Split) -> FolderClips:
        """The videos of a split, in the order of their file."""
        stored = _STORED[split] if self.split_rule == "release" else "train"
        path, found = self._released(stored)
        frames = next((place for place in self._frames(stored) if place.is_dir()), None)
        if frames is None:
            raise self.missing(self._frames(stored)[0], "a folder of JPEGs for every video", _RELEASE)
        chosen = found.videos[self._part(split, path, len(found.videos))]
        return _YouTubeVISClips(path, frames, found, chosen, self.overlaps, self.fit, self.stride)

    def category_names(self, split: Split) -> dict[int, str]:
        """The names of the categories by their ids."""
        stored = _STORED[split] if self.split_rule == "release" else "train"
        return {one.id: one.name for one in self._released(stored)[1].categories}

    def _part(self, split: Split, path: Path, count: int) -> slice:
        """Which videos of a file a split has."""
        if self.split_rule == "release":
            return slice(None)
        part = (
            _TFDS[split]
            if self.split_rule == "tfds"
            else slice(None, -_LAST)
            if split == "train"
            else slice(-_LAST, None)
        )
        least = _TFDS["test"].stop if self.split_rule == "tfds" else _LAST + 1
        if count < least:
            raise DataFilesError(
                f"{path} lists {count:,} videos; expected {least:,} at least to split them by {self.split_rule}: "
                "give the file of the release, or --data.split_rule release"
            )
        return part

    def _released(self, stored: str) -> tuple[Path, Released]:
        """The file of a split and what it holds, read once."""
        if stored not in self._files:
            places = (f"{stored}/instances.json", f"{stored}.json", f"annotations/{stored}.json")
            path = next((file for place in places if (file := self.path / place).is_file()), None)
            if path is None:
                expected = f"it, {stored}.json or annotations/{stored}.json"
                raise self.missing(self.path / places[0], expected, _RELEASE, lists=True)
            try:
                self._files[stored] = path, msgspec.json.decode(read_bytes(path), type=Released)
            except (msgspec.DecodeError, ValueError) as error:
                raise DataFilesError(f"{path} is no JSON of YouTube-VIS: {error}; copy it anew") from error
        return self._files[stored]

    def _frames(self, stored: str) -> list[Path]:
        return [self.path / folder / "JPEGImages" for folder in (stored, f"{stored}_all_frames")]


class _ListedFrames(FrameFolder):
    """The frames of a video that the file lists."""

    def __init__(self, root: Path, video: Listed) -> None:
        self.files = [root / name for name in video.file_names]
        self.path, self._frame = self.files[0].parent, _listed_frame
        self.length, self.size = len(self.files), (video.height, video.width)


def _listed_frame(file: Path) -> np.ndarray:
    if not file.is_file():
        raise DataFilesError(f"there is no file {file}; expected every frame that the JSON file lists. {_RELEASE}")
    return read_frame(file)


class _Tracks:
    """The masks of one video."""

    def __init__(self, path: Path, tracks: Sequence[Track], overlaps: Overlaps) -> None:
        self.path, self.tracks, self.overlaps = path, tracks, overlaps

    def ids(self, numbers: Sequence[int], size: tuple[int, int]) -> np.ndarray:
        """Ids of these frames as int32."""
        ids = np.zeros((len(numbers), *size), np.int32)
        for image, number in zip(ids, numbers, strict=True):
            seen = [(i, track.segmentations[number]) for i, track in enumerate(self.tracks, 1)]
            masks = [(i, self._decoded(runs, number, size)) for i, runs in seen if runs is not None]
            # what is drawn last lies on top
            for i, mask in sorted(masks, key=lambda one: (-int(one[1].sum()), -one[0])):
                image[mask] = i
            if self.overlaps == "ignored" and masks:
                image[np.sum([mask for _, mask in masks], axis=0) > 1] = -1
        return ids

    def _decoded(self, runs: RunLengths, number: int, size: tuple[int, int]) -> np.ndarray:
        from pycocotools import mask

        if runs.size != size:
            raise DataFilesError(
                f"{self.path} has a mask of {runs.size[0]} x {runs.size[1]} pixels for frames of {size[0]} x {size[1]} "
                f"(video {self.tracks[0].video_id}, frame {number}); expected one size"
            )
        with refused_if_damaged(f"{self.path} holds a damaged mask (video {self.tracks[0].video_id}, frame {number})"):
            # pycocotools leaves what no run covers as it was in memory
            if (pixels := covered(runs.counts)) != size[0] * size[1]:
                raise ValueError(f"its runs cover {pixels} pixels")
            given = {"size": list(runs.size), "counts": runs.counts}
            coded = mask.frPyObjects(given, *size) if isinstance(runs.counts, list) else given
            return mask.decode(coded).astype(bool)


def covered(counts: str | list[int]) -> int:
    """The pixels that the runs of a mask cover, in numbers or in COCO's text: 6 bits a letter, 5 of them digits."""
    if isinstance(counts, list):
        return sum(counts)
    runs: list[int] = []
    value = shift = 0
    for letter in counts.encode():
        value |= ((letter - 48) & 31) << shift
        shift += 5
        if not (letter - 48) & 32:
            value -= (value >> (shift - 1) & 1) << shift
            # from the fourth on, how a run differs from the one before the last
            runs.append(value + runs[-2] if len(runs) > 2 else value)
            value = shift = 0
    return sum(runs)


class _YouTubeVISClips(FolderClips):
    """Clips of listed videos, with the categories of their objects."""

    def __init__(
        self, path: Path, frames: Path, found: Released, videos: list[Listed], overlaps: Overlaps, fit: Fit, stride: int
    ) -> None:
        tracks: dict[int, list[Track]] = {video.id: [] for video in found.videos}
        for track in found.annotations or ():
            if track.video_id not in tracks:
                raise DataFilesError(f"{path} has masks of a video {track.video_id} that it does not list")
            if not track.iscrowd:
                tracks[track.video_id].append(track)
        for video in videos:
            lengths = {len(video.file_names), *(len(track.segmentations) for track in tracks[video.id])}
            if len(lengths) > 1 or not video.file_names:
                raise DataFilesError(
                    f"{path} lists {len(video.file_names)} frames of video {video.id}, and other numbers of masks; "
                    "expected frames, and for every object a mask or null for each"
                )
        if found.annotations and find_spec("pycocotools") is None:
            raise DataFilesError(f"the masks in {path} need pycocotools: pip install 'slotbench[ytvis]'")
        masks = [_Tracks(path, tracks[video.id], overlaps) for video in videos] if found.annotations else None
        super().__init__([_ListedFrames(frames, video) for video in videos], masks, fit, stride)
        self.categories = [np.array([one.category_id for one in tracks[video.id]], np.int64) for video in videos]
        self.most = max(map(len, tracks.values()), default=0)

    def clip(self, video: int, frames: range) -> dict[str, np.ndarray]:
        """A clip with "num_objects" and "category"."""
        found, own = super().clip(video, frames), self.categories[video]
        if self.masks is None:
            return found
        return found | {"num_objects": np.array(len(own)), "category": padded(own, self.most, fill=-1)}
