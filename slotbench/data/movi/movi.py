"""MOVi-A to E, from the TFRecords of TensorFlow Datasets or from a cache, without TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from slotbench.data.base import LoaderOptions, Split, check_counts
from slotbench.data.clip_cache import ClipCache, is_cache, write_cache
from slotbench.data.clips import StoredVideos
from slotbench.data.crops import check_crop
from slotbench.data.movi.record import TIMED, MOViRecords, find_shards
from slotbench.data.preparing import Preparable, Report, in_order, processes_for
from slotbench.errors import DataFilesError
from slotbench.interfaces import DataSpec, VideoBatch, VideoSpec

__all__ = ["MOVi"]

_STORED: dict[Split, str] = {"train": "train", "val": "validation", "test": "test"}
_WITHOUT_TEST = ("movi_a", "movi_b")
_PIECE = 16  # videos that are decoded and written to a cache at a time

_GET = (
    "expected the files NAME-{split}.tfrecord-00000-of-00256 and so on, as TensorFlow Datasets keeps them (NAME is "
    "movi_a to movi_e), or what `slotbench prepare MOVi` made of them. They are public: "
    "`gsutil -m cp -r gs://kubric-public/tfds/movi_a/128x128/1.0.0 DIR` copies one set, and so does "
    '`tfds.load("movi_a/128x128", data_dir="gs://kubric-public/tfds")` with tensorflow-datasets'
)


class MOVi(StoredVideos, Preparable):
    """MOVi-A to E: videos of objects that fall, roll and collide, with instance masks and the simulator's log.

    Clips are read from TFRecords by index, and only their frames are decoded; `slotbench prepare MOVi` writes decoded
    videos to a cache that is far quicker to read, and `path` may name that. Training samples are cut out of the videos
    at random, each pass over the videos in an order of its own (`CutClips`); the frames are resized with anti-aliasing,
    the masks to the nearest pixel.

    In `masks` object i is i + 1. `objects`, padded to `num_objects` per video, has
    "num_objects" (batch) and "present" (batch objects);
    per frame (batch time objects ...): "positions", "velocities", "angular_velocities" (3), "quaternions" (4),
    "image_positions" (2; x and y in 0..1), "visibility" (pixels at the resolution of the simulation) and "bboxes" (4;
    top, left, bottom and right in 0..1, zeros where there is nothing to be seen);
    per object (batch objects ...): "mass", "friction", "restitution", and of "scale", "color" (3), "shape_label",
    "size_label", "color_label", "material_label", "category", "is_dynamic" those that the variant has, -1 for a label
    of no object;
    "camera_positions" (batch time 3), "camera_quaternions" (batch time 4), "camera_focal_length",
    "camera_sensor_width", "camera_field_of_view" (batch), MOVi-B's "background_color" (batch 3);
    "depth" (batch time height width; distance from the camera) if asked for; "video" and "first_frame" (batch), which
    say where a clip is from.

    Source: Greff et al., Kubric (CVPR 2022); fields as in its `challenges/movi`.

    Args:
        path: folder of the TFRecords (`.../movi_a/128x128/1.0.0`, or one above it), or a cache.
        num_frames: frames of a training clip.
        eval_frames: frames of a validation or test clip, cut one after the other; null for whole videos of 24.
        resolution: pixels per side of what is read, whatever is on the disk.
        max_objects: passes over videos of more objects; null takes all.
        num_objects: entries that annotations are padded to; null for 10 in MOVi-A to C and 23 elsewhere.
        depth: reads the distance from the camera as well.
        test_split: "test" or "validation"; null for "test", and for "validation" in MOVi-A and B, which have no other.
        crop: the least share of the image that a random crop of a training clip keeps, enlarged to the size of all,
            as SAVi++ has it (0.75); 1 for whole images.
        loader: batches, workers, sizes, and the seed of the videos' order and of the cuts. Training goes through the
            videos again and again until there are `train_size` clips; `val_size` and `test_size` are upper bounds.

    Raises:
        ValueError: for arguments that cannot be; when clips are asked for, as a `DataFilesError`, where the files are
            missing or not what they should be.
    """

    default_sizes: ClassVar[Mapping[Split, int]] = {"train": 1_000_000, "val": 100_000, "test": 100_000}
    prepare_arguments: ClassVar[tuple[str, ...]] = ("path", "resolution", "num_objects", "depth")

    def __init__(
        self,
        path: str,
        num_frames: int = 6,
        eval_frames: int | None = None,
        resolution: int = 128,
        max_objects: int | None = None,
        num_objects: int | None = None,
        depth: bool = False,
        test_split: Literal["test", "validation"] | None = None,
        crop: float = 1.0,
        loader: LoaderOptions = LoaderOptions(val_batch_size=16),
    ) -> None:
        super().__init__(loader)
        check_counts(num_frames=num_frames, eval_frames=eval_frames, resolution=resolution)
        check_counts(max_objects=max_objects, num_objects=num_objects)
        self.path = Path(path).expanduser()
        self.num_frames = num_frames
        self.eval_frames = eval_frames
        self.crop = check_crop(crop)
        self.resolution = resolution
        self.max_objects = max_objects
        self.num_objects = num_objects
        self.depth = depth
        self.test_split = test_split

    @property
    def spec(self) -> DataSpec:
        """Three channels in, three channels out."""
        frame = VideoSpec(channels=3, height=self.resolution, width=self.resolution)
        return DataSpec(input=frame, target=frame)

    def stored_videos(self, split: Split) -> tuple[MOViRecords | ClipCache, np.ndarray | None]:
        """The videos of a split, and those of them that take part if not all do."""
        source = self._source(self._stored(split))
        chosen = None
        if self.max_objects is not None:
            counts = source.field("objects.num_objects") if isinstance(source, ClipCache) else source.object_counts()
            chosen = np.flatnonzero(counts <= self.max_objects)
        return source, chosen

    def prepare(self, out: Path, report: Report, jobs: int | None = None) -> None:
        """Decodes every split that `path` has into a cache below `out`; compares the checksum of every record.

        Raises:
            DataFilesError: there is nothing to prepare, or `out` holds something else.
        """
        if is_cache(self.path / "train"):
            raise DataFilesError(f"{self.path} is a cache already; name the folder of the TFRecords")
        present = [split for split in _STORED.values() if self.path.is_dir() and find_shards(self.path, split)]
        if not present:
            raise self._nothing("train")
        for split in present:
            self._prepare_split(split, out, report, jobs)

    def _prepare_split(self, split: str, out: Path, report: Report, jobs: int | None) -> None:
        source = self._records(split, verify=True)
        total = len(source.lengths)
        jobs = processes_for(jobs, total // _PIECE)
        description = {"set": source.set_name, "split": split, "resolution": self.resolution, "depth": self.depth}
        description["num_objects"] = source.num_objects
        report(split, 0, total)
        pieces = partial(_pieces, source, jobs)
        write_cache(out / split, pieces, description, TIMED, lambda done: report(split, done, total))
        report(split, total, total)

    def _stored(self, split: Split) -> str:
        """The name that a split has on the disk."""
        if split != "test":
            return _STORED[split]
        return self.test_split or ("validation" if self._name() in _WITHOUT_TEST else "test")

    def _name(self) -> str:
        """movi_a to movi_e, as far as the files say."""
        if is_cache(self.path / "validation"):
            return str(ClipCache(self.path / "validation").description.get("set"))
        shards = find_shards(self.path, "validation") if self.path.is_dir() else []
        return shards[0].name.partition("-")[0] if shards else ""

    def _source(self, split: str) -> MOViRecords | ClipCache:
        return self._cache(split) if is_cache(self.path / split) else self._records(split)

    def _records(self, split: str, verify: bool = False) -> MOViRecords:
        shards = find_shards(self.path, split) if self.path.is_dir() else []
        if not shards:
            raise self._nothing(split)
        return MOViRecords(shards, self.resolution, self.num_objects, self.depth, verify)

    def _cache(self, split: str) -> ClipCache:
        cache = ClipCache(self.path / split)
        held = cache.description
        _, channels, height, width = cache.fields["frames"].shape
        if (channels, height, width) != (3, self.resolution, self.resolution):
            raise DataFilesError(
                f"the cache {self.path} holds frames of {height} pixels and resolution is {self.resolution}: set "
                f"resolution to {height}, or prepare another cache"
            )
        if self.depth and not held.get("depth"):
            raise DataFilesError(f"the cache {self.path} was prepared without depth: prepare another with --depth true")
        return cache

    def _nothing(self, split: str) -> DataFilesError:
        what = "has no such files" if self.path.is_dir() else "does not exist"
        hint = "; test_split=validation tests on what it has" if split == "test" and self.path.is_dir() else ""
        return DataFilesError(
            f"no {split} split of MOVi: the folder {self.path} {what}; {_GET.format(split=split)}{hint}"
        )


def _pieces(source: MOViRecords, jobs: int, first: int) -> Iterator[VideoBatch]:
    """All videos from number `first` on, whole."""
    total = len(source.lengths)
    pieces = (range(start, min(start + _PIECE, total)) for start in range(first, total, _PIECE))
    return in_order(partial(_piece, source), pieces, jobs)


def _piece(source: MOViRecords, videos: range) -> VideoBatch:
    return source.read(videos, [0] * len(videos), int(source.lengths[0]))
