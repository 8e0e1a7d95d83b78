"""Scenes of `MOViLike`: objects, camera and light at the start of a video."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from slotbench.data.movi_like.physics import Bodies

__all__ = ["COLORS", "FLOOR_COLOR", "FOCAL_LENGTH", "SENSOR_WIDTH", "Level", "Scene", "SceneLaw"]

Level = Literal["a", "tex", "cam", "hard"]

# sorted by name, as the labels of MOVi-A: blue, brown, cyan, gray, green, purple, red, yellow
COLORS = np.array([
    (42, 75, 215), (129, 74, 25), (41, 208, 208), (87, 87, 87),
    (29, 105, 20), (129, 38, 192), (173, 35, 35), (255, 238, 51),
]) / 255  # fmt: skip
FOCAL_LENGTH, SENSOR_WIDTH = 35.0, 32.0

FLOOR_COLOR = (0.58, 0.58, 0.58)
_NEAREST, _FARTHEST = 7.0, 9.0  # camera from the origin
_LOWEST = 30.0  # degrees of the camera above the floor, below which a wide one sees the horizon
_LONGEST_PATH = 4.0  # of a moving camera
_LAMP = (5.0, -5.0, 9.0)
_SIDE_LAMP = (9.0, 3.5)  # distance from the axis, and height

_TRIES, _RESTARTS = 200, 200


@dataclass(frozen=True)
class Scene(Bodies):
    """The start of a video.

    Attributes:
        cameras: camera centres in the first and in the last frame "2 3"; it moves in a line and looks at the origin.
        lamp: where the light is "3".
        colors: both colours of floor and objects "objects+1 2 3".
        textures: solid textures of floor and objects "objects+1 6", as `ray_caster.Stage` has them.
    """

    cameras: np.ndarray
    lamp: np.ndarray
    colors: np.ndarray
    textures: np.ndarray


@dataclass(frozen=True)
class SceneLaw:
    """The distribution of scenes.

    Args:
        level: "a", "tex", "cam" or "hard".
        num_objects: fewest and most objects.
        object_sizes: the small and the large size.
        spread: half the side of the square above which objects start.
        lowest_camera: the least elevation of the camera above the floor, in degrees.
        orbit: degrees by which the camera circles the vertical axis from one frame to the next.
    """

    level: Level = "a"
    num_objects: tuple[int, int] = (3, 10)
    object_sizes: tuple[float, float] = (0.7, 1.4)
    spread: float = 3.5
    lowest_camera: float = _LOWEST
    orbit: float = 0.0

    def __post_init__(self) -> None:
        fewest, most = self.num_objects
        if not 1 <= fewest <= most <= 255:
            raise ValueError(f"num_objects is {list(self.num_objects)}; expected the fewest and the most, 1 to 255")
        small, large = self.object_sizes
        if not 0 < small <= large:
            raise ValueError(f"object_sizes is {list(self.object_sizes)}; expected the small and the large, above 0")
        if not 0 < self.spread <= 5.0:
            raise ValueError(f"spread is {self.spread}; expected above 0 and at most 5, the camera being at 7 to 9")
        if not _LOWEST <= self.lowest_camera < 90:
            raise ValueError(
                f"lowest_camera is {self.lowest_camera}; expected degrees above the floor, from {_LOWEST:g} to below 90"
            )

    def draw(self, rng: np.random.Generator) -> Scene:
        """A scene."""
        count = int(rng.integers(self.num_objects[0], self.num_objects[1] + 1))
        shapes, sizes, materials = rng.integers(0, 3, count), rng.integers(0, 2, count), rng.integers(0, 2, count)
        color_labels = rng.integers(0, len(COLORS), count)
        scales = np.array(self.object_sizes)[sizes]
        quaternions = rng.normal(size=(count, 4))
        quaternions /= np.linalg.norm(quaternions, axis=1, keepdims=True)
        positions = self._places(rng, scales, shapes)
        # towards somewhere near the centre, to be reached after a second
        velocities = rng.uniform(-0.8 * self.spread, 0.8 * self.spread, (count, 3)) - positions
        velocities[:, 2] = 0.0
        colors = np.concatenate([[FLOOR_COLOR], COLORS[color_labels]])[:, None].repeat(2, 1)
        textures = np.zeros((count + 1, 6))
        cameras = self._cameras(rng)
        lamp = np.array(_LAMP) + rng.uniform(-1.0, 1.0, 3)
        if self.level in ("tex", "hard"):
            self._paint(rng, colors, textures)
        if self.level == "hard":
            # one palette for floor and objects, so that a colour does not tell them apart
            colors[0] = COLORS[rng.integers(0, len(COLORS), 2)]
            colors[1:, 1] = COLORS[rng.integers(0, len(COLORS), count)]
            turn = rng.uniform(0.0, 2.0 * math.pi)
            lamp = np.array([_SIDE_LAMP[0] * math.cos(turn), _SIDE_LAMP[0] * math.sin(turn), _SIDE_LAMP[1]])
        return Scene(
            shapes, sizes, materials, color_labels, scales, positions, velocities, quaternions, cameras, lamp, colors,
            textures,
        )  # fmt: skip

    def camera_path(self, scene: Scene, num_frames: int) -> np.ndarray:
        """Camera centres "time 3": in a line from the first to the last, turned by `orbit` about the vertical axis."""
        path = scene.cameras[0] + np.linspace(0.0, 1.0, num_frames)[:, None] * np.diff(scene.cameras, axis=0)
        if self.orbit:
            turn = np.radians(self.orbit) * np.arange(num_frames)
            x, y, height = path.T
            path = np.stack([x * np.cos(turn) - y * np.sin(turn), x * np.sin(turn) + y * np.cos(turn), height], axis=-1)
        return path

    def _places(self, rng: np.random.Generator, scales: np.ndarray, shapes: np.ndarray) -> np.ndarray:
        """Where objects start, none touching another, the largest placed first."""
        bounds = scales / 2 * np.sqrt(np.array([3.0, 2.0, 1.0]))[shapes]
        order = np.argsort(-bounds, kind="stable")
        highest = max(self.spread, 2.5 * float(bounds.max()))
        for _ in range(_RESTARTS):
            placed: list[int] = []
            positions = np.zeros((len(scales), 3))
            for index in order:
                low, high = np.full(3, -self.spread, float), np.full(3, self.spread, float)
                low[2], high[2] = bounds[index] + 0.02, highest
                candidates = rng.uniform(low, high, (_TRIES, 3))
                apart = np.linalg.norm(candidates[:, None] - positions[None, placed], axis=-1)
                free = np.flatnonzero((apart > bounds[index] + bounds[placed]).all(1))
                if not len(free):
                    break
                positions[index] = candidates[free[0]]
                placed.append(int(index))
            else:
                return positions
        raise ValueError(
            f"{len(scales)} objects of sizes {list(self.object_sizes)} find no room above a square of half side "
            f"{self.spread}: fewer num_objects, smaller object_sizes or a larger spread"
        )

    def _cameras(self, rng: np.random.Generator) -> np.ndarray:
        lowest = math.sin(math.radians(self.lowest_camera))

        def draw() -> np.ndarray:
            # evenly over the part of the sphere that is high enough: there the height is uniform
            height, turn = rng.uniform(lowest, 1.0), rng.uniform(0.0, 2.0 * math.pi)
            around = math.sqrt(1.0 - height * height)
            way = np.array([around * math.cos(turn), around * math.sin(turn), height])
            return way * rng.uniform(_NEAREST, _FARTHEST)

        start = draw()
        if self.level not in ("cam", "hard"):
            return np.stack([start, start])
        length = rng.uniform(0.0, _LONGEST_PATH)
        while True:
            way = rng.normal(size=3)
            end = start + way / np.linalg.norm(way) * length
            distance = float(np.linalg.norm(end))
            if _NEAREST <= distance <= _FARTHEST and end[2] >= lowest * distance:
                return np.stack([start, end])

    def _paint(self, rng: np.random.Generator, colors: np.ndarray, textures: np.ndarray) -> None:
        """Second colours and solid textures, in place."""
        count = len(textures) - 1
        colors[0] = rng.uniform(0.3, 0.75, (2, 3))
        colors[1:, 1] = rng.uniform(0.05, 0.95, (count, 3))
        ways = rng.normal(size=(count + 1, 3))
        ways[0, 2] = 0.0
        textures[:, 0] = rng.integers(1, 4, count + 1)
        textures[:, 1] = np.concatenate([rng.uniform(0.3, 0.8, 1), rng.uniform(0.8, 2.0, count)])
        textures[:, 2] = rng.uniform(0.0, 1.0, count + 1)
        textures[:, 3:] = ways / np.linalg.norm(ways, axis=1, keepdims=True)
