"""CATER: in which cell of the floor is the snitch at the end of a video? A reader of the released files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Int
from torch.utils.data import Dataset

from slotbench.data.base import (
    ClipDataset,
    LoaderOptions,
    SlotDataModule,
    Split,
    check_counts,
    generator_for,
    join_clips,
    padded,
)
from slotbench.data.cater.videos import LAYOUT, MOST_OBJECTS, TIMED, CaterScene, ReleasedVideos, cell_of, number_of
from slotbench.data.clip_cache import ClipCache, is_cache
from slotbench.data.clips import order_of_pass
from slotbench.data.preparing import Preparable, Report, cache_videos, kept_cache, processes_for
from slotbench.errors import DataFilesError
from slotbench.interfaces import DataSpec, VideoBatch, VideoSpec
from slotbench.io import read_text, write_atomically

__all__ = ["CATER", "frame_numbers"]

Lists = Literal["localize", "localize_4x4", "localize_8x8"]
Target = Literal["cell", "frames"]
Sampling = Literal["segments", "window", "random"]
"""One frame of each of as many segments of equal length; consecutive frames; or frames drawn from the whole video."""

_GRIDS: dict[str, int] = {"localize": 6, "localize_4x4": 4, "localize_8x8": 8}
_LINE = re.compile(r"(CATER_new_\d{1,12})\.avi\s+(\d{1,4})")
_PIECE = 4  # videos that are decoded and written to a cache at a time
_LISTS = ("train", "val", "train_subsetT", "train_subsetV")


class CATER(SlotDataModule, Preparable):
    """The videos of CATER with the label of snitch localisation, one folder per version of the set.

    The test split is the released val.txt, which papers report; train_subsetT and train_subsetV are for training and
    validation. Videos of 301 frames are decoded once. A clip shows `num_frames` of them: of as many segments of equal
    length one frame each, in training drawn at random, else the last, so that an evaluation clip ends with the frame
    that is asked about. With 50 steps frame 0 is left out, as in SlotSSM. docs/datasets.md has the layout.

    The target is the label of the list, at the last step; with `scenes` at every step the cell at that step, and the
    label in the end. With scenes `objects` has "positions" (batch time objects 3), "holders" (batch time objects; what
    contains an object directly, -1 for nothing), "present", "shape_label" (0 cube, 1 cylinder, 2 sphere, 3 cone, 4 the
    snitch, which comes first; -1 for none), "snitch_state" (batch time; 0 not contained, 2 contained: what is occluded
    the files do not say), "last_uncovered", "covered", "moved_covered" and "frames_since_seen" (batch) and
    "scale", "end_cells" and "end_holders" (batch objects) as in `CATERLike`, "frame" (batch time), and in any case
    "video" (batch; place in the list).

    Source: Girdhar and Ramanan, "CATER", ICLR 2020; sampling of SlotSSM, section 7.4.

    Args:
        path: the folder of one version, or a cache.
        resolution: pixels per side; the frames of 320 x 240 are resized, and not cropped.
        num_frames: steps of a clip.
        sampling: "segments", or a "window" of consecutive frames, at random in training, else the last ones, or
            "random" frames of the whole video in their order, in evaluation the same for a clip each time.
        target: the "cell" of the snitch, or the "frames" themselves, for pre-training by reconstruction.
        lists: "localize" for 6 x 6 cells, "localize_4x4" or "localize_8x8".
        scenes: reads the scene files, for targets of every step and scores by group.
    """

    default_sizes: ClassVar[Mapping[Split, int]] = {"train": 100_000_000, "val": 100_000, "test": 100_000}
    prepare_arguments: ClassVar[tuple[str, ...]] = ("path", "resolution", "scenes")

    def __init__(
        self,
        path: str,
        resolution: int = 128,
        num_frames: int = 50,
        sampling: Sampling = "segments",
        target: Target = "cell",
        lists: Lists = "localize",
        scenes: bool = True,
        loader: LoaderOptions = LoaderOptions(),
    ) -> None:
        super().__init__(loader)
        check_counts(resolution=resolution, num_frames=num_frames)
        self.path = Path(path).expanduser()
        self.resolution = resolution
        self.num_frames = num_frames
        self.sampling: Sampling = sampling
        self.target: Target = target
        self.lists: Lists = lists
        self.grid = _GRIDS[lists]
        self.scenes = scenes

    @property
    def spec(self) -> DataSpec:
        """Frames in, and one class per cell out, or the frames."""
        frame = VideoSpec(channels=3, height=self.resolution, width=self.resolution)
        label = VideoSpec(channels=self.grid**2, height=1, width=1)
        return DataSpec(input=frame, target=label if self.target == "cell" else frame)

    def entries(self, split: Split) -> list[tuple[str, int]]:
        """Name and label of every video of a split, in the order of its list."""
        name = {"train": "train_subsetT", "val": "train_subsetV", "test": "val"}[split]
        return _read_list(self.path / "lists" / self.lists / f"{name}.txt", self.grid)

    def cache(self) -> ClipCache:
        """The decoded videos: of `path` if that is a cache, or of the user's cache folder, written at first use."""
        if is_cache(self.path / "videos"):
            cache = ClipCache(self.path / "videos")
            cache.check({"scenes": self.scenes}, resolution=self.resolution)
            return cache
        names = self._names()
        about = self._description(names) | {"path": str(self.path.resolve())}
        return kept_cache("CATER", f"{self.path.name}-{self.resolution}", about, partial(self._write, names, 1))

    def prepare(self, out: Path, report: Report, jobs: int | None = None) -> None:
        """Decodes the videos of all lists into a cache below `out`, and copies the lists."""
        if is_cache(self.path / "videos"):
            raise DataFilesError(f"{self.path} is a cache already; name the folder of the released files")
        names = self._names()
        self._write(names, processes_for(jobs, len(names)), out / "videos", partial(report, "videos"))
        for file in self._lists():
            copy = out / "lists" / file.parent.name / file.name
            copy.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(copy, read_text(file))

    def _lists(self) -> list[Path]:
        files = (self.path / "lists" / kind / f"{name}.txt" for kind in _GRIDS for name in _LISTS)
        return [file for file in files if file.is_file()]

    def _names(self) -> list[str]:
        """The names of all videos, in order."""
        names = {name for file in self._lists() for name, _ in _read_list(file, _GRIDS[file.parent.name])}
        if not names:
            raise DataFilesError(f"there are no lists in {self.path / 'lists'}; {LAYOUT}")
        return sorted(names)

    def _description(self, names: list[str]) -> dict[str, Any]:
        return {"set": "cater", "resolution": self.resolution, "scenes": self.scenes, "listed": len(names)}

    def _write(self, names: list[str], jobs: int, folder: Path, report: Callable[[int, int], None]) -> None:
        source = ReleasedVideos(self.path, self.resolution, names, self.scenes)
        cache_videos(folder, source, self._description(names), TIMED, report, jobs, _PIECE)

    def dataset(self, split: Split) -> Dataset[VideoBatch]:
        """The clips of a split."""
        return _Clips(self, split)


