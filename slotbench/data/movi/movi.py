"""MOVi-A to E, from the TFRecords of TensorFlow Datasets or from a cache, without TensorFlow."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from slotbench.data.base import LoaderOptions, Split, check_counts
from slotbench.data.clip_cache import ClipCache, is_cache
from slotbench.data.clips import ClipSource
from slotbench.data.crops import check_crop
from slotbench.data.movi.record import TIMED, MOViRecords, find_shards
from slotbench.data.preparing import PreparableVideos
from slotbench.errors import MissingSplitError

__all__ = ["MOVi"]

_WITHOUT_TEST = ("movi_a", "movi_b")

_GET = (
    "expected the files NAME-{split}.tfrecord-00000-of-00256 and so on, as TensorFlow Datasets keeps them (NAME is "
    "movi_a to movi_e), or what `slotbench prepare MOVi` made of them. They are public: "
    "`gsutil -m cp -r gs://kubric-public/tfds/movi_a/128x128/1.0.0 DIR` copies one set, and so does "
    '`tfds.load("movi_a/128x128", data_dir="gs://kubric-public/tfds")` with tensorflow-datasets'
)


class MOVi(PreparableVideos):
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
        eval_frames: frames of a validation or test clip, cut one after the other; null for whole videos of 24.
        resolution: pixels per side of what is read, whatever is on the disk.
        max_objects: passes over videos of more objects; null takes all.
        num_objects: entries that annotations are padded to; null for 10 in MOVi-A to C and 23 elsewhere.
        depth: reads the distance from the camera as well.
        test_split: "test" or "validation"; null for "test", and for "validation" in MOVi-A and B, which have no other.
        crop: the least share of the image that a random crop of a training clip keeps, enlarged to the size of all,
            as SAVi++ has it (0.75); 1 for whole images.
    """

    timed: ClassVar[Collection[str]] = TIMED
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
        super().__init__(loader, num_frames, eval_frames)
        check_counts(resolution=resolution, max_objects=max_objects, num_objects=num_objects)
        self.path = Path(path).expanduser()
        self.crop = check_crop(crop)
        self.resolution = resolution
        self.max_objects = max_objects
        self.num_objects = num_objects
        self.depth = depth
        self.test_split = test_split

    def stored_videos(self, split: Split) -> tuple[ClipSource, np.ndarray | None]:
        """The videos of a split, and those of them that take part if not all do."""
        source = self.source(split)
        if self.max_objects is None:
            return source, None
        records = isinstance(source, MOViRecords)
        counts = source.object_counts() if records else source.field("objects.num_objects")  # type: ignore[attr-defined]
        return source, np.flatnonzero(counts <= self.max_objects)

    def stored_name(self, split: Split) -> str:
        """The name of a split on the disk."""
        if split != "test":
            return super().stored_name(split)
        return self.test_split or ("validation" if self._name() in _WITHOUT_TEST else "test")

    def has(self, stored: str) -> bool:
        """Whether there are files of this split."""
        return bool(self._shards(stored))

    def released(self, stored: str, keep: bool = True) -> MOViRecords:
        """The videos of a split in TFRecords."""
        if shards := self._shards(stored):
            return MOViRecords(shards, self.resolution, self.num_objects, self.depth)
        what = "has no such files" if self.path.is_dir() else "does not exist"
        hint = "; test_split=validation tests on what it has" if stored == "test" and self.path.is_dir() else ""
        raise MissingSplitError(
            f"no {stored} split of MOVi: the folder {self.path} {what}; {_GET.format(split=stored)}{hint}"
        )

    def describe(self, stored: str, source: MOViRecords) -> dict[str, Any]:
        """The set, the split, and the arguments that frames and annotations depend on."""
        look = {"resolution": self.resolution, "depth": self.depth, "num_objects": source.num_objects}
        return {"set": source.set_name, "split": stored, **look}

    def opened(self, stored: str) -> ClipCache:
        """The cache of a split, of frames of this resolution."""
        cache = ClipCache(self.path / stored)
        cache.check({"depth": self.depth}, resolution=self.resolution)
        return cache

    def _shards(self, stored: str) -> list[Path]:
        return find_shards(self.path, stored) if self.path.is_dir() else []

    def _name(self) -> str:
        """The set's name in the files, movi_a to movi_e; empty without files."""
        if is_cache(self.path / "validation"):
            return str(ClipCache(self.path / "validation").description.get("set"))
        shards = self._shards("validation")
        return shards[0].name.partition("-")[0] if shards else ""
