"""Pictures and videos of a task as files."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.seed import isolate_rng
from PIL import Image

from slotbench.callbacks.gif import encode_gif
from slotbench.callbacks.mp4 import can_encode_mp4, write_mp4
from slotbench.files import write_atomically

__all__ = ["check_media", "file_name", "made_by", "write_picture", "write_video"]

_GIF_FRAMES = 300


def made_by(module: LightningModule, method: str, clips: Any) -> dict[str, np.ndarray]:
    """What the task's `pictures` or `videos` makes of the clips; nothing if it has no such method."""
    make: Any = getattr(module, method, None)
    if make is None:
        return {}
    with isolate_rng(), torch.no_grad():
        made: dict[str, np.ndarray] = make(clips)
    return made


def check_media(kind: str, name: str, given: Any, axes: str) -> None:
    """Looks at what a task hands over.

    Raises:
        TypeError: it is no uint8 array of these axes.
    """
    dims = len(axes.split())
    good = isinstance(given, np.ndarray) and given.dtype == np.uint8 and given.ndim == dims and given.shape[-1] == 3
    if not good or 0 in given.shape:
        what = f"{given.dtype} {tuple(given.shape)}" if hasattr(given, "shape") else type(given).__name__
        raise TypeError(f'{kind} {name!r} is {what}; expected a numpy array uint8 "{axes}"')


def write_picture(path: Path, picture: np.ndarray) -> Path:
    """Writes a picture as PNG."""
    out = io.BytesIO()
    Image.fromarray(picture).save(out, format="PNG")
    return _written(path.with_name(f"{path.name}.png"), out.getvalue())


def write_video(path: Path, frames: Iterable[np.ndarray], count: int) -> Path:
    """Writes `path.gif`, and `path.mp4` where PyAV is installed; returns the GIF.

    Frames are taken one by one, so that a long video needs no memory. An MP4 has all of them, and a GIF at most 300,
    evenly spaced.

    Args:
        path: without the ending.
        frames: each "height width 3" in bytes.
        count: how many there are.
    """
    kept: list[np.ndarray] = []
    every = -(-count // _GIF_FRAMES)

    def passing() -> Iterable[np.ndarray]:
        for number, frame in enumerate(islice(frames, count)):
            if number % every == 0:
                kept.append(frame.copy())  # a view would keep all that it is a view of
            yield frame

    path.parent.mkdir(parents=True, exist_ok=True)
    if can_encode_mp4():
        write_mp4(path.with_name(f"{path.name}.mp4"), passing())
    else:
        for _ in passing():
            pass
    return _written(path.with_name(f"{path.name}.gif"), encode_gif(np.stack(kept)))


def file_name(name: str) -> str:
    """A name as that of a file: what is no letter, digit, dot, dash or underscore becomes a dash."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name)


def _written(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)
    return path
