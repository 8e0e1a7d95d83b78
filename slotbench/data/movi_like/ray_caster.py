"""A ray-caster for spheres, boxes, cylinders and cones on a floor: colours with shadows, exact masks and depth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Film", "Stage", "render"]

_BOX = 4
_BELOW = 1e-3  # distance from a camera from which parts of boxes are seen
_CORNERS = np.array([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])
_EDGES = np.array([[i, i | bit] for bit in (1, 2, 4) for i in range(8) if not i & bit])


@dataclass(frozen=True)
class Stage:
    """Everything that the images of one video depend on; surface 0 is the floor and i + 1 that of object i.

    Attributes:
        cameras: camera centres "time 3".
        camera_rotations: "time 3 3", columns are the camera's right, up and backward.
        width: width of the image at distance 1.
        shapes: 0 cube, 1 cylinder, 2 sphere, 3 cone, 4 box "objects".
        halves: half the side, or the radius, which in a cylinder and a cone is half the height too; 1 of a box
            "objects".
        positions: centres, of a cone half-way up its axis "time objects 3".
        rotations: "time objects 3 3", columns are the object's axes.
        colors: two colours of each surface in 0..1 "surfaces 2 3"; a plain one has the first alone.
        textures: kind (0 none, 1 stripes, 2 checks, 3 noise), frequency, offset and direction of each surface's solid
            texture "surfaces 6"; an object's is in units of its half size, the floor's in the world's.
        gloss: share of diffuse light, of highlights, and of mirroring, and the logarithm to base 2 of the highlights'
            exponent "surfaces 4".
        light: where the lamp is "3".
        half_sides: half the sides of boxes "objects 3"; None where there is no box.
    """

    cameras: np.ndarray
    camera_rotations: np.ndarray
    width: float
    shapes: np.ndarray
    halves: np.ndarray
    positions: np.ndarray
    rotations: np.ndarray
    colors: np.ndarray
    textures: np.ndarray
    gloss: np.ndarray
    light: np.ndarray
    half_sides: np.ndarray | None = None


@dataclass(frozen=True)
class Film:
    """Images of a video.

    Attributes:
        frames: "time 3 side side", bytes.
        masks: what the ray through a pixel's centre meets, 0 for the floor and i + 1 for object i: "time side side".
        depth: how far from the camera's centre that is: "time side side".
    """

    frames: np.ndarray
    masks: np.ndarray
    depth: np.ndarray


def render(stage: Stage, side: int, samples_per_side: int = 2) -> Film:
    """Draws a video.

    A pixel's colour is the mean over `samples_per_side` squared rays, spread evenly over it: Lambert's and Blinn's
    terms with a lamp that throws shadows, a second light that does not, and a reflection of floor and sky on metal.
    """
    num_frames = len(stage.cameras)
    film = Film(
        frames=np.empty((num_frames, 3, side, side), np.uint8),
        masks=np.empty((num_frames, side, side), np.uint8),
        depth=np.empty((num_frames, side, side), np.float32),
    )
    from slotbench.data.movi_like.ray_kernel import (
        render_into,  # compiles, or reads from disk what an earlier process compiled
    )

    bounds = stage.halves * np.sqrt(np.array([3.0, 2.0, 1.0, 2.0, 3.0]))[stage.shapes]
    seen = np.einsum("tji,tnj->tni", stage.camera_rotations, stage.positions - stage.cameras[:, None])
    lit = stage.positions - stage.light
    windows, lamp_windows, axes = _windows(seen, bounds), _windows(lit, bounds), stage.rotations
    if stage.half_sides is not None:
        boxes = np.flatnonzero(stage.shapes == _BOX)
        corners = stage.positions[:, boxes, None] + np.einsum(
            "tnij,nkj->tnki", axes[:, boxes], stage.half_sides[boxes, None] * _CORNERS
        )
        away = np.einsum("tji,tnkj->tnki", stage.camera_rotations, corners - stage.cameras[:, None, None])
        windows[:, boxes], lamp_windows[:, boxes] = _corner_windows(away), _corner_windows(corners - stage.light)
        axes = axes.copy()
        axes[:, boxes] /= stage.half_sides[boxes, None]
    solids = np.concatenate([stage.positions, axes.reshape(*stage.positions.shape[:2], 9)], axis=-1)
    numbers = [stage.cameras, stage.camera_rotations, stage.halves, solids, windows]
    numbers += [lamp_windows, stage.colors, stage.textures, stage.gloss, stage.light]
    render_into(  # type: ignore[call-arg]  # numba does not say what its functions take
        float(stage.width),
        np.ascontiguousarray(stage.shapes, np.int64),
        *(np.ascontiguousarray(array, np.float64) for array in numbers),
        samples_per_side,
        film.frames,
        film.masks,
        film.depth,
    )
    return film


def _windows(centres: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Slopes between which rays from the origin meet spheres: "time objects 4", from and to of x / -z, and y / -z."""
    across, down = centres[..., :2], -centres[..., 2:]
    radii = bounds[:, None]
    below = down > 1.001 * radii
    room = np.where(below, down * down - radii * radii, 1.0)
    half = radii * np.sqrt(np.maximum(across * across + room, 0.0)) / room
    middle = across * down / room
    slack = 1e-6 * (1.0 + np.abs(middle) + half)
    above = down < -1.001 * radii
    low = np.where(below, middle - half - slack, np.where(above, np.inf, -np.inf))
    high = np.where(below, middle + half + slack, np.where(above, -np.inf, np.inf))
    return np.stack([low, high], axis=-1).reshape(*centres.shape[:2], 4)


def _corner_windows(corners: np.ndarray) -> np.ndarray:
    """`_windows` of boxes by their corners "time boxes 8 3": of the part of each that is below the origin."""
    low, high = corners[..., _EDGES[:, 0], :], corners[..., _EDGES[:, 1], :]
    # where edges meet the plane just below the origin
    start, stop = -low[..., 2] - _BELOW, -high[..., 2] - _BELOW
    crossing = (start > 0.0) != (stop > 0.0)
    share = np.where(crossing, start / np.where(crossing, start - stop, 1.0), 0.0)[..., None]
    points = np.concatenate([corners, low + share * (high - low)], axis=2)
    below = np.concatenate([-corners[..., 2] >= _BELOW, crossing], axis=2)[..., None]
    slopes = points[..., :2] / np.where(below, np.maximum(-points[..., 2:], _BELOW), 1.0)
    least = np.where(below, slopes, np.inf).min(2)
    most = np.where(below, slopes, -np.inf).max(2)
    slack = 1e-6 * (1.0 + np.abs(slopes).max(2))
    return np.stack([least - slack, most + slack], axis=-1).reshape(*corners.shape[:2], 4)
