"""Images and videos of a task as files: PNG, GIF, which every viewer plays, and MP4 where PyAV is installed."""

from __future__ import annotations

import io
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

from slotbench.files import make_folder, open_atomically, write_atomically
from slotbench.interfaces import DescribedClips, Reporter, VideoBatch

__all__ = [
    "can_encode_mp4",
    "check_media",
    "clip_title",
    "encode_gif",
    "file_name",
    "made_by",
    "write_image",
    "write_mp4",
    "write_video",
]

_GIF_FRAMES = 300


def made_by(module: LightningModule, kind: Literal["pictures", "videos"], clips: VideoBatch) -> dict[str, np.ndarray]:
    """Pictures, videos and plots of a task; none if it is no `Reporter`."""
    if not isinstance(module, Reporter):
        return {}
    with isolate_rng(), torch.no_grad():
        return module.pictures(clips) if kind == "pictures" else module.videos(clips)


def check_media(kind: str, name: str, given: Any, axes: str) -> None:
    """Checks the pictures and videos of a task.

    Raises:
        TypeError: it is no uint8 array of these axes.
    """
    dims = len(axes.split())
    good = isinstance(given, np.ndarray) and given.dtype == np.uint8 and given.ndim == dims and given.shape[-1] == 3
    if not good or 0 in given.shape:
        what = f"{given.dtype} {tuple(given.shape)}" if hasattr(given, "shape") else type(given).__name__
        raise TypeError(f'{kind} {name!r} is {what}; expected a numpy array uint8 "{axes}"')


def write_image(path: Path, image: np.ndarray) -> Path:
    """Writes an image as PNG."""
    out = io.BytesIO()
    Image.fromarray(image).save(out, format="PNG")
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

    make_folder(path.parent)
    if can_encode_mp4():
        write_mp4(path.with_name(f"{path.name}.mp4"), passing())
    else:
        for _ in passing():
            pass
    return _written(path.with_name(f"{path.name}.gif"), encode_gif(np.stack(kept)))


def clip_title(dataset: Any, index: int) -> str:
    """The clip's number, and its name in the data set if it has one."""
    name = dataset.clip_name(index) if isinstance(dataset, DescribedClips) else None
    return f"clip{index:04d}" if name is None else f"clip{index:04d}_{name}"


def file_name(name: str) -> str:
    """A name as a file name: any character but letters, digits, dots, dashes and underscores becomes a dash."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name)


def _written(path: Path, content: bytes) -> Path:
    make_folder(path.parent)
    write_atomically(path, content)
    return path


_COLOURS, _GREYS, _SMALLEST = 256, 96, 256


def encode_gif(video: UInt8[np.ndarray, "time height width 3"], frames_per_second: float = 10) -> bytes:
    """A GIF that repeats for ever, enlarged by whole pixels until its shorter side has at least 256.

    With 256 colours or fewer in the whole video, each is kept as it is. Of more, greys move by at most 2 of 255 and
    other colours to the nearest of a palette; nothing is dithered. A frame equal to the one before is not stored
    again: that one is shown for longer.

    Args:
        video: red, green and blue in 0..255.
        frames_per_second: GIF counts hundredths of a second, so 10, 20 and 25 are kept exactly.
    """
    indices, palette = _index_colours(video)
    factor = math.ceil(_SMALLEST / min(video.shape[1:3]))
    pictures = []
    for frame in indices:
        picture = Image.fromarray(frame.repeat(factor, axis=0).repeat(factor, axis=1), mode="P")
        picture.putpalette(palette.tobytes())
        pictures.append(picture)
    out = io.BytesIO()
    pictures[0].save(
        out,
        format="GIF",
        save_all=True,
        append_images=pictures[1:],
        duration=round(1000 / frames_per_second),
        loop=0,
        optimize=False,
    )
    return out.getvalue()


def _index_colours(
    video: UInt8[np.ndarray, "time height width 3"],
) -> tuple[UInt8[np.ndarray, "time height width"], UInt8[np.ndarray, "colours 3"]]:
    """One palette for the whole video, and each pixel's place in it."""
    packed = video[..., 0].astype(np.int32) << 16 | video[..., 1].astype(np.int32) << 8 | video[..., 2]
    present = np.zeros(1 << 24, dtype=bool)  # by look-up: sorting the pixels of a long video takes seconds
    present[packed] = True
    codes = np.flatnonzero(present)
    colours = np.stack([codes >> 16, codes >> 8 & 255, codes & 255], axis=-1).astype(np.uint8)
    places = np.arange(len(colours))
    if len(colours) > _COLOURS:
        places, colours = _fewer(colours)
    table = np.zeros(1 << 24, dtype=np.uint8)
    table[codes] = places
    return table[packed], colours


def _fewer(colours: UInt8[np.ndarray, "given 3"]) -> tuple[np.ndarray, UInt8[np.ndarray, "colours 3"]]:
    """A palette of at most 256, greys first, and each given colour's place in it."""
    grey = (colours == colours[:, :1]).all(-1)
    levels = np.rint(np.linspace(0, 255, _GREYS)).astype(np.uint8)
    places = np.rint(colours[:, 0] * ((_GREYS - 1) / 255)).astype(np.int64)
    palette = [np.repeat(levels[:, None], 3, axis=1)]
    if not grey.all():
        # every colour counts once: by area, black would take what is to tell the others apart
        others = Image.fromarray(colours[~grey][None])
        chosen = others.quantize(_COLOURS - _GREYS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        places[~grey] = _GREYS + np.asarray(chosen)[0]
        palette.append(np.array(chosen.getpalette(), dtype=np.uint8).reshape(-1, 3)[: _COLOURS - _GREYS])
    return places, np.concatenate(palette)


_CODEC, _SMALLEST = "libx264", 256


@cache
def can_encode_mp4() -> bool:
    """Whether PyAV is installed (`slotbench[video]`) and was built with an encoder for H.264."""
    if find_spec("av") is None:
        return False
    import av

    return _CODEC in av.codecs_available


def write_mp4(path: Path, frames: Iterable[np.ndarray], frames_per_second: int = 10) -> None:
    """An MP4 in H.264 that every browser plays, enlarged by whole pixels until its shorter side has at least 256.

    The last row or column is repeated where a side would be odd, which the format cannot hold. Brightness is kept
    closely; colours of neighbouring pixels run into one another, as they have half the resolution. Frames are taken and
    written one by one; the file gets its name once it is whole.

    Args:
        path: where to.
        frames: each "height width 3" in bytes, all of one size.
        frames_per_second: how fast it plays.
    """
    import av

    factor = 1
    with open_atomically(path) as file, av.open(file, "w", format="mp4") as container:
        stream = container.add_stream(_CODEC, rate=frames_per_second, options={"crf": "18"})
        assert isinstance(stream, av.VideoStream)
        for index, frame in enumerate(frames):
            if index == 0:
                factor = math.ceil(_SMALLEST / min(frame.shape[:2]))
            large = frame.repeat(factor, axis=0).repeat(factor, axis=1)
            even = np.pad(large, ((0, large.shape[0] % 2), (0, large.shape[1] % 2), (0, 0)), mode="edge")
            if index == 0:
                stream.height, stream.width = even.shape[:2]
                stream.pix_fmt = "yuv420p"
            container.mux(stream.encode(av.VideoFrame.from_ndarray(even, format="rgb24")))
        container.mux(stream.encode())
