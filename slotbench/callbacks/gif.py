"""Videos as GIF: every viewer plays them, and no codec is needed."""

from __future__ import annotations

import io
import math

import numpy as np
from jaxtyping import UInt8
from PIL import Image

__all__ = ["encode_gif"]

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
