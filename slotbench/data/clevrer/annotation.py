"""Annotations of CLEVRER videos: the simulator's log, which is true, and a detector's masks, which are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from slotbench.data.formats.annotations import read_annotations
from slotbench.data.formats.coco_runs import decode_coco_runs

__all__ = ["COLORS", "MATERIALS", "MOST_OBJECTS", "SHAPES", "ClevrerAnnotation", "pseudo_masks", "read_annotation"]

Appearance = tuple[str, str, str]
"""Colour, material and shape: no two objects of a video have the same ones."""

SHAPES = ("cube", "cylinder", "sphere")
MATERIALS = ("metal", "rubber")
COLORS = ("blue", "brown", "cyan", "gray", "green", "purple", "red", "yellow")
"""By label, sorted by name as in `MOViLike`."""

MOST_OBJECTS = 12
_LAYOUT = (
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
    return read_annotations(path, parse, "annotations", _LAYOUT)


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

    Args:
        path: proposal_NNNNN.json.
        frames: numbers in the video.
        size: height and width of the video's frames.
        known: objects in the order of their ids; None to number them as the file first names them.
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