class _Clips(ClipDataset):
    def __init__(self, data: CATER, split: Split) -> None:
        self.entries = data.entries(split)
        super().__init__(data.sizes[split] if split == "train" else min(data.sizes[split], len(self.entries)))
        # not `data` itself: it would carry a trainer into the workers
        self.cache, self.num_frames, self.seed = data.cache(), data.num_frames, data.loader.seed
        self.places = {int(number): place for place, number in enumerate(self.cache.field("objects.number"))}
        self.sampling, self.grid, self.scenes = data.sampling, data.grid, data.scenes
        self.target, self.split = data.target, split

    def clip_name(self, index: int) -> str | None:
        return self.entries[self._video(index)][0]

    def clips(self, indices: Sequence[int]) -> VideoBatch:
        return join_clips([self._clip(index) for index in indices])

    def _video(self, index: int) -> int:
        if self.split != "train":
            return index
        number, place = divmod(index, len(self.entries))
        return int(order_of_pass(self.seed, number, len(self.entries))[place])

    def _clip(self, index: int) -> dict[str, np.ndarray]:
        video = self._video(index)
        name, label = self.entries[video]
        place = self.places.get(number_of(name))
        if place is None:
            raise DataFilesError(f"the cache {self.cache.folder} has no video {name}: prepare it anew")
        length = int(self.cache.lengths[place])
        frames = self._frame_numbers(generator_for(self.seed, self.split, index), length)
        clip = {"frames": self.cache.field("frames")[place][frames], "video": np.array(video), "frame": frames}
        cells = np.array([label])
        if self.scenes:
            scene = self._scene(place)
            cells = cell_of(scene.positions[frames, 0], self.grid)
            cells[-1] = label
            clip |= self._log(scene, frames)
        if self.target == "cell":
            clip |= {"target": cells[:, None, None], "target_time": np.arange(self.num_frames)[-len(cells) :]}
        return clip

    def _scene(self, place: int) -> CaterScene:
        fields = ("shape_label", "sizes", "positions", "holders")
        shapes, sizes, positions, holders = (self.cache.field(f"objects.{field}")[place] for field in fields)
        count = int((shapes >= 0).sum())
        return CaterScene(shapes[:count], positions[:, :count], holders[:, :count].astype(np.int64), sizes[:count])

    def _frame_numbers(self, rng: np.random.Generator, length: int) -> np.ndarray:
        """The frames that a clip shows; of a video of one more than a multiple of the steps, the first is left out."""
        if length < self.num_frames:
            raise DataFilesError(f"{self.cache.folder} has videos of {length} frames; set num_frames to that or less")
        skipped = int(self.sampling == "segments" and length % self.num_frames == 1)
        return frame_numbers(self.sampling, rng, length, self.num_frames, self.split == "train", skipped)

    def _log(self, scene: CaterScene, frames: np.ndarray) -> dict[str, np.ndarray]:
        count, last = len(scene.shapes), scene.last_uncovered
        contained = scene.holders[:, 0] >= 0
        return {
            "scale": padded(2 * scene.sizes.astype(np.float32), MOST_OBJECTS),
            "end_cells": padded(cell_of(scene.positions[-1], self.grid), MOST_OBJECTS),
            "end_holders": padded(scene.holders[-1], MOST_OBJECTS, fill=-1),
            "positions": padded(scene.positions[frames].astype(np.float32), MOST_OBJECTS, axis=1),
            "holders": padded(scene.holders[frames], MOST_OBJECTS, axis=1, fill=-1),
            "present": np.arange(MOST_OBJECTS) < count,
            "shape_label": padded(scene.shapes, MOST_OBJECTS, fill=-1),
            "snitch_state": np.where(contained[frames], 2, 0),
            "last_uncovered": cell_of(scene.positions[last, 0], self.grid),
            "covered": np.array(bool(contained[-1])),
            "moved_covered": np.array(scene.was_moved),
            "frames_since_seen": np.array(len(contained) - 1 - last),
        }


