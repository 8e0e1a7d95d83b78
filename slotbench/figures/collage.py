"""Videos and pictures of several sources in one video, each with its title above."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw, ImageFont

__all__ = ["collage"]

_COLUMN, _GAP, _TITLE, _GROUND, _INK = 520, 10, 22, (24, 24, 24), (240, 240, 240)

Video = UInt8[np.ndarray, "time height width 3"]


class _Tile(NamedTuple):
    title: str
    video: Video

    @property
    def height(self) -> int:
        return _TITLE + self.video.shape[1]

    @property
    def width(self) -> int:
        return self.video.shape[2]


def collage(shown: Mapping[str, UInt8[np.ndarray, ...]]) -> UInt8[np.ndarray, "steps sheet_height sheet_width 3"]:
    """One video of all: in two columns, and below them whatever is wider than a column.

    A video takes as long as the longest: its frames are held. Small ones are enlarged by whole pixels to the width of a
    column, as far as they fit. There are at most 256 colours, those of large areas first: a GIF keeps them as they are.

    Args:
        shown: by title, a video "time height width 3", or a picture "height width 3", which stays.
    """
    tiles = [_Tile(title, _enlarged(made if made.ndim == 4 else made[None])) for title, made in shown.items()]
    narrow = sorted((tile for tile in tiles if tile.width <= _COLUMN), key=lambda tile: -tile.height)
    columns: tuple[list[_Tile], list[_Tile]] = ([], [])
    for tile in narrow:
        min(columns, key=_height).append(tile)
    places: list[tuple[_Tile, int, int]] = []
    left = _GAP
    for column in columns:
        top = _GAP
        for tile in column:
            places.append((tile, left, top))
            top += tile.height + _GAP
        left += max((tile.width + _GAP for tile in column), default=0)
    top = _GAP + max(map(_height, columns))
    for tile in tiles:
        if tile.width > _COLUMN:
            places.append((tile, _GAP, top))
            top += tile.height + _GAP
    width = max(left, *(_GAP + tile.width + _GAP for tile in tiles))
    return _drawn(places, (top, width))


def _height(column: Sequence[_Tile]) -> int:
    return sum(tile.height + _GAP for tile in column)


def _enlarged(video: Video) -> UInt8[np.ndarray, "time large_height large_width 3"]:
    factor = max(1, _COLUMN // video.shape[2])
    return video.repeat(factor, axis=1).repeat(factor, axis=2)


def _drawn(places: Sequence[tuple[_Tile, int, int]], size: tuple[int, int]) -> Video:
    blank = Image.new("RGB", (size[1], size[0]), _GROUND)
    draw, font = ImageDraw.Draw(blank), ImageFont.load_default(size=13)
    for tile, left, top in places:
        draw.text((left, top + _TITLE // 2), tile.title, fill=_INK, font=font, anchor="lm")
    steps = max(len(tile.video) for tile, _, _ in places)
    sheet = np.repeat(np.asarray(blank)[None], steps, axis=0)
    for tile, left, top in places:
        held = tile.video[np.arange(steps) * len(tile.video) // steps]
        sheet[:, top + _TITLE : top + tile.height, left : left + tile.width] = held
    return _few_colours(sheet)


def _few_colours(video: Video) -> Video:
    pixels = video[:, ::2, ::2]  # enough to weigh colours by
    palette = Image.fromarray(pixels.reshape(-1, pixels.shape[2], 3)).quantize(256, dither=Image.Dither.NONE)
    frames = (Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in video)
    return np.stack([np.asarray(frame.convert("RGB")) for frame in frames])
