"""Images and videos of a task as files: PNG, GIF, and MP4 where PyAV is installed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
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

__all__ = ["check_media", "clip_title", "file_name", "made_by", "write_gif", "write_image", "write_mp4", "write_video"]

_GIF_FRAMES, _SMALLEST, _CODEC = 300, 256, "libx264"


def made_by(module: LightningModule, kind: Literal["pictures", "videos"], clips: VideoBatch) -> dict[str, np.ndarray]:
    """Pictures or videos of a task; none if it is no `Reporter`."""
    if not isinstance(module, Reporter):
        return {}
    with isolate_rng(), torch.no_grad():
        return module.pictures(clips) if kind == "pictures" else module.videos(clips)


def check_media(kind: str, name: str, given: Any, axes: str) -> None:
    """Raises TypeError for what is no uint8 array of these axes."""
    good = isinstance(given, np.ndarray) and given.dtype == np.uint8 and given.ndim == len(axes.split())
    if not good or given.shape[-1] != 3 or 0 in given.shape:
        what = f"{given.dtype} {tuple(given.shape)}" if hasattr(given, "shape") else type(given).__name__
        raise TypeError(f'{kind} {name!r} is {what}; expected a numpy array uint8 "{axes}"')


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
    """Writes `path.gif` of at most 300 frames, and `path.mp4` of all where PyAV is installed; returns the GIF.

    Of `count` frames each is "height width 3" in bytes; they are taken one by one: a long video needs no memory.
    """
    kept: list[np.ndarray] = []
    every = -(-count // _GIF_FRAMES)

    def passing() -> Iterable[np.ndarray]:
        for number, frame in enumerate(islice(frames, count)):
            if number % every == 0:
                kept.append(frame.copy())  # a view would keep all that it is a view of
            yield frame

    path.parent.mkdir(parents=True, exist_ok=True)
    if _can_encode_mp4():
        write_mp4(path.with_name(f"{path.name}.mp4"), passing())
    else:
        for _ in passing():
            pass
    return write_gif(path.with_name(f"{path.name}.gif"), np.stack(kept))


def write_gif(path: Path, video: UInt8[np.ndarray, "time height width 3"], frames_per_second: float = 10) -> Path:
    """A GIF that repeats for ever, in one palette of 256 colours, its shorter side enlarged to at least 256 pixels."""
    factor = math.ceil(_SMALLEST / min(video.shape[1:3]))
    # one palette for all frames, so that colours do not flicker
    palette = Image.fromarray(video.reshape(-1, video.shape[2], 3)).quantize(256, dither=Image.Dither.NONE)
    size = (factor * video.shape[2], factor * video.shape[1])
    few = (Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in video)
    frames = [frame.resize(size, Image.Resampling.NEAREST) for frame in few]
    with open_atomically(path) as file:
        duration = round(1000 / frames_per_second)
        frames[0].save(file, format="GIF", save_all=True, append_images=frames[1:], duration=duration, loop=0)
    return path


@cache
def _can_encode_mp4() -> bool:
    """Whether PyAV is installed (`slotbench[video]`) and was built with an encoder for H.264."""
    if find_spec("av") is None:
        return False
    import av

    return _CODEC in av.codecs_available


def write_mp4(path: Path, frames: Iterable[np.ndarray], frames_per_second: int = 10) -> None:
    """An MP4 in H.264 that every browser plays, its shorter side enlarged to at least 256 pixels."""
    import av

    with open_atomically(path) as file, av.open(file, "w", format="mp4") as container:
        stream = container.add_stream(_CODEC, rate=frames_per_second, options={"crf": "18"})
        assert isinstance(stream, av.VideoStream)
        for index, frame in enumerate(frames):
            factor = math.ceil(_SMALLEST / min(frame.shape[:2]))
            large = frame.repeat(factor, axis=0).repeat(factor, axis=1)
            # H.264 holds even sides alone
            even = np.pad(large, ((0, large.shape[0] % 2), (0, large.shape[1] % 2), (0, 0)), mode="edge")
            if index == 0:
                stream.height, stream.width = even.shape[:2]
                stream.pix_fmt = "yuv420p"
            container.mux(stream.encode(av.VideoFrame.from_ndarray(even, format="rgb24")))
        container.mux(stream.encode())
