"""The videos of a split of CLEVRER, read from the released files: movies, annotations and proposals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from slotbench.data.base import padded
from slotbench.data.clips import ClipReader
from slotbench.data.formats.annotations import read_annotations
from slotbench.data.formats.coco_runs import decode_coco_runs
from slotbench.data.formats.images import Fit
from slotbench.data.formats.movies import MovieFile, keep_movies
from slotbench.errors import DataFilesError
from slotbench.interfaces import View

__all__ = ["LAYOUT", "TIMED", "ClevrerVideos", "find_places", "pseudo_masks", "read_annotation"]

TIMED = ("positions", "velocities", "inside_view", "collisions")
"""The entries of `objects` that have an axis of frames after that of videos."""

LAYOUT = (
    "expected videos/train/video_00000-01000/video_00000.mp4 and so on, and beside videos/ annotations/train/"
    "annotation_00000-01000/annotation_00000.json and derender_proposals/proposal_00000.json; folders that are called "
    "video_train, video_validation, video_test, annotation_train and annotation_validation will do as well"
)

_FRAMES = 128
_BROKEN = (10800,)  # whose released annotation is not right
_NAME = re.compile(r"video_(\d{5})\.mp4")
_BLOCK = 1000  # videos of a folder


@dataclass(frozen=True)
class Places:
    """Where the files of a split are.

    Attributes:
        videos: the folder of the movies.
        annotations: the folder of the annotations; None where there is none.
        proposals: the folder of the detections; None where there is none.
    """

    videos: Path
    annotations: Path | None
    proposals: Path | None


def find_places(path: Path, stored: str) -> Places | None:
    """The folders of a split, "train", "validation" or "test"; None without its videos."""
    names = (stored, "val") if stored == "validation" else (stored,)

    def first(kind: str) -> Path | None:
        tried = [path / f"{kind}s" / name for name in names] + [path / f"{kind}_{name}" for name in names]
        return next((folder for folder in tried if folder.is_dir()), None)

    videos, proposals = first("video"), path / "derender_proposals"
    if videos is None:
        return None
    return Places(videos, first("annotation"), proposals if proposals.is_dir() else None)


def movies_of(places: Places) -> dict[int, Path]:
    """The movies of a split by number, in order, without the one whose annotation is broken."""
    found: dict[int, Path] = {}
    for pattern in ("video_*.mp4", "video_*-*/video_*.mp4"):
        for file in places.videos.glob(pattern):
            if (match := _NAME.fullmatch(file.name)) and int(match[1]) not in _BROKEN:
                found[int(match[1])] = file
    if not found:
        raise DataFilesError(f"there is no video in {places.videos}; {LAYOUT}")
    return dict(sorted(found.items()))


class ClevrerVideos(ClipReader):
    """The videos of a split."""

    def __init__(
        self, places: Places, fit: Fit, stride: int = 1, masks: bool = True, annotations: bool = True, keep: bool = True
    ) -> None:
        self.places, self.fit, self.stride = places, fit, stride
        movies = {number: MovieFile(file, fit if keep else None) for number, file in movies_of(places).items()}
        keep_movies(movies.values())
        self.numbers, self.movies = list(movies), list(movies.values())
        self.masks, self.annotations = masks, annotations and places.annotations is not None
        self.lengths = np.full(len(self.movies), -(-_FRAMES // stride))

    def name(self, video: int, start: int) -> str:
        """The name of the video, and the first frame of the clip in it."""
        return f"{self.video_name(video)}_frame{start * self.stride:05d}"

    def video_name(self, video: int) -> str:
        """The file's name without its ending."""
        return f"video_{self.numbers[video]:05d}"

    def origin(self, video: int) -> str:
        """The file."""
        return str(self.movies[video].path)

    def view(self, video: int) -> View:
        """The square in the middle, or all of the frame where it is stretched."""
        return self.fit.view(self.movies[video].size)

    def clip(self, video: int, frames: range) -> dict[str, np.ndarray]:
        """A clip, with masks and annotations if the data set reads them."""
        number, movie = self.numbers[video], self.movies[video]
        found = movie.fitted(frames, self.fit)
        if movie.length != _FRAMES:
            raise DataFilesError(f"{movie.path} does not have {_FRAMES} frames; move it away")
        clip = {"frames": found, "number": np.array(number)}
        annotation = self._annotation(number) if self.annotations else None
        if annotation is not None:
            clip |= _log(annotation, frames, self.stride)
        if self.masks:
            if self.places.proposals is None:
                folder = self.places.videos.parent
                raise DataFilesError(f"no derender_proposals beside {folder}; give masks: false to do without")
            known = None if annotation is None else annotation.appearances
            file = self.places.proposals / f"proposal_{number:05d}.json"
            clip["masks"] = self.fit.masks(pseudo_masks(file, frames, movie.size, known))
        return clip

    def _annotation(self, number: int) -> ClevrerAnnotation:
        folder = self.places.annotations
        assert folder is not None
        name, block = f"annotation_{number:05d}.json", number // _BLOCK * _BLOCK
        file = folder / f"annotation_{block:05d}-{block + _BLOCK:05d}" / name
        return read_annotation(file if file.is_file() or not (folder / name).is_file() else folder / name, _FRAMES)


