"""Files of CLEVRER in small, in the layout of the released archives."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import media_files
import numpy as np

__all__ = ["FRAMES", "annotation_of", "pack", "proposals_of", "write_clevrer", "write_movie"]

FRAMES = 128
SIZE = (32, 48)
LOOKS = [("red", "metal", "cube"), ("blue", "rubber", "sphere")]


def pack(mask: np.ndarray) -> str:
    """A mask "height width" as COCO's packed runs, written from their description."""
    flat = np.concatenate([[0], mask.T.ravel().astype(int), [-1]])
    edges = np.flatnonzero(np.diff(flat)) + 1
    lengths = [b - a for a, b in pairwise([1, *edges.tolist()])]
    text = ""
    for place, length in enumerate(lengths):
        value = length - (lengths[place - 2] if place > 2 else 0)
        while True:
            low, value = value & 31, value >> 5
            last = (value == 0 and not low & 16) or (value == -1 and low & 16)
            text += chr(48 + low + (0 if last else 32))
            if last:
                break
    return text


def masks_of(frame: int) -> list[np.ndarray]:
    """A square that goes right, a pixel each fourth frame, and one that stands still, 8 pixels each."""
    masks = [np.zeros(SIZE, bool) for _ in LOOKS]
    left = frame // 4
    masks[0][4:12, left : left + 8] = True
    masks[1][20:28, 36:44] = True
    return masks


def annotation_of(number: int) -> dict[str, Any]:
    """Two objects; the second one enters at frame 10, and they collide in frames 21 and 100."""
    looks = [{"object_id": i, "color": c, "material": m, "shape": s} for i, (c, m, s) in enumerate(LOOKS)]
    steps = []
    for frame in range(FRAMES):
        there = [
            {
                "object_id": i,
                "location": [0.01 * frame + i, float(number), 0.2],
                "orientation": [0.0, 0.0, 0.0],
                "velocity": [0.25, 0.0, -float(i)],
                "angular_velocity": [0.0, 0.0, 0.0],
                "inside_camera_view": i == 0 or frame >= 10,
            }
            for i in range(len(LOOKS))
        ]
        steps.append({"frame_id": frame, "objects": there})
    events = [{"object_ids": [0, 1], "frame_id": frame, "location": [0, 0, 0]} for frame in (21, 100)]
    return {
        "scene_index": number,
        "video_filename": f"video_{number:05d}.mp4",
        "object_property": looks,
        "motion_trajectory": steps,
        "collision": events,
    }


def proposals_of(number: int) -> dict[str, Any]:
    """Detections in another order than that of the objects, and in frame 3 one of an object that is not there."""
    frames = []
    for frame in range(FRAMES):
        found = [
            {
                **dict(zip(("color", "material", "shape"), look, strict=True)),
                "score": 0.9,
                "mask": {"size": list(SIZE), "counts": pack(mask)},
            }
            for look, mask in reversed([*zip(LOOKS, masks_of(frame), strict=True)])
        ]
        if frame == 3:
            whole = {"size": list(SIZE), "counts": pack(np.ones(SIZE, bool))}
            found.append({"color": "gray", "material": "metal", "shape": "cube", "score": 0.99, "mask": whole})
        frames.append({"frame_filename": f"{frame:05d}.png", "frame_index": frame, "objects": found})
    return {"video_index": number, "video_name": f"video_{number:05d}.mp4", "frames": frames}


def write_movie(path: Path, frames: int = FRAMES, brightness: int = 60) -> None:
    """An mp4 file whose brightness grows with the frame."""
    images = np.full((frames, *SIZE, 3), brightness, np.uint8) + np.arange(frames, dtype=np.uint8)[:, None, None, None]
    media_files.write_movie(path, images, between_keys=12, bit_rate=8_000_000)


def write_clevrer(folder: Path, videos: dict[str, list[int]] | None = None, archives: bool = False) -> Path:
    """The set with these videos of each split; `archives` names folders as the released archives are called."""
    for split, numbers in (videos or {"train": [3, 1200], "validation": [10000, 10801], "test": [15000]}).items():
        short = "val" if split == "validation" else split
        for number in numbers:
            block = f"{number // 1000 * 1000:05d}-{(number // 1000 + 1) * 1000:05d}"

            def at(kind: str, name: str, split: str = split, short: str = short, block: str = block) -> Path:
                place = folder / f"{kind}_{split}" if archives else folder / f"{kind}s" / short
                return place / f"{kind}_{block}" / name

            write_movie(at("video", f"video_{number:05d}.mp4"))
            if split != "test":
                file = at("annotation", f"annotation_{number:05d}.json")
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(json.dumps(annotation_of(number)))
            (folder / "derender_proposals").mkdir(exist_ok=True)
            file = folder / "derender_proposals" / f"proposal_{number:05d}.json"
            file.write_text(json.dumps(proposals_of(number)))
    return folder
