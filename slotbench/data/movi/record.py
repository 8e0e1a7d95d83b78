"""MOVi's TFRecords, as TensorFlow Datasets writes them: which fields they have, and how a clip is read out of them.

Names, types and meanings are those of Kubric's data set definitions (`challenges/movi/movi_a.py` to `movi_e.py`). A
sequence of fixed-size fields is stored flat; one of variable length as its values and the length of each row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from itertools import filterfalse, islice
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from slotbench.data.clips import ClipSource
from slotbench.data.formats.images import decode_png, resize_bilinear, resize_nearest
from slotbench.data.formats.tfrecord import Feature, TFRecords, parse_example
from slotbench.errors import DataFilesError
from slotbench.interfaces import VideoBatch

__all__ = ["TIMED", "MOViRecords", "find_shards"]

Decoded = TypeVar("Decoded")

# per instance and frame, with the shape of one value
_MOVING: dict[str, tuple[int, ...]] = {
    "positions": (3,),
    "quaternions": (4,),
    "velocities": (3,),
    "angular_velocities": (3,),
    "image_positions": (2,),
}
# per instance
_CONSTANT: dict[str, tuple[int, ...]] = {"mass": (), "friction": (), "restitution": (), "scale": (), "color": (3,)}
_LABELS = ("shape_label", "size_label", "color_label", "material_label", "category", "is_dynamic")
_CAMERA_MOVING: dict[str, tuple[int, ...]] = {"positions": (3,), "quaternions": (4,)}
_CAMERA_CONSTANT = ("focal_length", "sensor_width", "field_of_view")

TIMED = (*_MOVING, "visibility", "bboxes", "depth", *(f"camera_{name}" for name in _CAMERA_MOVING))
"""The entries of `objects` that have an axis of frames."""

_MOST_OBJECTS = {"movi_a": 10, "movi_b": 10, "movi_c": 10}
_MOST_OBJECTS_ELSEWHERE = 23


class MOViRecords(ClipSource):
    """The videos of one split, decoded frame by frame as they are asked for.

    Args:
        shards: the split's files.
        resolution: pixels per side of what is read.
        num_objects: entries that annotations are padded to; None for 10 in MOVi-A to C and 23 elsewhere.
        depth: whether the distance from the camera is read too.
        verify: whether checksums are compared.

    Raises:
        DataFilesError: the files are not what they should be.
    """

    def __init__(
        self, shards: Sequence[Path], resolution: int, num_objects: int | None, depth: bool, verify: bool = False
    ) -> None:
        self.records = TFRecords(shards, verify)
        self.set_name = shards[0].name.partition("-")[0]
        self.resolution = resolution
        self.num_objects = num_objects or _MOST_OBJECTS.get(self.set_name, _MOST_OBJECTS_ELSEWHERE)
        self.depth = depth
        if not len(self.records):
            raise DataFilesError(f"{shards[0]} and the files beside it have no records: copy them again")
        first = self._example(0)
        self.num_frames = self._number(first, "metadata/num_frames", 0)
        images = len(self._byte_strings(first, "video", 0))
        if not 1 <= self.num_frames == images:
            raise DataFilesError(
                f"{self.records.where(0)} says {self.num_frames:,} frames and has {images:,}: it is damaged"
            )
        self.lengths = np.full(len(self.records), self.num_frames)

    def object_counts(self) -> np.ndarray:
        """The number of objects of each video; looks into every record, without decoding."""
        return np.array([self._count(self._example(index), index) for index in range(len(self.records))])

    def read(self, videos: Sequence[int], starts: Sequence[int], num_frames: int) -> VideoBatch:
        """Clips; only their frames are decoded."""
        frames = np.empty((len(videos), num_frames, 3, self.resolution, self.resolution), np.uint8)
        masks = np.empty((len(videos), num_frames, self.resolution, self.resolution), np.uint8)
        logs = []
        for clip, (video, start) in enumerate(zip(videos, starts, strict=True)):
            example = self._example(video)
            window = slice(start, start + num_frames)
            self._fill(frames[clip], self._pngs(example, "video", video)[window], video)
            self._fill(masks[clip, :, None], self._pngs(example, "segmentations", video)[window], video)
            logs.append(self._log(example, video, window))
        objects = {name: torch.from_numpy(np.stack([log[name] for log in logs])) for name in logs[0]}
        return VideoBatch(
            frames=torch.from_numpy(frames),
            time=torch.arange(num_frames).repeat(len(videos), 1),
            masks=torch.from_numpy(masks),
            objects=objects | {"video": torch.tensor(videos), "first_frame": torch.tensor(starts)},
        )

    def _fill(self, out: np.ndarray, pngs: list[memoryview], video: int) -> None:
        """Decodes images into `out`, "time channels height width", in its size."""
        for number, png in enumerate(pngs):
            try:
                image = decode_png(png)
            except DataFilesError as error:
                raise DataFilesError(f"{self.records.where(video)}: {error}") from error
            if len(image) != out.shape[1]:
                raise DataFilesError(
                    f"{self.records.where(video)}: an image has {len(image)} channels; expected {out.shape[1]}"
                )
            if image.dtype == np.uint16 and out.dtype == np.uint8:
                raise DataFilesError(f"{self.records.where(video)}: an image has 16 bits per channel; expected 8")
            if image.shape[-2:] != out.shape[-2:]:
                size = out.shape[-2:]
                if len(image) == 3:
                    image = resize_bilinear(torch.from_numpy(image)[None], *size)[0].numpy()
                else:
                    image = resize_nearest(image, *size)
            out[number] = image

    def _log(self, example: dict[str, Feature], video: int, window: slice) -> dict[str, np.ndarray]:
        """What the simulator says about the frames of the window: "time objects ..." or "objects ..."."""
        count = self._count(example, video)
        log = {"num_objects": np.array(count), "present": np.arange(self.num_objects) < count}
        for name, shape in _MOVING.items():
            values = self._values(example, f"instances/{name}", (count, self.num_frames, *shape), video)
            log[name] = self._padded(values.swapaxes(0, 1)[window], axis=1)
        visible = self._ints(example, "instances/visibility", (count, self.num_frames), video)
        log["visibility"] = self._padded(visible.T[window], axis=1)
        log["bboxes"] = self._padded(self._boxes(example, count, video)[window], axis=1)
        for name, shape in _CONSTANT.items():
            if f"instances/{name}" in example:
                log[name] = self._padded(self._values(example, f"instances/{name}", (count, *shape), video))
        for name in _LABELS:
            if f"instances/{name}" in example:
                log[name] = self._padded(self._ints(example, f"instances/{name}", (count,), video), fill=-1)
        for name, shape in _CAMERA_MOVING.items():
            log[f"camera_{name}"] = self._values(example, f"camera/{name}", (self.num_frames, *shape), video)[window]
        for name in _CAMERA_CONSTANT:
            log[f"camera_{name}"] = self._values(example, f"camera/{name}", (), video)
        if "background_color" in example:
            log["background_color"] = self._values(example, "background_color", (3,), video)
        if self.depth:
            log["depth"] = self._depth(example, video, window)
        return log

    def _boxes(self, example: dict[str, Feature], count: int, video: int) -> np.ndarray:
        """Boxes "time objects 4"; zeros where an object is not to be seen, for which none is stored."""
        boxes = np.zeros((self.num_frames, count, 4), np.float32)
        rows = self._ints(example, "instances/bbox_frames/ragged_row_lengths_0", (count,), video)
        frames = self._ints(example, "instances/bbox_frames/ragged_flat_values", None, video)
        values = self._values(example, "instances/bboxes/ragged_flat_values", (len(frames), 4), video)
        in_range = bool(((frames >= 0) & (frames < self.num_frames)).all())
        if not in_range or bool((rows < 0).any() | (rows > self.num_frames).any()) or rows.sum() != len(frames):
            raise DataFilesError(f"{self.records.where(video)} has boxes of frames that it has not: it is damaged")
        boxes[frames, np.repeat(np.arange(count), rows)] = values
        return boxes

    def _depth(self, example: dict[str, Feature], video: int, window: slice) -> np.ndarray:
        """Distance from the camera in the simulator's units: "time height width"."""
        nearest, farthest = self._values(example, "metadata/depth_range", (2,), video)
        pngs = self._pngs(example, "depth", video)[window]
        stored = np.empty((len(pngs), 1, self.resolution, self.resolution), np.float32)
        self._fill(stored, pngs, video)
        return stored[:, 0] / np.float32(65535) * (farthest - nearest) + nearest

    def _padded(self, values: np.ndarray, axis: int = 0, fill: int = 0) -> np.ndarray:
        shape = list(values.shape)
        shape[axis] = self.num_objects
        out = np.full(shape, fill, values.dtype)
        out[(slice(None),) * axis + (slice(0, values.shape[axis]),)] = values
        return out

    def _count(self, example: dict[str, Feature], video: int) -> int:
        count = self._number(example, "metadata/num_instances", video)
        if count < 0:
            raise DataFilesError(f"{self.records.where(video)} has {count} objects: it is damaged")
        if count > self.num_objects:
            raise DataFilesError(
                f"{self.records.where(video)} has {count} objects, and annotations have room for {self.num_objects}: "
                f"set num_objects to the most that a video of {self.set_name} has"
            )
        return count

    def _example(self, video: int) -> dict[str, Feature]:
        try:
            return parse_example(self.records[video])
        except DataFilesError as error:
            raise DataFilesError(f"{self.records.where(video)}: {error}") from error

    def _feature(self, example: dict[str, Feature], name: str, video: int) -> Feature:
        if name not in example:
            known = ", ".join(sorted(example)) or "nothing"
            raise DataFilesError(
                f"{self.records.where(video)} has no {name}; expected a record of MOVi as TensorFlow Datasets writes "
                f"it, and found {known}"
            )
        return example[name]

    def _values(self, example: dict[str, Feature], name: str, shape: tuple[int, ...], video: int) -> np.ndarray:
        feature = self._feature(example, name, video)
        return self._shaped(self._decoded(feature.floats, name, video), name, shape, video)

    def _ints(self, example: dict[str, Feature], name: str, shape: tuple[int, ...] | None, video: int) -> np.ndarray:
        values = self._decoded(self._feature(example, name, video).ints, name, video)
        return values if shape is None else self._shaped(values, name, shape, video)

    def _number(self, example: dict[str, Feature], name: str, video: int) -> int:
        return int(self._ints(example, name, (1,), video)[0])

    def _byte_strings(self, example: dict[str, Feature], name: str, video: int) -> list[memoryview]:
        return self._decoded(self._feature(example, name, video).byte_strings, name, video)

    def _decoded(self, decode: Callable[[], Decoded], name: str, video: int) -> Decoded:
        try:
            return decode()
        except DataFilesError as error:
            raise DataFilesError(f"{self.records.where(video)}: {name}: {error}") from error

    def _shaped(self, values: np.ndarray, name: str, shape: tuple[int, ...], video: int) -> np.ndarray:
        if len(values) != math.prod(shape):
            raise DataFilesError(
                f"{self.records.where(video)}: {name} has {len(values)} values; expected {math.prod(shape)} in the "
                f"shape {shape}"
            )
        return values.reshape(shape)

    def _pngs(self, example: dict[str, Feature], name: str, video: int) -> list[memoryview]:
        pngs = self._byte_strings(example, name, video)
        if len(pngs) != self.num_frames:
            raise DataFilesError(
                f"{self.records.where(video)}: {name} has {len(pngs)} frames; expected {self.num_frames}, as many as "
                "the first record says"
            )
        return pngs


