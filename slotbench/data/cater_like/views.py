"""Observations of an episode: images of a camera, or a plan of the floor and a table of the objects."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from slotbench.data.cater_like.scenes import HALF_FLOOR, SHAPES, Episode
from slotbench.data.movi_like.physics import rotation_matrices
from slotbench.data.movi_like.ray_caster import Film, Stage, render
from slotbench.data.movi_like.scenes import FOCAL_LENGTH, SENSOR_WIDTH
from slotbench.data.movi_like.videos import camera_quaternions, image_positions, surface_gloss

__all__ = ["TABLE_WIDTH", "Camera", "draw_images", "draw_plan", "floor_corners", "object_table"]

Camera = Literal["fixed", "moving"]

TABLE_WIDTH = 14
"""Numbers per object: there or not; x, y in units of half the floor, z of the lowest point in units of the lift;
radius; one of five shapes; red, green, blue; metal or not."""

_PLACE, _HEIGHTS, _REACH, _KEY = (0.0, -14.0, 10.0), (8.0, 10.0, 12.0), 10.0, 30
_BELOW = -50.0  # where covered objects are put, so that neither camera nor lamp meets them
_LAMP = (5.0, -5.0, 9.0)
_FLOOR = (0.58, 0.58, 0.58)


@dataclass(frozen=True)
class Lens:
    """The image: pixels per side, times the focal length of MOVi's camera, and rays per pixel and side."""

    resolution: int
    zoom: float
    samples_per_side: int

    @property
    def focal_length(self) -> float:
        """In the units of MOVi's camera."""
        return FOCAL_LENGTH * self.zoom

    @property
    def width(self) -> float:
        """Width of the image at distance 1."""
        return SENSOR_WIDTH / self.focal_length


def camera_path(camera: Camera, rng: np.random.Generator, num_frames: int) -> np.ndarray:
    """Camera centres "time 3"; a moving one goes in lines between places around the floor, one each 30 frames.

    From one place to the next either x or y changes its sign, so that it never stands above the middle.
    """
    if camera == "fixed":
        return np.tile(np.array(_PLACE), (num_frames, 1))
    keys = 2 + num_frames // _KEY
    signs = np.ones((keys, 2))
    signs[0] = rng.choice([-1.0, 1.0], 2)
    for key in range(1, keys):
        signs[key] = signs[key - 1]
        signs[key, rng.integers(0, 2)] *= rng.choice([-1.0, 1.0])
    places = np.concatenate([_REACH * signs, rng.choice(_HEIGHTS, (keys, 1))], axis=1)
    at = np.arange(num_frames) / _KEY
    return np.stack([np.interp(at, np.arange(keys), places[:, axis]) for axis in range(3)], axis=-1)


def draw_images(episode: Episode, frames: np.ndarray, cameras: np.ndarray, lens: Lens) -> Film:
    """Images, masks and depth of some frames of an episode; covered objects are not drawn."""
    centres = episode.places[frames]
    centres[..., 2] += episode.halves
    centres[..., 2] = np.where(episode.holders[frames] >= 0, _BELOW, centres[..., 2])
    colors = np.concatenate([[_FLOOR], episode.colors])[:, None].repeat(2, 1)
    turns = episode.turns[frames] / 2
    quaternions = np.stack([np.cos(turns), 0 * turns, 0 * turns, np.sin(turns)], axis=-1)
    stage = Stage(
        cameras=cameras,
        camera_rotations=rotation_matrices(camera_quaternions(cameras)),
        width=lens.width,
        shapes=np.where(episode.shapes == len(SHAPES), SHAPES.index("sphere"), episode.shapes),
        halves=episode.halves,
        positions=centres,
        rotations=rotation_matrices(quaternions),
        colors=colors,
        textures=np.zeros((len(colors), 6)),
        gloss=surface_gloss(episode.materials),
        light=np.array(_LAMP),
    )
    return render(stage, lens.resolution, lens.samples_per_side)


@lru_cache(maxsize=32)
def floor_corners(grid: int, camera: tuple[float, ...] | None, lens: Lens) -> np.ndarray:
    """Where the corners of the floor's cells are in the image: "grid+1 grid+1 2", rows along y of the floor.

    In an image x is to the right and y downwards, 0..1 inside. Remembered, since most cameras stand still.
    """
    along = np.linspace(-HALF_FLOOR, HALF_FLOOR, grid + 1)
    y, x = np.meshgrid(along, along, indexing="ij")
    if camera is None:
        return np.stack([0.5 + x / (2 * HALF_FLOOR), 0.5 - y / (2 * HALF_FLOOR)], axis=-1)
    points, cameras = np.stack([x, y, np.zeros_like(x)], axis=-1).reshape(1, -1, 3), np.array([camera])
    rotations = rotation_matrices(camera_quaternions(cameras))
    return image_positions(points, cameras, rotations, lens.width).reshape(grid + 1, grid + 1, 2)


def draw_plan(episode: Episode, frames: np.ndarray, side: int) -> tuple[np.ndarray, np.ndarray]:
    """The floor from above, y upwards: frames "steps 3 side side" and masks "steps side side", both of bytes."""
    from slotbench.data.cater_like.plan_kernel import plan_into  # compiles, or reads from disk

    images = np.empty((len(frames), 3, side, side), np.uint8)
    masks = np.empty((len(frames), side, side), np.uint8)
    colors = (np.concatenate([[_FLOOR], episode.colors]) * 255).round().astype(np.uint8)
    heights = 2 * episode.halves
    seen = episode.holders[frames] < 0
    places = episode.places[frames]
    plan_into(places, episode.radii, heights, episode.shapes == 0, seen, colors, HALF_FLOOR, images, masks)
    return images, masks


def object_table(episode: Episode, frames: np.ndarray, rows: int) -> np.ndarray:
    """The table of all objects that no cone covers, a row for each: "steps rows TABLE_WIDTH".

    Rows of covered objects, and those beyond the last object, are zero.
    """
    count = len(episode.shapes)
    table = np.zeros((len(frames), rows, TABLE_WIDTH), np.float32)
    places = episode.places[frames]
    table[:, :count, 0] = 1.0
    table[:, :count, 1:3] = places[..., :2] / HALF_FLOOR
    table[:, :count, 3] = places[..., 2] / 2.0
    table[:, :count, 4] = episode.radii
    table[:, :count, 5:10] = np.eye(len(SHAPES) + 1)[episode.shapes]
    table[:, :count, 10:13] = episode.colors
    table[:, :count, 13] = episode.materials == 0
    table[:, :count][episode.holders[frames] >= 0] = 0.0
    return table
