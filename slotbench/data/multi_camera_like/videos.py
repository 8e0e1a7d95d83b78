"""Videos of `MultiCameraLike`, simulated and drawn on demand."""

from __future__ import annotations

from typing import Any

import numpy as np

from slotbench.data.base import Split, padded
from slotbench.data.movi_like.physics import Bodies, Trajectory, rotation_matrices, simulate
from slotbench.data.movi_like.scenes import FLOOR_COLOR
from slotbench.data.movi_like.videos import WholeSimulations, object_log, surface_gloss
from slotbench.data.multi_camera_like.scenes import LEVELS, Level, PosedScene, draw_scene, static_world

__all__ = ["TIMED", "PosedSimulations", "draw_views"]

TIMED = ("positions", "quaternions", "velocities", "angular_velocities", "visibility", "depth", "cameras")
"""The entries of `objects` that have an axis of frames."""

_BOX = 4
_LAMP = np.array([5.0, -5.0, 9.0])


class PosedSimulations(WholeSimulations):
    """The videos of one split, all cameras of each; video i depends on the split, i and these arguments alone."""

    cut = ("frames", "masks", *TIMED)

    def __init__(self, level: Level, split: Split, num_videos: int, num_frames: int, **look: Any) -> None:
        super().__init__(split, num_videos, num_frames, **look)
        self.level = level

    def scene(self, video: int) -> PosedScene:
        """The start of a video."""
        return draw_scene(self.level, self.generator(video))

    def video(self, video: int) -> dict[str, np.ndarray]:
        """A video: "frames" (time views 3 side side), "masks", and the entries of `objects`."""
        scene = self.scene(video)
        motion = simulate(scene, self.num_frames, scene.surroundings)
        cameras = np.repeat(scene.cameras[None], self.num_frames, axis=0)
        if scene.surroundings is not None:
            cameras[:, :, :2, 3] += motion.ego[:, None]
        frames, masks, depth = draw_views(
            self.level, cameras, self.resolution, self.samples_per_side, (scene, motion, scene.colors)
        )
        count, room = len(scene.shapes), LEVELS[self.level].num_objects[1]
        seen = masks[:, :, None] == np.arange(1, count + 1, dtype=np.uint8)[:, None, None]
        log = object_log(scene, motion, scene.colors, room)
        log["visibility"] = padded(seen.sum((3, 4), dtype=np.int64), room, axis=2)
        log["cameras"] = cameras.astype(np.float32)
        if self.depth:
            log["depth"] = depth
        return {"frames": frames, "masks": masks} | log


def draw_views(
    level: Level,
    cameras: np.ndarray,
    resolution: int,
    samples_per_side: int = 2,
    objects: tuple[Bodies, Trajectory, np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws the world of a level from cameras wherever they are.

    Returns:
        frames of bytes "time views 3 side side", masks "time views side side" of which 0 is all that stands still, and
        the distance from the camera along the ray.
    """
    from slotbench.data.movi_like.ray_caster import Stage, render

    still, num_frames = static_world(level), len(cameras)
    count = 0 if objects is None else len(objects[0].shapes)
    shapes, half_sides, paint = still.shapes, still.half_sides, np.concatenate([[FLOOR_COLOR], still.colors])
    positions = np.repeat(still.positions[None], num_frames, axis=0)
    rotations = np.repeat(rotation_matrices(still.quaternions)[None], num_frames, axis=0)
    materials = np.ones(len(shapes), np.int64)
    if objects is not None:
        bodies, motion, colors = objects
        shapes, materials = np.concatenate([bodies.shapes, shapes]), np.concatenate([bodies.materials, materials])
        half_sides = np.concatenate([bodies.scales[:, None].repeat(3, 1) / 2, half_sides])
        positions = np.concatenate([motion.positions, positions], axis=1)
        rotations = np.concatenate([rotation_matrices(motion.quaternions), rotations], axis=1)
        paint = np.concatenate([paint[:1], colors, paint[1:]])
    films = [
        render(
            Stage(
                cameras=cameras[:, view, :3, 3],
                camera_rotations=cameras[:, view, :3, :3],
                width=1.0 / LEVELS[level].focal_length,
                shapes=shapes,
                halves=np.where(shapes == _BOX, 1.0, half_sides[:, 0]),
                positions=positions,
                rotations=rotations,
                colors=paint[:, None].repeat(2, 1),
                textures=np.zeros((len(paint), 6)),
                gloss=surface_gloss(materials),
                light=_LAMP,
                half_sides=half_sides if (shapes == _BOX).any() else None,
            ),
            resolution,
            samples_per_side,
        )
        for view in range(cameras.shape[1])
    ]
    frames, masks, depth = (np.stack([getattr(film, n) for film in films], 1) for n in ("frames", "masks", "depth"))
    masks[masks > count] = 0
    return frames, masks, depth
