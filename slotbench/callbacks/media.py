"""Images and videos of a task as files: PNG and GIF."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import UInt8
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.seed import isolate_rng
from PIL import Image

from slotbench.interfaces import DescribedClips, Reporter, VideoBatch
from slotbench.io import open_atomically

__all__ = ["Kind", "clip_title", "file_name", "made_by", "write_gif", "write_image", "write_video"]

Kind = Literal["pictures", "videos", "plots"]

_GIF_FRAMES, _SMALLEST = 300, 256


def made_by(module: LightningModule, kind: Kind, *clips: VideoBatch) -> dict[str, Any]:
    """Pictures or videos of a task from clips, or plots; none if it is no `Reporter`.

    Raises:
        TypeError: one is no uint8 array "height width 3", or "time height width 3" if it is a video.
    """
    if not isinstance(module, Reporter):
        return {}
    with isolate_rng(), torch.no_grad():
        made = getattr(module, kind)(*clips)
    axes = "time height width 3" if kind == "videos" else "height width 3"
    for name, given in made.items():
        what = f"{given.dtype} {tuple(given.shape)}" if isinstance(given, np.ndarray) else type(given).__name__
        if not re.fullmatch(rf"uint8 \(([1-9]\d*, ){{{axes.count(' ')}}}3\)", what):
            raise TypeError(f'{kind[:-1]} {name!r} is {what}; expected a numpy array uint8 "{axes}"')
    return made


def clip_title(dataset: Any, index: int) -> str:
    """The clip's number, and its name in the data set if it has one."""
    name = dataset.clip_name(index) if isinstance(dataset, DescribedClips) else None
    return f"clip{index:04d}" if name is None else f"clip{index:04d}_{name}"


def file_name(name: str) -> str:
    """A name as a file name: any character but letters, digits, dots, dashes and underscores becomes a dash."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name)


def write_image(path: Path, image: np.ndarray) -> Path:
    """Writes `path.png`."""
    path = path.with_name(f"{path.name}.png")
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_atomically(path) as file:
        Image.fromarray(image).save(file, format="PNG")
    return path


def write_video(path: Path, frames: Iterable[np.ndarray], count: int) -> Path:
    """Writes `path.gif` of at most 300 of `count` frames "height width 3" in bytes, which are taken one by one."""
    every = -(-count // _GIF_FRAMES)
    # copies: a view would keep all that it is a view of
    kept = [frame.copy() for frame in islice(frames, 0, count, every)]
    return write_gif(path.with_name(f"{path.name}.gif"), np.stack(kept))


def write_gif(path: Path, video: UInt8[np.ndarray, "time height width 3"], frames_per_second: float = 10) -> Path:
    """A GIF that repeats for ever, in one palette of 256 colours, its shorter side enlarged to at least 256 pixels."""
    factor = math.ceil(_SMALLEST / min(video.shape[1:3]))
    # one palette for all frames, so that colours do not flicker
    palette = Image.fromarray(video.reshape(-1, video.shape[2], 3)).quantize(256, dither=Image.Dither.NONE)
    size = (factor * video.shape[2], factor * video.shape[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    few = (Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in video)
    frames = [frame.resize(size, Image.Resampling.NEAREST) for frame in few]
    with open_atomically(path) as file:
        duration = round(1000 / frames_per_second)
        frames[0].save(file, format="GIF", save_all=True, append_images=frames[1:], duration=duration, loop=0)
    return path
