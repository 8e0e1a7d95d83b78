"""Rows of small labelled pictures: what a run shows of itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Integer, UInt8
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

__all__ = ["SLOT_COLOURS", "contact_sheet", "paint_classes", "paint_slots"]

SLOT_COLOURS = np.array(
    [
        (230, 85, 60),
        (60, 130, 220),
        (70, 175, 90),
        (240, 190, 60),
        (150, 100, 200),
        (80, 200, 200),
        (235, 130, 190),
        (160, 120, 80),
        (150, 200, 80),
        (120, 120, 160),
        (255, 150, 110),
        (110, 160, 130),
    ],
    dtype=np.uint8,
)
"""A colour for each slot, reused in turn past the twelfth."""

_CELL, _GAP, _LABEL, _GROUND = 96, 6, 18, (250, 250, 250)


def paint_classes(
    classes: Integer[Tensor, "height width"], palette: Sequence[Sequence[int]]
) -> UInt8[np.ndarray, "height width 3"]:
    """A class image in its palette."""
    return np.asarray(palette, dtype=np.uint8)[classes.cpu().numpy()]


def paint_slots(
    winners: Integer[Tensor, "height width"], bright: Integer[Tensor, "height width"] | None = None
) -> UInt8[np.ndarray, "height width 3"]:
    """The winning slot of every pixel in the slot's colour; where `bright` is 0 (background), dimmed."""
    colours = SLOT_COLOURS[winners.cpu().numpy() % len(SLOT_COLOURS)].astype(np.float32)
    if bright is not None:
        colours *= np.where(bright.cpu().numpy() > 0, 1.0, 0.3)[..., None]
    return colours.astype(np.uint8)


def contact_sheet(
    rows: Sequence[Sequence[UInt8[np.ndarray, "height width 3"]]], labels: Sequence[str]
) -> UInt8[np.ndarray, "sheet_height sheet_width 3"]:
    """Rows of pictures, enlarged by whole pixels, with a label over each column.

    Args:
        rows: the pictures, the same number in every row.
        labels: one per column.
    """
    columns = len(labels)
    width = columns * (_CELL + _GAP) + _GAP
    height = _LABEL + len(rows) * (_CELL + _GAP) + _GAP
    sheet = Image.new("RGB", (width, height), _GROUND)
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(size=11)
    for column, label in enumerate(labels):
        centre = _GAP + column * (_CELL + _GAP) + _CELL // 2
        draw.text((centre, _LABEL // 2 + 2), label, fill=(60, 60, 60), font=font, anchor="mm")
    for row, pictures in enumerate(rows):
        for column, picture in enumerate(pictures):
            cell = Image.fromarray(picture).resize((_CELL, _CELL), Image.Resampling.NEAREST)
            sheet.paste(cell, (_GAP + column * (_CELL + _GAP), _LABEL + _GAP // 2 + row * (_CELL + _GAP)))
    return np.asarray(sheet)
