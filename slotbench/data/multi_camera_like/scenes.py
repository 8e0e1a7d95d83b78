"""Scenes of `MultiCameraLike`: objects, the cameras that see them, and what stands still."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import torch

from slotbench.data.cameras import look_at
from slotbench.data.movi_like.physics import Bodies, Solids, Surroundings, sliding_deceleration

__all__ = ["COLORS", "LEVELS", "Level", "LevelFacts", "PosedScene", "draw_scene", "static_world"]

Level = Literal["simple", "ego"]
_Three = tuple[float, float, float]


@dataclass(frozen=True)
class LevelFacts:
    """What is fixed by a level.

    Attributes:
        cameras: their names, in order.
        num_objects: fewest and most objects.
        video_frames: frames of a video.
        focal_length: in units of the image's side.
        turntable: distance from the centre, and degrees above the floor, of a camera that goes around the scene.
        sizes: side of a cube, diameter and height of the others.
    """

    cameras: tuple[str, ...]
    num_objects: tuple[int, int]
    video_frames: int
    focal_length: float
    turntable: tuple[float, float]
    sizes: tuple[float, float, float]


_AROUND = ("Front_Left", "Front", "Front_Right", "Back_Left", "Back", "Back_Right")
LEVELS: dict[Level, LevelFacts] = {
    "simple": LevelFacts(
        tuple(f"Camera_{number}" for number in range(1, 6)), (2, 4), 32, 35.0 / 32.0, (8.0, 35.0), (0.7, 1.0, 1.4)
    ),
    "ego": LevelFacts(_AROUND, (3, 5), 24, 0.5, (8.0, 60.0), (0.5, 0.7, 0.9)),
}


def _palette() -> np.ndarray:
    """32 colours: 8 hues in 4 strengths each, full, pale, dark and greyish."""
    hues = np.arange(8) / 8
    wheel = np.clip(np.abs((hues[:, None] * 6 + np.array([0, 4, 2])) % 6 - 3) - 1, 0, 1)
    strengths = [(0.9, 0.95), (0.45, 0.95), (0.9, 0.5), (0.4, 0.55)]
    return np.concatenate([value * (1 - strength * (1 - wheel)) for strength, value in strengths])


COLORS = _palette()
"""Red, green and blue in 0..1 of each colour "32 3"."""

_RADIUS = 8.0  # of the hemisphere of cameras
_LOWEST = 25.0  # degrees of a camera above the floor
_START = (1.6, 3.3)  # distance of objects from the centre at the start
_TRIES = 1000

_WORLD = 5.0  # half the side of the four rooms together
_DOOR = 1.1  # from the centre to where the walls between rooms begin
_WALL = (0.1, 0.8)  # half the thickness and half the height
_PROP = 4.0  # where the props are, along x and y
_EGO_ROOM = 0.5  # of the ego, to objects at the start
_MOUNT = (0.25, 0.95, 15.0)  # of cameras: distance from the ego's axis, height, degrees downwards
_HEADINGS = (60.0, 0.0, -60.0, 120.0, 180.0, -120.0)  # of cameras, to the left of the ego's


@dataclass(frozen=True)
class PosedScene(Bodies):
    """The start of a video.

    Attributes:
        colors: of the objects, in 0..1 "objects 3".
        cameras: camera-to-world matrices "views 4 4"; where an ego carries them, as if it stood at the origin.
        surroundings: what stands still, and the ego; None where there is neither.
    """

    colors: np.ndarray
    cameras: np.ndarray
    surroundings: Surroundings | None = None


def draw_scene(level: Level, rng: np.random.Generator) -> PosedScene:
    """A scene of a level."""
    facts = LEVELS[level]
    fewest, most = facts.num_objects
    count = int(rng.integers(fewest, most + 1))
    shapes = rng.integers(0, 4 if level == "ego" else 3, count)
    sizes, materials = rng.integers(0, 3, count), rng.integers(0, 2, count)
    color_labels = rng.integers(0, len(COLORS), count)
    scales = np.array(facts.sizes)[sizes]
    quaternions = _yaw(rng.uniform(0.0, 2.0 * math.pi, count))
    surroundings = None
    if level == "ego":
        places = _in_a_room(rng, np.concatenate([[2.0 * _EGO_ROOM], scales * math.sqrt(2)]))
        positions = np.concatenate([places[1:], scales[:, None] / 2], axis=1)
        velocities = _somewhere(rng, shapes, materials)
        heading = rng.uniform(0.0, 2.0 * math.pi)
        way = rng.uniform(0.5, 1.5) * np.array([math.cos(heading), math.sin(heading)])
        still = static_world(level)
        surroundings = Surroundings(still, places[0], way)
        cameras = _mounted(heading)
    else:
        positions = _ring(rng, scales)
        velocities = _to_the_centre(rng, positions, shapes, materials)
        cameras = _hemisphere(rng, len(facts.cameras))
    colors = COLORS[color_labels]
    return PosedScene(
        shapes, sizes, materials, color_labels, scales, positions, velocities, quaternions, colors, cameras,
        surroundings,
    )  # fmt: skip


def _yaw(turns: np.ndarray) -> np.ndarray:
    """Quaternions of turns about the vertical "... 4"."""
    none = np.zeros_like(turns)
    return np.stack([np.cos(turns / 2), none, none, np.sin(turns / 2)], axis=-1)


@lru_cache(maxsize=2)
def static_world(level: Level) -> Solids:
    """What stands still beside the floor: nothing, or the walls of four rooms and in each a prop of its own."""
    if level != "ego":
        none = np.zeros((0, 3))
        return Solids(np.zeros(0, np.int64), none, none, np.zeros((0, 4)), none)
    thick, high = _WALL
    rows: list[tuple[int, _Three, _Three, float, _Three]] = []
    rooms = [
        (1, 1, (0.75, 0.55, 0.35)),
        (-1, 1, (0.4, 0.6, 0.5)),
        (-1, -1, (0.45, 0.5, 0.75)),
        (1, -1, (0.7, 0.45, 0.5)),
    ]
    half = _WORLD / 2
    for x, y, color in rooms:
        rows.append((4, (thick, half, high), (x * (_WORLD + thick), y * half, high), 0.0, color))
        rows.append((4, (half, thick, high), (x * half, y * (_WORLD + thick), high), 0.0, color))
    reach, middle = (_WORLD - _DOOR) / 2, (_WORLD + _DOOR) / 2
    for sign in (-1, 1):
        rows.append((4, (reach, thick, high), (sign * middle, 0.0, high), 0.0, (0.8, 0.8, 0.75)))
        rows.append((4, (thick, reach, high), (0.0, sign * middle, high), 0.0, (0.8, 0.8, 0.75)))
    props: list[tuple[int, int, int, float | _Three, float, float, _Three]] = [
        # a tree, a snowman, a pile, a lantern: room, shape, half size, height of the centre, turn, colour
        (1, 1, 1, 0.25, 0.25, 0.0, (0.4, 0.25, 0.1)), (1, 1, 3, 0.65, 1.15, 0.0, (0.1, 0.5, 0.15)),
        (-1, 1, 2, 0.5, 0.5, 0.0, (0.95, 0.95, 0.95)), (-1, 1, 2, 0.32, 1.2, 0.0, (0.95, 0.95, 0.95)),
        (-1, -1, 0, 0.45, 0.45, 0.3, (0.8, 0.2, 0.2)), (-1, -1, 0, 0.32, 1.22, 0.9, (0.9, 0.8, 0.2)),
        (1, -1, 4, (0.2, 0.2, 0.6), 0.6, 0.0, (0.25, 0.25, 0.3)), (1, -1, 2, 0.35, 1.5, 0.0, (0.95, 0.75, 0.2)),
    ]  # fmt: skip
    for x, y, shape, size, height, turn, color in props:
        sides = size if isinstance(size, tuple) else (size, size, size)
        rows.append((shape, sides, (x * _PROP, y * _PROP, height), turn, color))
    shapes, sides_of, centres, turns, colors = zip(*rows, strict=True)
    return Solids(np.array(shapes), np.array(sides_of), np.array(centres), _yaw(np.array(turns)), np.array(colors))


def _in_a_room(rng: np.random.Generator, diameters: np.ndarray) -> np.ndarray:
    """Where round things stand in one of the rooms, none touching another, the wall or the prop "things 2"."""
    corner, radii = rng.choice([-1.0, 1.0], 2), diameters / 2
    for _ in range(_TRIES):
        places: list[np.ndarray] = []
        for index, radius in enumerate(radii):
            tries = rng.uniform(radius + 0.15, _WORLD - radius - 0.05, (100, 2))
            apart = np.linalg.norm(tries[:, None] - np.array(places).reshape(index, 2), axis=-1)
            free = (apart > radius + radii[:index]).all(1) & (np.linalg.norm(tries - _PROP, axis=-1) > radius + 0.9)
            if not free.any():
                break
            places.append(tries[free.argmax()])
        else:
            return corner * np.stack(places)
    raise AssertionError("five objects and an ego find room")


def _somewhere(rng: np.random.Generator, shapes: np.ndarray, materials: np.ndarray) -> np.ndarray:
    """Velocities over the floor in any direction; what slides does so for up to 1.5 units more "objects 3"."""
    turn, further = rng.uniform(0.0, 2.0 * math.pi, len(shapes)), rng.uniform(0.3, 1.5, len(shapes))
    slower = np.where(shapes == 2, 0.0, sliding_deceleration(materials))
    speed = np.sqrt(rng.uniform(0.3, 1.5, len(shapes)) ** 2 + 2.0 * slower * further)
    return np.stack([speed * np.cos(turn), speed * np.sin(turn), np.zeros(len(shapes))], axis=-1)


def _mounted(heading: float) -> np.ndarray:
    """Cameras around an ego at the origin, looking outwards and a little down "views 4 4"."""
    out, height, down = _MOUNT
    turns = heading + np.radians(np.array(_HEADINGS))
    flat = np.stack([np.cos(turns), np.sin(turns)], axis=-1)
    centres = np.concatenate([out * flat, np.full((len(turns), 1), height)], axis=1)
    drop = np.full((len(turns), 1), -math.tan(math.radians(down)))
    ways = np.concatenate([flat, drop], axis=1)
    return look_at(torch.from_numpy(centres), torch.from_numpy(centres + ways)).numpy()


def _ring(rng: np.random.Generator, scales: np.ndarray) -> np.ndarray:
    """Where objects stand at the start, around the centre, none touching another "objects 3"."""
    bounds = scales / math.sqrt(2)
    for _ in range(_TRIES):
        distance, turn = rng.uniform(*_START, len(scales)), rng.uniform(0.0, 2.0 * math.pi, len(scales))
        positions = np.stack([distance * np.cos(turn), distance * np.sin(turn), scales / 2], axis=-1)
        apart = np.linalg.norm(positions[:, None, :2] - positions[None, :, :2], axis=-1)
        if (apart + 9.0 * np.eye(len(scales)) > bounds[:, None] + bounds + 0.05).all():
            return positions
    raise AssertionError("four objects find room on the ring")


def _to_the_centre(
    rng: np.random.Generator, positions: np.ndarray, shapes: np.ndarray, materials: np.ndarray
) -> np.ndarray:
    """Velocities to somewhere near the centre, where what slides still has some speed "objects 3"."""
    ways = rng.uniform(-0.6, 0.6, positions.shape) - positions
    ways[:, 2] = 0.0
    distance = np.linalg.norm(ways, axis=1)
    slower = np.where(shapes == 2, 0.0, sliding_deceleration(materials))
    speed = np.sqrt(rng.uniform(0.8, 2.2, len(shapes)) ** 2 + 2.0 * slower * distance)
    return ways / distance[:, None] * speed[:, None]


def _hemisphere(rng: np.random.Generator, count: int) -> np.ndarray:
    """Cameras that are anywhere on a hemisphere, not too low, and look at the origin "views 4 4"."""
    # evenly over the sphere: there the height is uniform
    height = rng.uniform(math.sin(math.radians(_LOWEST)), 1.0, count)
    turn, around = rng.uniform(0.0, 2.0 * math.pi, count), np.sqrt(1.0 - height * height)
    centres = _RADIUS * np.stack([around * np.cos(turn), around * np.sin(turn), height], axis=-1)
    return look_at(torch.from_numpy(centres)).numpy()
