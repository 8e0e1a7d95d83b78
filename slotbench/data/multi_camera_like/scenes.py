"""Scenes of `MultiCameraLike`: objects, the cameras that see them, and what stands still."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from slotbench.data.base import check_choices
from slotbench.data.cameras import look_at
from slotbench.data.movi_like.scenes import Bodies, sliding_deceleration

__all__ = ["COLORS", "LEVELS", "SIZES", "Level", "LevelFacts", "PosedScene", "draw_scene"]

Level = Literal["simple"]


@dataclass(frozen=True)
class LevelFacts:
    """What is fixed by a level.

    Attributes:
        cameras: their names, in order.
        num_objects: fewest and most objects.
        video_frames: frames of a video.
        focal_length: in units of the image's side.
        turntable: distance from the centre, and degrees above the floor, of a camera that goes around the scene.
    """

    cameras: tuple[str, ...]
    num_objects: tuple[int, int]
    video_frames: int
    focal_length: float
    turntable: tuple[float, float]


LEVELS: dict[Level, LevelFacts] = {
    "simple": LevelFacts(tuple(f"Camera_{number}" for number in range(1, 6)), (2, 4), 32, 35.0 / 32.0, (8.0, 35.0)),
}

SIZES = np.array([0.7, 1.0, 1.4])
"""Side of a cube, diameter and height of the others."""


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


@dataclass(frozen=True)
class PosedScene(Bodies):
    """The start of a video.

    Attributes:
        colors: of the objects, in 0..1 "objects 3".
        cameras: camera-to-world matrices "views 4 4".
    """

    colors: np.ndarray
    cameras: np.ndarray


def draw_scene(level: Level, rng: np.random.Generator) -> PosedScene:
    """A scene of a level."""
    check_choices(level=(level, Level))
    fewest, most = LEVELS[level].num_objects
    count = int(rng.integers(fewest, most + 1))
    shapes, sizes, materials = rng.integers(0, 3, count), rng.integers(0, 3, count), rng.integers(0, 2, count)
    color_labels = rng.integers(0, len(COLORS), count)
    scales = SIZES[sizes]
    turns = rng.uniform(0.0, 2.0 * math.pi, count) / 2
    quaternions = np.stack([np.cos(turns), np.zeros(count), np.zeros(count), np.sin(turns)], axis=-1)
    positions = _ring(rng, scales)
    velocities = _to_the_centre(rng, positions, shapes, materials)
    cameras = _hemisphere(rng, len(LEVELS[level].cameras))
    colors = COLORS[color_labels]
    return PosedScene(
        shapes, sizes, materials, color_labels, scales, positions, velocities, quaternions, colors, cameras
    )


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
