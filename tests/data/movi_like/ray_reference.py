"""The ray-caster in numpy, all rays of a frame at once: what `ray_kernel` computes, in its readable form."""

from __future__ import annotations

from typing import Any

import numpy as np

from slotbench.data.movi_like.ray_caster import Film, Stage
from slotbench.data.movi_like.ray_kernel import (
    AMBIENT,
    BOX,
    CHECKS,
    CONE,
    CUBE,
    CYLINDER,
    FAR,
    FILL,
    FILL_X,
    FILL_Y,
    FILL_Z,
    KEY,
    NOISE,
    STRIPES,
)

__all__ = ["render_reference"]


def render_reference(stage: Stage, side: int, samples_per_side: int = 2) -> Film:
    """What `ray_caster.render` draws, far slower."""
    frames, masks, depth = [], [], []
    steps = (np.arange(side * samples_per_side) + 0.5) / (side * samples_per_side)
    for time in range(len(stage.cameras)):
        found, distance, _ = _first(
            stage, time, stage.cameras[time], _rays(stage, time, (np.arange(side) + 0.5) / side)
        )
        masks.append(found.astype(np.uint8))
        depth.append(distance.astype(np.float32))
        light = _light(stage, time, _rays(stage, time, steps))
        light = light.reshape(side, samples_per_side, side, samples_per_side, 3).mean((1, 3))
        frames.append((np.minimum(1.0, np.sqrt(light)) * 255.0 + 0.5).astype(np.uint8).transpose(2, 0, 1))
    return Film(np.stack(frames), np.stack(masks), np.stack(depth))


def _rays(stage: Stage, time: int, steps: np.ndarray) -> np.ndarray:
    """Unit directions "rows columns 3" through the points at `steps` of the image's height and width."""
    down, across = np.meshgrid(steps, steps, indexing="ij")
    local = np.stack([(across - 0.5) * stage.width, (0.5 - down) * stage.width, -np.ones_like(down)], axis=-1)
    local /= np.linalg.norm(local, axis=-1, keepdims=True)
    return local @ stage.camera_rotations[time].T


