"""A ray-caster for spheres, cubes, cylinders and cones on a floor: colours with shadows, exact masks and depth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Film", "Stage", "render"]


@dataclass(frozen=True)
class Stage:
    """Everything that the images of one video depend on; surface 0 is the floor and i + 1 that of object i.

    Attributes:
        cameras: camera centres "time 3".
        camera_rotations: "time 3 3", columns are the camera's right, up and backward.
        width: width of the image at distance 1.
        shapes: 0 cube, 1 cylinder, 2 sphere, 3 cone "objects".
        halves: half the side, or the radius, which in a cylinder and a cone is half the height too "objects".
        positions: centres, of a cone half-way up its axis "time objects 3".
        rotations: "time objects 3 3", columns are the object's axes.
        colors: two colours of each surface in 0..1 "surfaces 2 3"; a plain one has the first alone.
        textures: kind (0 none, 1 stripes, 2 checks, 3 noise), frequency, offset and direction of each surface's solid
            texture "surfaces 6"; an object's is in units of its half size, the floor's in the world's.
        gloss: share of diffuse light, of highlights, and of mirroring, and the logarithm to base 2 of the highlights'
            exponent "surfaces 4".
        light: where the lamp is "3".
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

    solids = np.concatenate([stage.positions, stage.rotations.reshape(*stage.positions.shape[:2], 9)], axis=-1)
    bounds = stage.halves * np.sqrt(np.array([3.0, 2.0, 1.0, 2.0]))[stage.shapes]
    seen = np.einsum("tji,tnj->tni", stage.camera_rotations, stage.positions - stage.cameras[:, None])
    lit = stage.positions - stage.light
    numbers = [stage.cameras, stage.camera_rotations, stage.halves, solids, _windows(seen, bounds)]
    numbers += [_windows(lit, bounds), stage.colors, stage.textures, stage.gloss, stage.light]
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
    """Between which slopes rays from the origin meet spheres: "time objects 4", from and to of x / -z, and of y / -z.

    Args:
        centres: "time objects 3"; the spheres that rays are spared are those below the origin.
        bounds: their radii "objects".
    """
    across, down = centres[..., :2], -centres[..., 2:]
    radii = bounds[:, None]
    below = down > 1.001 * radii
    room = np.where(below, down * down - radii * radii, 1.0)
    half = radii * np.sqrt(np.maximum(across * across + room, 0.0)) / room
    middle = across * down / room
    slack = 1e-6 * (1.0 + np.abs(middle) + half)
    low = np.where(below, middle - half - slack, -np.inf)
    high = np.where(below, middle + half + slack, np.inf)
    return np.stack([low, high], axis=-1).reshape(*centres.shape[:2], 4)
