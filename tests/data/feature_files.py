"""Feature files in small, as a user may write them."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np

VIDEOS, FRAMES, GRID, WIDTH, SIDE = 5, 3, (2, 4), 6, 8


def write_feature_file(
    path: Path, videos: int = VIDEOS, class_token: bool = False, without: tuple[str, ...] = (), side: int = SIDE
) -> Path:
    """Features that say where they are: 1000 v + 100 f + cell + channel / 10 (half of it is exact enough to tell)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tokens = GRID[0] * GRID[1] + class_token
    video, frame, token, channel = np.indices((videos, FRAMES, tokens, WIDTH))
    cell = token - class_token
    rng = np.random.default_rng(0)
    fields = {
        "features": np.where(cell < 0, -1, 100 * video + 20 * frame + cell + channel / 8).astype(np.float16),
        "frames": rng.integers(0, 256, (videos, FRAMES, 3, side, side), dtype=np.uint8),
        "masks": rng.integers(0, 4, (videos, FRAMES, side, side), dtype=np.uint8),
        "num_objects": np.arange(videos) + 3,
    }
    with h5py.File(path, "w") as file:
        for name, values in fields.items():
            if name not in without:
                file[name] = values
        attributes = {"grid": GRID, "has_class_token": class_token, "source": json.dumps({"made": "by hand"})}
        for name, value in attributes.items():
            if name not in without:
                file.attrs[name] = value
    return path
