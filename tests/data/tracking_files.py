"""Files in the layout of the object-centric representation benchmark, written pixel by pixel."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

VIDEOS, FRAMES, HEIGHT, WIDTH = 3, 4, 6, 8


def runs_of(mask: np.ndarray) -> str:
    """Run lengths of a mask: a run begins at a pixel whose left neighbour in reading order is not in it."""
    words: list[int] = []
    before = False
    for place, inside in enumerate(mask.reshape(-1).tolist(), start=1):
        if inside and not before:
            words += [place, 0]
        if inside:
            words[-1] += 1
        before = bool(inside)
    return " ".join(map(str, words))


def true_masks() -> np.ndarray:
    """Numbers of the objects: two squares, of which the second comes in the second frame and hides the first."""
    masks = np.zeros((VIDEOS, FRAMES, HEIGHT, WIDTH), dtype=np.uint8)
    for video in range(VIDEOS):
        for t in range(FRAMES):
            masks[video, t, 1:3, t : t + 3] = 1
            if t:
                masks[video, t, 2:5, video + 2 : video + 4] = 2
    return masks


def annotations(masks: np.ndarray, num_bg: int = 1) -> list[list[dict]]:
    """What the benchmark's file says of them: ids that no other video has, the background last."""
    told = []
    for video, clip in enumerate(masks):
        frames = []
        for frame in clip:
            here = [number for number in (1, 2) if (frame == number).any()]
            # the second object is listed first: its place in the list says nothing
            here = here[::-1]
            ids = [100 * video + 10 * number for number in here] + [100 * video + 99] * num_bg
            runs = [runs_of(frame == number) for number in here] + [runs_of(frame == 0)] * num_bg
            frames.append({"masks": runs, "ids": ids, "num_bg": num_bg})
        told.append(frames)
    return told


def write_tracking_files(folder: Path, name: str = "vmds", split: str = "test", **told: int) -> Path:
    """Videos and annotations of a split; returns the annotations."""
    folder.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(0).integers(0, 256, (VIDEOS, FRAMES, 3, HEIGHT, WIDTH), dtype=np.uint8)
    np.save(folder / f"{name}_{split}", values)
    path = folder / f"{name}_{split}.json"
    path.write_text(json.dumps(annotations(true_masks(), **told)))
    return path
