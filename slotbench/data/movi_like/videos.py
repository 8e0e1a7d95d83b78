"""Videos of `MOViLike`, simulated and drawn on demand, with MOVi's annotations."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from slotbench.data.base import Split, generator_for, padded
from slotbench.data.clips import ClipReader
from slotbench.data.movi.record import TIMED
from slotbench.data.movi_like.physics import Bodies, Trajectory, rotation_matrices, simulate
from slotbench.data.movi_like.scenes import FOCAL_LENGTH, SENSOR_WIDTH, Scene, SceneLaw
from slotbench.errors import DataFilesError
from slotbench.io import write_atomically

if TYPE_CHECKING:
    from slotbench.data.movi_like.ray_caster import Stage

__all__ = ["SimulatedVideos", "WholeSimulations", "camera_log", "camera_quaternions", "image_positions", "object_log"]
__all__ += ["surface_gloss"]

# metal, rubber: shares of diffuse light, highlight, mirroring; log2 of the highlight's exponent
_GLOSS = np.array([[0.7, 0.9, 0.9, 6.0], [1.0, 0.12, 0.0, 3.0]])
_FLOOR_GLOSS = np.array([[1.0, 0.0, 0.0, 1.0]])


@dataclass(eq=False)
class WholeSimulations(ClipReader):
    """Videos of one split that are simulated whole, at every reading or, with a `folder`, at their first.

    A subclass writes `video`. A kept video is a file of its own, put in place in one step: a kill leaves none that is
    torn, and processes that make the same one at the same time write the same bytes.
    """

    split: Split
    num_videos: int
    num_frames: int
    resolution: int = 64
    samples_per_side: int = 2
    seed: int = 0
    depth: bool = False
    threads: int | None = 1  # None for those of torch, where the videos are read: one in a worker
    folder: Path | None = None
    cut: ClassVar[Collection[str]]
    """The arrays that have an axis of frames."""

    def __post_init__(self) -> None:
        self.lengths = np.full(self.num_videos, self.num_frames)

    @abstractmethod
    def video(self, video: int) -> dict[str, np.ndarray]:
        """The arrays of a whole video."""

    def generator(self, video: int) -> np.random.Generator:
        """The random generator of a video's scene."""
        # a child's stream, for the sample of this number draws from the parent's where to cut
        return generator_for(self.seed, self.split, video).spawn(1)[0]

    def clip(self, video: int, frames: range) -> dict[str, np.ndarray]:
        """A clip, for which the whole video is made where it is not kept."""
        window = slice(frames.start, frames.stop)
        if self.folder is None:
            made = self.video(video)
            return {name: value[window] if name in self.cut else value for name, value in made.items()}
        path = self.folder / f"{video}.safetensors"
        try:
            if not path.is_file():
                self.folder.mkdir(parents=True, exist_ok=True)
                made = {name: np.asarray(value, order="C") for name, value in self.video(video).items()}
                write_atomically(path, save(made))
            with safe_open(path, "numpy") as file:
                return {
                    name: file.get_slice(name)[window] if name in self.cut else file.get_tensor(name)
                    for name in file.keys()  # noqa: SIM118 (it is no mapping)
                }
        except (OSError, SafetensorError) as error:
            raise DataFilesError(f"{path} cannot be read or written ({error}): delete it, and try again") from error

    def clips(self, videos: Sequence[int], windows: Sequence[range]) -> list[Mapping[str, np.ndarray]]:
        """Several clips, on as many threads as are asked for."""
        threads = torch.get_num_threads() if self.threads is None else self.threads
        if threads == 1:
            return super().clips(videos, windows)
        first = self.clip(videos[0], windows[0])  # compiles, which only one can do
        with ThreadPoolExecutor(threads) as pool:
            return [first, *pool.map(self.clip, videos[1:], windows[1:])]


class SimulatedVideos(WholeSimulations):
    """The videos of one split; video i depends on the split, i and these arguments alone."""

    cut = ("frames", "masks", *TIMED)

    def __init__(
        self, law: SceneLaw, split: Split, num_videos: int, num_frames: int = 24, *, zoom: float = 1.0, **look: Any
    ) -> None:
        super().__init__(split, num_videos, num_frames, **look)
        self.law = law
        self.focal_length = FOCAL_LENGTH * zoom

    def scene(self, video: int) -> Scene:
        """The start of a video."""
        return self.law.draw(self.generator(video))

    def video(self, video: int) -> dict[str, np.ndarray]:
        """A video with MOVi's annotations."""
        from slotbench.data.movi_like.ray_caster import render

        scene = self.scene(video)
        motion = simulate(scene, self.num_frames)
        stage = self.stage(scene, motion)
        film = render(stage, self.resolution, self.samples_per_side)
        log = self._log(scene, motion, film.masks) | camera_log(stage.cameras, self.focal_length)
        log["background_color"] = scene.colors[0, 0].astype(np.float32)
        if self.depth:
            log["depth"] = film.depth
        seen_at = image_positions(motion.positions, stage.cameras, stage.camera_rotations, stage.width)
        log["image_positions"] = padded(seen_at.astype(np.float32), self.law.num_objects[1], axis=1)
        return {"frames": film.frames, "masks": film.masks} | log

    def stage(self, scene: Scene, motion: Trajectory) -> Stage:
        """What the images of a video depend on."""
        from slotbench.data.movi_like.ray_caster import Stage

        cameras = self.law.camera_path(scene, self.num_frames)
        return Stage(
            cameras=cameras,
            camera_rotations=rotation_matrices(camera_quaternions(cameras)),
            width=SENSOR_WIDTH / self.focal_length,
            shapes=scene.shapes,
            halves=scene.scales / 2,
            positions=motion.positions,
            rotations=rotation_matrices(motion.quaternions),
            colors=scene.colors,
            textures=scene.textures,
            gloss=surface_gloss(scene.materials),
            light=scene.lamp,
        )

    def _log(self, scene: Scene, motion: Trajectory, masks: np.ndarray) -> dict[str, np.ndarray]:
        count, room = len(scene.shapes), self.law.num_objects[1]
        seen = masks[:, None] == np.arange(1, count + 1, dtype=np.uint8)[:, None, None]
        return object_log(scene, motion, scene.colors[1:, 0], room) | {
            "visibility": padded(seen.sum((2, 3), dtype=np.int64), room, axis=1),
            "bboxes": padded(_boxes(seen).astype(np.float32), room, axis=1),
        }