def _log(annotation: ClevrerAnnotation, frames: Sequence[int], stride: int) -> dict[str, np.ndarray]:
    """The entries of `objects` from an annotation, padded."""
    count, appearances = len(annotation.appearances), annotation.appearances
    # what happened in frames that are not shown belongs to the next one that is
    since = [annotation.collisions[max(0, frame - stride + 1) : frame + 1].any(0) for frame in frames]
    timed = {
        "positions": annotation.positions[list(frames)],
        "velocities": annotation.velocities[list(frames)],
        "inside_view": annotation.inside[list(frames)],
    }
    labels = {
        "color_label": [COLORS.index(color) for color, _, _ in appearances],
        "material_label": [MATERIALS.index(material) for _, material, _ in appearances],
        "shape_label": [SHAPES.index(shape) for _, _, shape in appearances],
    }
    return {
        "num_objects": np.array(count),
        "present": np.arange(MOST_OBJECTS) < count,
        "collisions": padded(padded(np.stack(since), MOST_OBJECTS, axis=1), MOST_OBJECTS, axis=2),
        **{name: padded(values, MOST_OBJECTS, axis=1) for name, values in timed.items()},
        **{name: padded(np.array(values), MOST_OBJECTS, fill=-1) for name, values in labels.items()},
    }


Appearance = tuple[str, str, str]
"""Colour, material and shape: no two objects of a video have the same ones."""

SHAPES = ("cube", "cylinder", "sphere")
MATERIALS = ("metal", "rubber")
COLORS = ("blue", "brown", "cyan", "gray", "green", "purple", "red", "yellow")
"""By label, sorted by name as in `MOViLike`."""

MOST_OBJECTS = 12
_ANNOTATIONS = (
    "expected `object_property` (object_id, color, material, shape), `motion_trajectory` (frame_id, and of each of its "
    "objects object_id, location, velocity, inside_camera_view), and `collision` (frame_id, object_ids)"
)
_MASKS = (
    "expected `frames`, each with frame_index and `objects`, each of these with color, material, shape, score, and a "
    "mask of size (height, width) and counts, as in derender_proposals"
)


@dataclass(frozen=True)
class ClevrerAnnotation:
    """A video's annotation, from the simulator that made it.

    Attributes:
        appearances: of each object.
        positions: in the simulator's units "time objects 3".
        velocities: "time objects 3".
        inside: whether an object is inside the camera's view; it may be hidden all the same "time objects".
        collisions: whether two objects meet in a frame "time objects objects".
    """

    appearances: list[Appearance]
    positions: np.ndarray
    velocities: np.ndarray
    inside: np.ndarray
    collisions: np.ndarray


def read_annotation(path: Path, num_frames: int) -> ClevrerAnnotation:
    """The annotation in a file. An object that a frame does not list is outside the view in it, and at 0."""
    parse = partial(_parsed, num_frames=num_frames)
    return read_annotations(path, parse, "annotations", _ANNOTATIONS)


