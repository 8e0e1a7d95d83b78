"""Annotations of CLEVRER videos: the objects, their motion, and their collisions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from slotbench.data.formats.annotations import read_annotations

__all__ = ["COLORS", "MATERIALS", "MOST_OBJECTS", "SHAPES", "Appearance", "ClevrerAnnotation", "read_annotation"]

Appearance = tuple[str, str, str]
"""Colour, material and shape: no two objects of a video have the same ones."""

SHAPES = ("cube", "cylinder", "sphere")
MATERIALS = ("metal", "rubber")
COLORS = ("blue", "brown", "cyan", "gray", "green", "purple", "red", "yellow")
"""By label, sorted by name as in `MOViLike`."""

MOST_OBJECTS = 12
_FARTHEST = 1e6
_LAYOUT = (
    "expected `object_property` (object_id, color, material, shape), `motion_trajectory` (frame_id, and of each of its "
    "objects object_id, location, velocity, inside_camera_view), and `collision` (frame_id, object_ids)"
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
    """The annotation in a file. An object that a frame does not list is outside the view in it, and at 0.

    Args:
        path: the file.
        num_frames: frames of the video.

    Raises:
        DataFilesError: it is not there, or not what it should be.
    """
    parse = partial(_parsed, num_frames=num_frames)
    return read_annotations(path, parse, "annotation of CLEVRER", "annotations", _LAYOUT)


def _parsed(content: dict[str, Any], num_frames: int) -> ClevrerAnnotation:
    properties = content["object_property"]
    if not 1 <= len(properties) <= MOST_OBJECTS:
        raise ValueError(f"{len(properties)} objects")
    places = {_whole(item["object_id"]): index for index, item in enumerate(properties)}
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
    if sorted(_whole(step["frame_id"]) for step in steps) != list(range(num_frames)):
        raise ValueError(f"its frames are not 0 to {num_frames - 1}")
    for step in steps:
        frame = step["frame_id"]
        for item in step["objects"]:
            place = places[_whole(item["object_id"])]
            positions[frame, place] = _vector(item["location"])
            velocities[frame, place] = _vector(item["velocity"])
            inside[frame, place] = item["inside_camera_view"] is True
    if not (np.abs(positions) < _FARTHEST).all() or not (np.abs(velocities) < _FARTHEST).all():
        raise ValueError(f"a position or a velocity is no number below {_FARTHEST:,.0f}")
    collisions = np.zeros((num_frames, count, count), bool)
    for event in content["collision"]:
        frame = _whole(event["frame_id"])
        first, second = (places[_whole(number)] for number in event["object_ids"])
        if not 0 <= frame < num_frames:
            raise ValueError(f"a collision in frame {frame}")
        collisions[frame, first, second] = collisions[frame, second, first] = True
    return ClevrerAnnotation(
        appearances, positions.astype(np.float32), velocities.astype(np.float32), inside, collisions
    )


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"{str(value)[:20]!r} in the place of a whole number")
    return value


def _vector(value: Any) -> list[float]:
    x, y, z = value
    return [float(x), float(y), float(z)]