def find_shards(folder: Path, split: str) -> list[Path]:
    """The TFRecord files of a split in a folder, or in the one folder below it (three levels at most) that has any.

    Returns an empty list if there are none.

    Raises:
        DataFilesError: several folders have them, or some of the files of the split are missing.
    """
    pattern = f"*-{split}.tfrecord-*-of-*"
    folders = sorted({file.parent for depth in ("", "*/", "*/*/", "*/*/*/") for file in folder.glob(depth + pattern)})
    if not folders:
        return []
    if len(folders) > 1:
        raise DataFilesError(f"{folder} holds several data sets: name one of {', '.join(map(str, folders))}")
    files = sorted(folders[0].glob(pattern))
    unlike = [file.name for file in files if not re.fullmatch(r".*-[0-9]{1,7}-of-[0-9]{1,7}", file.name)]
    if unlike:
        raise DataFilesError(f"{folders[0]} has a file {unlike[0]}; expected {pattern} with numbers: move it away")
    total = int(re.sub(r".*-of-", "", files[0].name))
    if len(files) != total:
        present = {int(file.name.split("-of-")[0].rpartition("-")[2]) for file in files}
        missing = [str(number) for number in islice(filterfalse(present.__contains__, range(total)), 11)]
        raise DataFilesError(
            f"{folders[0]} has {len(files)} of the {total} files of {files[0].name.partition('.')[0]}; missing are the "
            f"numbers {', '.join(missing[:10])}{' ...' if len(missing) > 10 else ''}: copy them too"
        )
    return files