def object_log(bodies: Bodies, motion: Trajectory, colors: np.ndarray, room: int) -> dict[str, np.ndarray]:
    """The entries of `objects` that do not depend on cameras, padded to `room` objects."""
    count = len(bodies.shapes)
    moving = {
        "positions": motion.positions,
        "quaternions": motion.quaternions,
        "velocities": motion.velocities,
        "angular_velocities": motion.angular_velocities,
    }
    constant = {
        "mass": bodies.masses,
        "friction": bodies.frictions,
        "restitution": bodies.restitutions,
        "scale": bodies.scales,
        "color": colors,
    }
    labels = {
        "shape_label": bodies.shapes,
        "size_label": bodies.sizes,
        "color_label": bodies.color_labels,
        "material_label": bodies.materials,
        "category": bodies.shapes,
        "is_dynamic": np.ones(count, np.int64),
    }
    return {
        "num_objects": np.array(count),
        "present": np.arange(room) < count,
        **{name: padded(values.astype(np.float32), room, axis=1) for name, values in moving.items()},
        **{name: padded(values.astype(np.float32), room) for name, values in constant.items()},
        **{name: padded(values.astype(np.int64), room, fill=-1) for name, values in labels.items()},
    }


def surface_gloss(materials: np.ndarray) -> np.ndarray:
    """`Stage.gloss` of the floor and of objects of these materials, 0 metal and 1 rubber."""
    return np.concatenate([_FLOOR_GLOSS, _GLOSS[materials]])


def camera_log(cameras: np.ndarray, focal_length: float) -> dict[str, np.ndarray]:
    """The entries of `objects` about a camera with centres "time 3" that looks at the origin, under MOVi's names."""
    return {
        "camera_positions": cameras.astype(np.float32),
        "camera_quaternions": camera_quaternions(cameras).astype(np.float32),
        "camera_focal_length": np.array(focal_length, np.float32),
        "camera_sensor_width": np.array(SENSOR_WIDTH, np.float32),
        "camera_field_of_view": np.array(2 * math.atan(SENSOR_WIDTH / focal_length / 2), np.float32),
    }


def camera_quaternions(cameras: np.ndarray) -> np.ndarray:
    """Rotations "time 4" (w x y z) of cameras "time 3" that look at the origin along their -z, with y upwards."""
    backward = cameras / np.linalg.norm(cameras, axis=-1, keepdims=True)
    right = np.stack([-backward[:, 1], backward[:, 0], np.zeros(len(cameras))], axis=-1)
    right /= np.linalg.norm(right, axis=-1, keepdims=True)
    # of a turn about the vertical and then one about the camera's right
    turn = np.arctan2(right[:, 1], right[:, 0]) / 2
    tilt = np.arccos(np.clip(backward[:, 2], -1.0, 1.0)) / 2
    parts = [np.cos(turn) * np.cos(tilt), np.cos(turn) * np.sin(tilt), np.sin(turn) * np.sin(tilt)]
    return np.stack([*parts, np.sin(turn) * np.cos(tilt)], axis=-1)


def image_positions(
    positions: np.ndarray, cameras: np.ndarray, camera_rotations: np.ndarray, width: float
) -> np.ndarray:
    """Where centres "time objects 3" are in the image: x to the right and y downwards, 0..1 inside."""
    seen = np.einsum("tji,tnj->tni", camera_rotations, positions - cameras[:, None])
    return 0.5 + seen[..., :2] * np.array([1.0, -1.0]) / (-seen[..., 2:] * width)


def _boxes(seen: np.ndarray) -> np.ndarray:
    """Top, left, bottom, right in 0..1 of masks "time objects side side"; zeros of empty ones."""
    side = seen.shape[-1]
    rows, columns = np.asarray(seen.any(-1)), np.asarray(seen.any(-2))
    edges = [
        rows.argmax(-1),
        columns.argmax(-1),
        side - rows[..., ::-1].argmax(-1),
        side - columns[..., ::-1].argmax(-1),
    ]
    visible = np.asarray(rows.any(-1))
    return np.where(visible[..., None], np.stack(edges, axis=-1) / side, 0.0)
