"""MOVi's TFRecords, as TensorFlow Datasets writes them: which fields they have, and how a clip is read out of them.

Names, types and meanings are those of Kubric's data set definitions (`challenges/movi/movi_a.py` to `movi_e.py`). A
sequence of fixed-size fields is stored flat; one of variable length as its values and the length of each row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from slotbench.data.base import padded
from slotbench.data.clips import ClipReader
from slotbench.data.formats.images import decode_png, resize_bilinear, resize_nearest
from slotbench.data.formats.tfrecord import Example, TFRecords
from slotbench.errors import DataFilesError

__all__ = ["TIMED", "MOViRecords", "find_shards"]

_EXPECTED = "a record of MOVi as TensorFlow Datasets writes it"

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


class MOViRecords(ClipReader):
    """The videos of one split, of which frames are decoded on demand."""

    def __init__(self, shards: Sequence[Path], resolution: int, num_objects: int | None, depth: bool) -> None:
        self.records = TFRecords(shards)
        self.set_name = shards[0].name.partition("-")[0]
        self.resolution = resolution
        self.num_objects = num_objects or _MOST_OBJECTS.get(self.set_name, _MOST_OBJECTS_ELSEWHERE)
        self.depth = depth
        if not len(self.records):
            raise DataFilesError(f"{shards[0]} and the files beside it have no records: copy them again")
        first = self._example(0)
        self.num_frames = first.number("metadata/num_frames")
        images = len(first.byte_strings("video"))
        if not 1 <= self.num_frames == images:
            raise first.damaged(f"says {self.num_frames:,} frames and has {images:,}: it is damaged")
        self.lengths = np.full(len(self.records), self.num_frames)

    def object_counts(self) -> np.ndarray:
        """The number of objects of each video; looks into every record, without decoding."""
        return np.array([self._count(self._example(index)) for index in range(len(self.records))])

    def clip(self, video: int, frames: range) -> dict[str, np.ndarray]:
        """A clip, of which only these frames are decoded."""
        example, window, side = self._example(video), slice(frames.start, frames.stop), self.resolution
        images = np.empty((len(frames), 3, side, side), np.uint8)
        masks = np.empty((len(frames), 1, side, side), np.uint8)
        self._fill(images, example, "video", window)
        self._fill(masks, example, "segmentations", window)
        return {"frames": images, "masks": masks[:, 0], **self._log(example, window)}

    def _fill(self, out: np.ndarray, example: Example, name: str, window: slice) -> None:
        """Decodes images into `out`, "time channels height width", in its size."""
        size = out.shape[-2:]
        pngs = example.byte_strings(name)
        if len(pngs) != self.num_frames:
            raise example.damaged(
                f"has {len(pngs)} frames of {name}; expected {self.num_frames}, as many as the first record says"
            )
        for number, png in enumerate(pngs[window]):
            try:
                image = decode_png(png)
            except DataFilesError as error:
                raise DataFilesError(f"{example.where}: {error}") from error
            if image.shape[-2:] != size and len(image) == 3:
                image = resize_bilinear(torch.from_numpy(image)[None], *size)[0].numpy()
            out[number] = resize_nearest(image, *size)

    def _log(self, example: Example, window: slice) -> dict[str, np.ndarray]:
        """The simulator's log of the frames of the window: "time objects ..." or "objects ..."."""
        count, room = self._count(example), self.num_objects
        log = {"num_objects": np.array(count), "present": np.arange(room) < count}
        for name, shape in _MOVING.items():
            values = example.floats(f"instances/{name}", (count, self.num_frames, *shape))
            log[name] = padded(values.swapaxes(0, 1)[window], room, axis=1)
        visible = example.ints("instances/visibility", (count, self.num_frames))
        log["visibility"] = padded(visible.T[window], room, axis=1)
        log["bboxes"] = padded(self._boxes(example, count)[window], room, axis=1)
        for name, shape in _CONSTANT.items():
            if f"instances/{name}" in example:
                log[name] = padded(example.floats(f"instances/{name}", (count, *shape)), room)
        for name in _LABELS:
            if f"instances/{name}" in example:
                log[name] = padded(example.ints(f"instances/{name}", (count,)), room, fill=-1)
        for name, shape in _CAMERA_MOVING.items():
            log[f"camera_{name}"] = example.floats(f"camera/{name}", (self.num_frames, *shape))[window]
        for name in _CAMERA_CONSTANT:
            log[f"camera_{name}"] = example.floats(f"camera/{name}", ())
        if "background_color" in example:
            log["background_color"] = example.floats("background_color", (3,))
        if self.depth:
            log["depth"] = self._depth(example, window)
        return log

    def _boxes(self, example: Example, count: int) -> np.ndarray:
        """Boxes "time objects 4"; zeros where an object is not to be seen, for which none is stored."""
        boxes = np.zeros((self.num_frames, count, 4), np.float32)
        rows = example.ints("instances/bbox_frames/ragged_row_lengths_0", (count,))
        frames = example.ints("instances/bbox_frames/ragged_flat_values", None)
        values = example.floats("instances/bboxes/ragged_flat_values", (len(frames), 4))
        in_range = bool(((frames >= 0) & (frames < self.num_frames)).all())
        if not in_range or bool((rows < 0).any() | (rows > self.num_frames).any()) or rows.sum() != len(frames):
            raise example.damaged("has boxes of frames that it has not: it is damaged")
        boxes[frames, np.repeat(np.arange(count), rows)] = values
        return boxes

    def _depth(self, example: Example, window: slice) -> np.ndarray:
        """Distance from the camera in the simulator's units: "time height width"."""
        nearest, farthest = example.floats("metadata/depth_range", (2,))
        stored = np.empty((window.stop - window.start, 1, self.resolution, self.resolution), np.float32)
        self._fill(stored, example, "depth", window)
        return stored[:, 0] / np.float32(65535) * (farthest - nearest) + nearest

    def _count(self, example: Example) -> int:
        count = example.number("metadata/num_instances")
        if count < 0:
            raise example.damaged(f"has {count} objects: it is damaged")
        if count > self.num_objects:
            raise example.damaged(
                f"has {count} objects, and annotations have room for {self.num_objects}: set num_objects to the most "
                f"that a video of {self.set_name} has"
            )
        return count

    def _example(self, video: int) -> Example:
        return Example(self.records[video], self.records.where(video), _EXPECTED)


def find_shards(folder: Path, split: str) -> list[Path]:
    """The TFRecord files of a split in a folder, or in the one folder below it (three levels at most) that has any.

    Returns an empty list if there are none.
    """
    pattern = f"*-{split}.tfrecord-*-of-*"
    folders = sorted({file.parent for depth in ("", "*/", "*/*/", "*/*/*/") for file in folder.glob(depth + pattern)})
    if not folders:
        return []
    if len(folders) > 1:
        raise DataFilesError(f"{folder} holds several data sets: name one of {', '.join(map(str, folders))}")
    files = sorted(folders[0].glob(pattern))
    total = int(re.sub(r".*-of-", "", files[0].name))
    if len(files) != total:
        raise DataFilesError(f"{folders[0]} has {len(files)} of the {total} files of {pattern}: copy the others too")
    return files
