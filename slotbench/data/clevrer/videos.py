"""The videos of a split of CLEVRER, read from the released files: movies, annotations and proposals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, UInt8

from slotbench.data.base import padded
from slotbench.data.clips import ClipReader
from slotbench.data.formats.annotations import read_annotations
from slotbench.data.formats.images import Fit
from slotbench.data.formats.movies import MovieFile, keep_movies
from slotbench.errors import DataFilesError, MissingSplitError
from slotbench.interfaces import View

__all__ = ["LAYOUT", "TIMED", "ClevrerVideos", "decode_coco_runs", "folder_of", "pseudo_masks", "read_annotation"]

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
_FIRST, _MORE, _SIGN, _BITS = 48, 0x20, 0x10, 5  # of the characters of packed run lengths


def folder_of(path: Path, kind: str, stored: str) -> Path | None:
    """The folder of the "video" or "annotation" files of a split, "train", "validation" or "test"; None without one."""
    names = (stored, "val") if stored == "validation" else (stored,)
    tried = [path / f"{kind}s" / name for name in names] + [path / f"{kind}_{name}" for name in names]
    return next((folder for folder in tried if folder.is_dir()), None)


def movies_of(folder: Path) -> dict[int, Path]:
    """The movies of a split by number, in order, without the one whose annotation is broken."""
    found: dict[int, Path] = {}
    for pattern in ("video_*.mp4", "video_*-*/video_*.mp4"):
        for file in folder.glob(pattern):
            if (match := _NAME.fullmatch(file.name)) and int(match[1]) not in _BROKEN:
                found[int(match[1])] = file
    if not found:
        raise DataFilesError(f"there is no video in {folder}; {LAYOUT}")
    return dict(sorted(found.items()))


class ClevrerVideos(ClipReader):
    """The videos of a split."""

    def __init__(
        self, path: Path, stored: str, fit: Fit, stride: int = 1, masks: bool = True, annotations: bool = True,
        keep: bool = True,
    ) -> None:  # fmt: skip
        videos, self.annotations = folder_of(path, "video", stored), folder_of(path, "annotation", stored)
        if videos is None:
            what = "has no such videos" if path.is_dir() else "does not exist"
            raise MissingSplitError(f"no {stored} split of CLEVRER: the folder {path} {what}; {LAYOUT}")
        if annotations and self.annotations is None and stored != "test":
            raise DataFilesError(
                f"{path} has no annotations of the {stored} split; give annotations: false to do without; {LAYOUT}"
            )
        self.annotations = self.annotations if annotations else None
        self.proposals = path / "derender_proposals" if masks else None
        if self.proposals is not None and not self.proposals.is_dir():
            raise DataFilesError(f"there is no folder {self.proposals}; give masks: false to do without")
        self.fit, self.stride = fit, stride
        movies = {number: MovieFile(file, fit if keep else None) for number, file in movies_of(videos).items()}
        keep_movies(movies.values())
        self.numbers, self.movies = list(movies), list(movies.values())
        self.lengths = np.full(len(self.movies), -(-_FRAMES // stride))

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
        annotation = None if self.annotations is None else read_annotation(_file(self.annotations, number))
        if annotation is not None:
            clip |= _log(annotation, frames, self.stride)
        if self.proposals is not None:
            known = None if annotation is None else annotation.appearances
            file = self.proposals / f"proposal_{number:05d}.json"
            clip["masks"] = self.fit.masks(pseudo_masks(file, frames, movie.size, known))
        return clip


def _file(folder: Path, number: int) -> Path:
    """The annotation of a video, in a folder of a thousand, or beside all others."""
    name, block = f"annotation_{number:05d}.json", number // _BLOCK * _BLOCK
    file = folder / f"annotation_{block:05d}-{block + _BLOCK:05d}" / name
    return file if file.is_file() else folder / name


def _log(annotation: ClevrerAnnotation, frames: Sequence[int], stride: int) -> dict[str, np.ndarray]:
    """The entries of `objects` from an annotation, padded."""
    count = len(annotation.appearances)
    # what happened in frames that are not shown belongs to the next one that is
    since = [annotation.collisions[max(0, frame - stride + 1) : frame + 1].any(0) for frame in frames]
    timed = {
        "positions": annotation.positions[list(frames)],
        "velocities": annotation.velocities[list(frames)],
        "inside_view": annotation.inside[list(frames)],
    }
    labels = zip(("color_label", "material_label", "shape_label"), annotation.labels.T, strict=True)
    return {
        "num_objects": np.array(count),
        "present": np.arange(MOST_OBJECTS) < count,
        "collisions": padded(padded(np.stack(since), MOST_OBJECTS, axis=1), MOST_OBJECTS, axis=2),
        **{name: padded(values, MOST_OBJECTS, axis=1) for name, values in timed.items()},
        **{name: padded(values, MOST_OBJECTS, fill=-1) for name, values in labels},
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
        labels: places in `COLORS`, `MATERIALS` and `SHAPES` "objects 3".
        positions: in the simulator's units "time objects 3".
        velocities: "time objects 3".
        inside: whether an object is inside the camera's view; it may be hidden all the same "time objects".
        collisions: whether two objects meet in a frame "time objects objects".
    """

    appearances: list[Appearance]
    labels: np.ndarray
    positions: np.ndarray
    velocities: np.ndarray
    inside: np.ndarray
    collisions: np.ndarray


