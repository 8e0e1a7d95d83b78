"""Files of bouncing balls in the layout of R-NEM, in small."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from slotbench.data.balls.bouncing_balls import BouncingBalls
from slotbench.data.base import Split

FRAMES = 51
CLIPS: dict[str, tuple[Split, int]] = {"training": ("train", 4), "validation": ("val", 2), "test": ("test", 3)}


def write_ball_file(path: Path, without: tuple[str, ...] = (), compression: str | None = None, side: int = 16) -> Path:
    """Simulated clips, time first, as `BouncingBalls` makes them; training clips are longer than its own."""
    data = BouncingBalls(num_balls=2, num_frames=FRAMES, eval_frames=FRAMES, resolution=side)
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for group, (split, count) in CLIPS.items():
            batch = data.dataset(split).clips(range(count))  # type: ignore[attr-defined]
            fields = {
                "features": batch.frames.numpy().transpose(1, 0, 3, 4, 2).astype(np.float32) / 255,
                "groups": batch.masks.numpy().swapaxes(0, 1)[..., None].astype(np.float32),
                "positions": batch.objects["positions"].numpy().swapaxes(0, 1),
                "velocities": batch.objects["velocities"].numpy().swapaxes(0, 1),
                "collisions": np.zeros((FRAMES, count, 2), dtype=np.float32),
                "events": np.zeros((FRAMES, count, 1), dtype=np.float32),
            }
            for name, values in fields.items():
                if name not in without:
                    file.create_dataset(f"{group}/{name}", data=values, compression=compression)
    return path
