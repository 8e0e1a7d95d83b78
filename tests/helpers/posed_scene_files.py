"""Tiny files of several posed cameras, in the layouts of the sets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from slotbench.data.cameras import turntable


def shade(scene: int, view: int, step: int = 0) -> int:
    """The grey of an image, by which it is known again."""
    return 40 * scene + 10 * view + step


def picture(grey: int, height: int, width: int) -> np.ndarray:
    return np.full((height, width, 3), grey, np.uint8)


def ids(scene: int, view: int, height: int, width: int) -> np.ndarray:
    """Object 1 in the left, object 2 in the upper right corner, 0 elsewhere."""
    found = np.zeros((height, width), np.uint8)
    found[:, : 2 + width // 4] = 1
    found[: height // 4, -width // 4 :] = 2
    return found


def write_clevr3d(folder: Path, scenes: tuple[int, ...] = (0, 1, 2), total: int = 4) -> Path:
    """Scenes of 32 x 24 pixels, of which scene i has i + 1 objects."""
    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for scene in scenes:
        for view in range(3):
            Image.fromarray(picture(shade(scene % 10, view), 24, 32)).save(
                folder / "images" / f"img_{scene}_{view}.png"
            )
            Image.fromarray(ids(scene, view, 24, 32)).save(folder / "masks" / f"masks_{scene}_{view}.png")
    centres = np.random.default_rng(0).uniform(2, 8, (total, 3, 3))
    shape = np.zeros((total, 10), np.int64)
    for scene in range(total):
        shape[scene, : scene % 10 + 1] = 1 + np.arange(scene % 10 + 1) % 3
    np.savez(folder / "metadata.npz", camera_pos=centres, shape=shape)
    return folder


def opencv(cameras: np.ndarray) -> np.ndarray:
    """The same cameras with columns right, down, forward."""
    return cameras * np.array([1.0, -1.0, -1.0, 1.0])


def write_uorf(folder: Path, scenes: int = 3, views: int = 4) -> Path:
    """Scenes of 16 x 16 pixels."""
    folder.mkdir(parents=True, exist_ok=True)
    colours = np.array([(10, 10, 10), (200, 0, 0), (0, 0, 200)], np.uint8)
    for scene in range(scenes):
        cameras = opencv(turntable(views, 6.0 + scene).double().numpy())
        for view in range(views):
            name = folder / f"{scene * views + view:05d}_sc{scene:04d}_az{view:02d}"
            Image.fromarray(picture(shade(scene, view), 16, 16)).save(f"{name}.png")
            Image.fromarray(colours[ids(scene, view, 16, 16)]).save(f"{name}_mask.png")
            np.savetxt(f"{name}_RT.txt", cameras[view])
            np.savetxt(f"{name}_azi_rot.txt", np.eye(3))
    return folder


def write_posed_videos(
    folder: Path, splits: tuple[str, ...] = ("train", "test"), clips: int = 2, cameras: int = 3, frames: int = 4
) -> Path:
    """Clips of folders of images of 12 x 10 pixels; the cameras of the second one move."""
    for split in splits:
        for clip in range(clips):
            place = folder / split / f"clip{clip}"
            for camera in range(cameras):
                (place / f"cam_{camera}").mkdir(parents=True)
                (place / "masks" / f"cam_{camera}").mkdir(parents=True)
                for step in range(frames):
                    name = f"cam_{camera}/{step:03d}.png"
                    Image.fromarray(picture(shade(clip, camera, step), 10, 12)).save(place / name)
                    Image.fromarray(ids(clip, camera, 10, 12)).save(place / "masks" / name)
            poses = turntable(cameras * frames, 4.0).numpy().reshape(frames, cameras, 4, 4)
            np.savez(place / "cameras.npz", camera_to_world=poses if clip else poses[0], focal=15.0)
    return folder