def read_annotation(path: Path) -> ClevrerAnnotation:
    """The annotation in a file. An object that a frame does not list is outside the view in it, and at 0."""
    return read_annotations(path, _parsed, "annotations", _ANNOTATIONS)


def _parsed(content: dict[str, Any]) -> ClevrerAnnotation:
    properties = content["object_property"]
    places = {item["object_id"]: index for index, item in enumerate(properties)}
    appearances = [_appearance(item) for item in properties]
    count = len(set(appearances))
    if not 1 <= count == len(places) == len(properties) <= MOST_OBJECTS:
        raise ValueError(f"{len(properties)} objects, or two are alike")
    labels = [
        (COLORS.index(color), MATERIALS.index(material), SHAPES.index(shape)) for color, material, shape in appearances
    ]
    positions, velocities = (np.zeros((_FRAMES, count, 3), np.float32) for _ in range(2))
    inside, collisions = np.zeros((_FRAMES, count), bool), np.zeros((_FRAMES, count, count), bool)
    steps = content["motion_trajectory"]
    if sorted(step["frame_id"] for step in steps) != list(range(_FRAMES)):
        raise ValueError(f"its frames are not 0 to {_FRAMES - 1}")
    for step in steps:
        for item in step["objects"]:
            at = step["frame_id"], places[item["object_id"]]
            positions[at], velocities[at], inside[at] = item["location"], item["velocity"], item["inside_camera_view"]
    for event in content["collision"]:
        first, second = (places[number] for number in event["object_ids"])
        collisions[event["frame_id"], first, second] = collisions[event["frame_id"], second, first] = True
    return ClevrerAnnotation(appearances, np.array(labels), positions, velocities, inside, collisions)


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


def decode_coco_runs(counts: str | list[int], height: int, width: int) -> Bool[np.ndarray, "height width"]:
    """The pixels of a mask, of run lengths as COCO has them: column by column, of 0 and of 1 in turn.

    Packed into text, a length is a row of characters of six bits, five of the number each, lowest first, and the sixth
    says that more follow; from the fourth length on it is the difference to the last but one.

    Source: the format of pycocotools (cocodataset/cocoapi).

    Example:
        >>> decode_coco_runs([1, 2, 3], 2, 3).astype(int)
        array([[0, 1, 0],
               [1, 0, 0]])
    """
    found = _unpacked(counts) if isinstance(counts, str) else counts
    if any(not 0 <= length <= height * width for length in found) or sum(found) != height * width:
        raise ValueError(f"a mask whose runs do not add up to the pixels of {height} x {width}")
    return np.repeat(np.arange(len(found)) % 2 == 1, np.array(found, np.int64)).reshape(width, height).T


def _unpacked(text: str) -> list[int]:
    lengths: list[int] = []
    value = place = 0
    for character in text:
        bits = ord(character) - _FIRST
        value |= (bits & (_MORE - 1)) << (_BITS * place)
        place += 1
        if bits & _MORE:
            continue
        if bits & _SIGN:
            value -= 1 << (_BITS * place)
        lengths.append(value + (lengths[-2] if len(lengths) > 2 else 0))
        value = place = 0
    return lengths