def _read_list(file: Path, grid: int) -> list[tuple[str, int]]:
    """Names and labels, in the order of a list."""
    if not file.is_file():
        raise DataFilesError(f"there is no list {file}; {LAYOUT}")
    found = []
    for number, line in enumerate(read_text(file).splitlines(), 1):
        if not line.strip():
            continue
        entry = _LINE.fullmatch(line.strip())
        if entry is None or int(entry[2]) >= grid**2:
            raise DataFilesError(
                f"line {number} of {file} is {line[:60]!r}; expected the name of a video and a cell below {grid**2}, "
                "such as 'CATER_new_000001.avi 23'"
            )
        found.append((entry[1], int(entry[2])))
    if not found:
        raise DataFilesError(f"{file} names no video; {LAYOUT}")
    return found


def frame_numbers(
    sampling: Sampling, rng: np.random.Generator, length: int, count: int, training: bool, skipped: int = 0
) -> Int[np.ndarray, " count"]:
    """The numbers of the frames that a clip shows, in order.

    In training a frame of each segment, and where a window begins, are drawn; else it is the last frame of each
    segment, and the window that ends with the video. Random frames are drawn in either, without repetition.
    """
    if sampling == "random":
        return np.sort(rng.choice(length, count, replace=False))
    if sampling == "window":
        room = length - count
        return (int(rng.integers(0, room + 1)) if training else room) + np.arange(count)
    edges = skipped + np.arange(count + 1) * (length - skipped) // count
    return rng.integers(edges[:-1], edges[1:]) if training else edges[1:] - 1
