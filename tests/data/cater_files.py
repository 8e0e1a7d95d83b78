"""Files of CATER in small, in the layout of the released archives."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from media_files import write_movie

__all__ = ["FRAMES", "scene_of", "write_cater", "write_video"]

FRAMES = 13


def write_video(path: Path, frames: np.ndarray) -> Path:
    """An AVI file of Motion JPEG."""
    return write_movie(path, frames, codec="mjpeg", pixels="yuvj420p")


def scene_of(seed: int, frames: int = FRAMES) -> dict:
    """A snitch that a cone comes to cover at frame 4, carries from 6 to 9, and, for even seeds, uncovers at 11."""
    x = 0.5 + seed % 3
    carried = np.interp(np.arange(frames), [6, 9], [0.0, -2.0])
    snitch = [[x + way, -1.5, 0.3] for way in carried]
    cone = [[x + (2.0 - 0.5 * min(frame, 4)) + way, -1.5, 0.5] for frame, way in enumerate(carried)]
    moves = [["_contain", "Spl_0", 1, 4], ["_slide", None, 6, 9]]
    if seed % 2 == 0:
        moves.append(["_pick_place", None, 11, 12])
        cone[12] = [2.5, 2.5, 0.5]

    def item(name: str, shape: str, places: list) -> dict:
        locations = {str(frame): place for frame, place in enumerate(places)}
        return {"instance": name, "shape": shape, "sized": places[0][2], "color": "gold", "locations": locations}

    cube = [[-2.5, 2.5, 0.4]] * frames
    objects = [item("Cube_0", "cube", cube), item("Cone_0", "cone", cone), item("Spl_0", "spl", snitch)]
    return {"objects": objects, "movements": {"Cube_0": [["_rotate", None, 0, 5]], "Cone_0": moves, "Spl_0": []}}


def write_cater(folder: Path, videos: int = 6) -> Path:
    """A version of the set: videos of 32 x 24 pixels, whose brightness is that of their number and frame."""
    for name in ("videos", "scenes", "lists/localize"):
        (folder / name).mkdir(parents=True)
    lines = []
    for video in range(videos):
        images = np.stack([np.full((24, 32, 3), 40 * video + frame, np.uint8) for frame in range(FRAMES)])
        name = f"CATER_new_{video:06d}"
        write_video(folder / "videos" / f"{name}.avi", images)
        scene = scene_of(video)
        (folder / "scenes" / f"{name}.json").write_text(json.dumps(scene))
        x, y, _ = scene["objects"][2]["locations"][str(FRAMES - 1)]
        label = (int(np.floor(y)) + 3) * 6 + int(np.floor(x)) + 3
        lines.append(f"{name}.avi {label}\n")
    lists = {"train": lines[:-1], "train_subsetT": lines[:-2], "train_subsetV": lines[-2:-1], "val": lines[-1:]}
    for name, held in lists.items():
        (folder / "lists" / "localize" / f"{name}.txt").write_text("".join(held))
    return folder
