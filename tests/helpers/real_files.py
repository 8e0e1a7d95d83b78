"""Small trees of DAVIS and YouTube-VIS in the layouts of their releases."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SIZE = (12, 20)


def drawn(seed: int, length: int, size: tuple[int, int] = SIZE, objects: int = 3) -> np.ndarray:
    """Ids "time height width": bars that move, each of some rows and all frames."""
    ids = np.zeros((length, *size), np.uint8)
    for time in range(length):
        for one in range(objects):
            left = (seed + 3 * one + time) % (size[1] - 6)
            ids[time, 4 * one : 4 * one + 3, left : left + 6] = one + 1
    return ids


def write_frames(folder: Path, ids: np.ndarray) -> list[str]:
    """A JPEG for each frame, brighter where the id is higher."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{number:05}.jpg" for number in range(len(ids))]
    for name, one in zip(names, ids, strict=True):
        Image.fromarray((60 * one).repeat(3).reshape(*one.shape, 3)).save(folder / name, quality=95)
    return names


def write_palettes(folder: Path, ids: np.ndarray) -> None:
    """A PNG with a palette for each mask."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, one in enumerate(ids):
        image = Image.fromarray(one)
        image.putpalette([value for i in range(256) for value in (i, 255 - i, i * 7 % 256)])
        image.save(folder / f"{number:05}.png")


def write_davis(
    folder: Path,
    videos: Mapping[str, int] | None = None,
    val: Sequence[str] = ("dog", "cat"),
    size: tuple[int, int] = SIZE,
    year: int = 2017,
) -> dict[str, np.ndarray]:
    """The tree of DAVIS, the videos in `val` being those of its list; the ids of each by its name."""
    videos = videos or {"bear": 9, "ant": 9, "cow": 9, "dog": 9, "cat": 9}
    ids = {name: drawn(seed, length, size) for seed, (name, length) in enumerate(videos.items())}
    for name, own in ids.items():
        write_frames(folder / "JPEGImages" / "480p" / name, own)
        write_palettes(folder / "Annotations" / "480p" / name, own)
    lists = folder / "ImageSets" / str(year)
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("".join(f"{name}\n" for name in videos if name not in val))
    (lists / "val.txt").write_text("".join(f"{name}\n" for name in val))
    return ids


def runs_of(mask: np.ndarray, compressed: bool) -> dict[str, Any]:
    """A mask as a file of YouTube-VIS has it."""
    if not compressed:
        flat = np.concatenate([[0], mask.T.ravel(), [2]])
        changes = np.flatnonzero(np.diff(flat))
        return {"size": list(mask.shape), "counts": np.diff([0, *changes]).tolist()}
    from pycocotools.mask import encode

    found = encode(np.asfortranarray(mask.astype(np.uint8)))
    return {"size": list(mask.shape), "counts": found["counts"].decode()}


def write_youtube_vis(
    folder: Path, stored: str = "train", lengths: Sequence[int] = (9, 9, 9), ids: Sequence[np.ndarray] | None = None
) -> Sequence[np.ndarray]:
    """A split of YouTube-VIS, masks of even videos compressed; the ids of each video, up to 3, drawn unless given."""
    videos, tracks, ids = [], [], ids or [drawn(seed, length) for seed, length in enumerate(lengths)]
    for number, own in enumerate(ids, 1):
        name = f"video{number}"
        names = write_frames(folder / stored / "JPEGImages" / name, own)
        listed = [f"{name}/{one}" for one in names]
        videos.append({"id": number, "file_names": listed, "height": own.shape[1], "width": own.shape[2]})
        for one in range(1, 4):
            masks = [runs_of(mask == one, number % 2 == 0) if (mask == one).any() else None for mask in own]
            about = {"id": len(tracks) + 1, "video_id": number, "category_id": 10 + one, "iscrowd": 0}
            tracks.append({**about, "segmentations": masks, "areas": [None if m is None else 1 for m in masks]})
    names = [{"id": 10 + one, "name": f"kind {one}", "supercategory": "object"} for one in range(1, 4)]
    write_json(folder / stored / "instances.json", videos=videos, annotations=tracks, categories=names)
    return ids


def write_json(path: Path, **content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"info": {"year": 2021}, "licenses": [], **content}))