def _parsed(content: dict[str, Any], num_frames: int) -> ClevrerAnnotation:
    properties = content["object_property"]
    if not 1 <= len(properties) <= MOST_OBJECTS:
        raise ValueError(f"{len(properties)} objects")
    places = {int(item["object_id"]): index for index, item in enumerate(properties)}
    appearances = [(str(item["color"]), str(item["material"]), str(item["shape"])) for item in properties]
    if len(places) < len(properties) or len(set(appearances)) < len(properties):
        raise ValueError("two objects are alike")
    for color, material, shape in appearances:
        if color not in COLORS or material not in MATERIALS or shape not in SHAPES:
            raise ValueError(f"an object that is {color[:20]!r}, {material[:20]!r} and {shape[:20]!r}")
    count = len(properties)
    positions, velocities = (np.zeros((num_frames, count, 3)) for _ in range(2))
    inside = np.zeros((num_frames, count), bool)
    steps = content["motion_trajectory"]
    if sorted(int(step["frame_id"]) for step in steps) != list(range(num_frames)):
        raise ValueError(f"its frames are not 0 to {num_frames - 1}")
    for step in steps:
        frame = step["frame_id"]
        for item in step["objects"]:
            place = places[int(item["object_id"])]
            positions[frame, place] = _vector(item["location"])
            velocities[frame, place] = _vector(item["velocity"])
            inside[frame, place] = item["inside_camera_view"] is True
    collisions = np.zeros((num_frames, count, count), bool)
    for event in content["collision"]:
        frame = int(event["frame_id"])
        first, second = (places[int(number)] for number in event["object_ids"])
        if not 0 <= frame < num_frames:
            raise ValueError(f"a collision in frame {frame}")
        collisions[frame, first, second] = collisions[frame, second, first] = True
    return ClevrerAnnotation(
        appearances, positions.astype(np.float32), velocities.astype(np.float32), inside, collisions
    )


def _vector(value: Any) -> list[float]:
    x, y, z = value
    return [float(x), float(y), float(z)]


def pseudo_masks(
    path: Path, frames: Sequence[int], size: tuple[int, int], known: Sequence[Appearance] | None = None
) -> UInt8[np.ndarray, "time height width"]:
    """Ids of frames: a detection is the object of the same colour, material and shape, and the background is 0.

    Of several detections of one object in a frame the one of the highest score counts, and where detections overlap the
    pixel is of the higher score. A detection that is like no known object is background.
    """
    paint = partial(_painted, numbers=frames, size=size, known=known)
    return read_annotations(path, paint, "masks", _MASKS)


def _painted(
    content: dict[str, Any], numbers: Sequence[int], size: tuple[int, int], known: Sequence[Appearance] | None
) -> np.ndarray:
    frames = {frame["frame_index"]: frame["objects"] for frame in content["frames"]}
    if known is None:
        known = list(dict.fromkeys(_appearance(item) for frame in sorted(frames) for item in frames[frame]))
    ids = {appearance: number for number, appearance in enumerate(known, start=1)}
    masks = np.zeros((len(numbers), *size), np.uint8)
    for mask, number in zip(masks, numbers, strict=True):
        best: dict[Appearance, tuple[float, Any]] = {}
        for item in frames[number]:
            appearance, score = _appearance(item), float(item["score"])
            if appearance in ids and (appearance not in best or score > best[appearance][0]):
                best[appearance] = (score, item["mask"])
        # the highest score last, over all others
        for appearance, (_, found) in sorted(best.items(), key=lambda entry: entry[1][0]):
            if list(found["size"]) != list(size):
                raise ValueError(f"a mask of {str(found['size'])[:30]} in a frame of {size[0]} x {size[1]} pixels")
            mask[decode_coco_runs(found["counts"], *size)] = ids[appearance]
    return masks


def _appearance(item: Any) -> Appearance:
    return str(item["color"]), str(item["material"]), str(item["shape"])