def _first(stage: Stage, time: int, origin: np.ndarray, ways: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What each ray meets first, how far away, and the world's normal there."""
    with np.errstate(divide="ignore"):
        distance = np.where(ways[..., 2] < 0.0, np.minimum(FAR, -origin[2] / ways[..., 2]), FAR)
    found = np.zeros(distance.shape, np.int64)
    normal = np.broadcast_to(np.array([0.0, 0.0, 1.0]), ways.shape).copy()
    for i in range(len(stage.shapes)):
        near, far, normal_there = _meet(stage, time, i, origin, ways)
        nearest = (near <= far) & (near > 0.0) & (near < distance)
        found[nearest] = i + 1
        distance[nearest] = near[nearest]
        normal[nearest] = normal_there[nearest]
    return found, distance, normal


def _meet(
    stage: Stage, time: int, i: int, origin: np.ndarray, ways: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where rays enter and leave object i, entering after leaving where they miss it, and the normal at the entry."""
    axes, half = stage.rotations[time, i], _half(stage, i)
    o, d = np.broadcast_to((origin - stage.positions[time, i]) @ axes, ways.shape), ways @ axes
    with np.errstate(divide="ignore", invalid="ignore"):
        if stage.shapes[i] in (CUBE, BOX):
            near, far, normal = _between_planes(o, d, half)
        elif stage.shapes[i] == CONE:
            near, far, normal = _cone(o, d, half)
        else:
            round_axes = slice(0, 2 if stage.shapes[i] == CYLINDER else 3)
            p, q = o[..., round_axes], d[..., round_axes]
            a, b, c = (q * q).sum(-1), (p * q).sum(-1), (p * p).sum(-1) - half * half
            # a ray along the axis is in the round part everywhere or nowhere
            root = np.sqrt(b * b - a * c)
            near = np.where(a > 0.0, (-b - root) / a, np.where(c > 0.0, np.inf, -np.inf))
            far = np.where(a > 0.0, (-b + root) / a, np.where(c > 0.0, -np.inf, np.inf))
            normal = (o + near[..., None] * d) / half
            if stage.shapes[i] == CYLINDER:
                normal[..., 2] = 0.0
                enter, leave, cap = _between_planes(o[..., 2:], d[..., 2:], half)
                through_cap = enter >= near
                normal[through_cap] = 0.0
                normal[..., 2:][through_cap] = cap[through_cap]
                near, far = np.maximum(near, enter), np.minimum(far, leave)
    # not a number, from the root, is a miss
    return np.where(near <= far, near, 1.0), np.where(near <= far, far, 0.0), normal @ axes.T


def _half(stage: Stage, i: int) -> Any:
    """Half the side of an object, or the sides of a box."""
    return stage.halves[i] if stage.shapes[i] != BOX or stage.half_sides is None else stage.half_sides[i]


def _cone(o: np.ndarray, d: np.ndarray, half: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where rays enter and leave a cone of radius `half` at z = -half with its tip at z = half, and the normal there.

    The distance from the tip down is twice that from the axis: x^2 + y^2 = (half - z)^2 / 4, and below the tip.
    """
    tip = o - np.array([0.0, 0.0, half])
    form = np.array([1.0, 1.0, -0.25])
    a, b, c = (form * d * d).sum(-1), (form * tip * d).sum(-1), (form * tip * tip).sum(-1)
    root = np.sqrt(np.where(a > 0.0, b * b - a * c, np.maximum(b * b - a * c, 0.0)))
    roots = np.sort(np.stack([(-b - root) / a, (-b + root) / a]), axis=0)
    # a steep ray is in the cone below the tip on one side of both roots, and in that above it on the other
    steep = a < 0.0
    near = np.where(steep, np.where(d[..., 2] < 0.0, roots[1], -np.inf), roots[0])
    far = np.where(steep, np.where(d[..., 2] < 0.0, np.inf, roots[0]), roots[1])
    at = tip + near[..., None] * d
    normal = at * np.array([1.0, 1.0, -0.25])
    normal /= np.linalg.norm(normal, axis=-1, keepdims=True)
    enter, leave, base = _between_planes(o[..., 2:], d[..., 2:], half)
    through_base = enter >= near
    normal[through_base] = 0.0
    normal[..., 2:][through_base] = base[through_base]
    return np.maximum(near, enter), np.minimum(far, leave), normal


def _between_planes(o: np.ndarray, d: np.ndarray, half: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where rays enter and leave the box of half side (or sides) `half` in the axes, and the normal of the entry."""
    sign = np.where(d > 0.0, 1.0, -1.0)
    enter = np.where(d != 0.0, (-sign * half - o) / d, np.where(abs(o) > half, np.inf, -np.inf))
    leave = np.where(d != 0.0, (sign * half - o) / d, np.where(abs(o) > half, -np.inf, np.inf))
    normal = np.where(np.arange(o.shape[-1]) == enter.argmax(-1)[..., None], -sign, 0.0)
    return enter.max(-1), leave.min(-1), normal


def _light(stage: Stage, time: int, ways: np.ndarray) -> np.ndarray:
    """The light that comes along rays from the camera: "rows columns 3", in units whose square root is what is seen."""
    found, distance, normal = _first(stage, time, stage.cameras[time], ways)
    points = stage.cameras[time] + distance[..., None] * ways
    to_lamp = stage.light - points
    reach = np.linalg.norm(to_lamp, axis=-1)
    to_lamp /= reach[..., None]
    facing = (normal * to_lamp).sum(-1)
    share = _second_share(stage.textures[0], points * np.array([1.0, 1.0, 0.0]))
    lit = facing > 0.0
    for i in range(len(stage.shapes)):
        near, far, _ = _meet(stage, time, i, points, to_lamp)
        lit &= (found == i + 1) | ~((near <= far) & (far > 0.0) & (near < reach))
        there = (points - stage.positions[time, i]) @ stage.rotations[time, i] / _half(stage, i)
        share = np.where(found == i + 1, _second_share(stage.textures[i + 1], there), share)
    gloss = stage.gloss[found]
    between = to_lamp - ways
    between /= np.linalg.norm(between, axis=-1, keepdims=True)
    highlight = lit * np.maximum(0.0, (normal * between).sum(-1)) ** 2.0 ** gloss[..., 3] * gloss[..., 1]
    mirrored = (ways - 2.0 * (normal * ways).sum(-1, keepdims=True) * normal)[..., 2]
    around = 0.25 + np.where(mirrored > 0.0, 0.75, 0.1) * mirrored
    fill = np.maximum(0.0, normal @ np.array([FILL_X, FILL_Y, FILL_Z]))
    diffuse = AMBIENT * (0.75 + 0.25 * normal[..., 2]) + FILL * fill + KEY * lit * facing
    first, second = stage.colors[found, 0], stage.colors[found, 1]
    own = (first + share[..., None] * (second - first)) ** 2
    return (
        own * (diffuse * gloss[..., 0] + around * gloss[..., 2])[..., None] + (0.5 + 0.5 * own) * highlight[..., None]
    )


def _second_share(texture: np.ndarray, points: np.ndarray) -> np.ndarray:
    """How much of the second colour a solid texture has at points "... 3"."""
    kind, frequency, offset = int(texture[0]), texture[1], texture[2]
    if kind == STRIPES:
        at = points @ texture[3:] * frequency + offset
        return np.clip((abs(2.0 * (at % 1.0) - 1.0) - 0.5) * 5.0 + 0.5, 0.0, 1.0)
    points = points * frequency + offset
    if kind == CHECKS:
        return np.floor(points).sum(-1) % 2
    if kind == NOISE:
        seed = int(offset * 1024.0)
        level = (2.0 * _noise(points, seed) + _noise(2.0 * points, seed + 1)) / 3.0
        return np.clip((level - 0.5) * 4.0 + 0.5, 0.0, 1.0)
    return np.zeros(points.shape[:-1])


def _noise(points: np.ndarray, seed: int) -> np.ndarray:
    """Random numbers on the integer lattice and smooth transitions between them."""
    corner = np.floor(points).astype(np.int64)
    part = points - corner
    part = part * part * (3.0 - 2.0 * part)
    total = np.zeros(points.shape[:-1])
    for step in np.ndindex(2, 2, 2):
        i, j, k = np.moveaxis(corner + step, -1, 0)
        mixed = (i * 73856093 ^ j * 19349663 ^ k * 83492791 ^ seed * 2654435) & 0x7FFFFFFF
        mixed = ((mixed ^ mixed >> 15) * 1274126177) & 0x7FFFFFFF
        mixed = ((mixed ^ mixed >> 13) * 974634777) & 0x7FFFFFFF
        total += np.where(step, part, 1.0 - part).prod(-1) * (mixed ^ mixed >> 16) / 2147483647.0
    return total
