"""Labelled sheets of small images, videos side by side, and the legends below them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw, ImageFont

from slotbench.figures.painting import Colour, Painted, resize

__all__ = ["DIM", "Entry", "Row", "contact_sheet", "film_strip", "legend", "stacked_strips"]

Entry = tuple[Colour | None, str]
"""A text of a legend, and the colour of the patch before it, if it has one."""

DIM: Colour = (70, 70, 70)
"""The border of a video's frames."""

_CELL, _GAP, _LABEL, _MARGIN, _BAR, _GROUND, _INK = 96, 6, 18, 66, 12, (250, 250, 250), (60, 60, 60)
_LINE, _PATCH, _SPACE, _SIDE = 16, 8, 10, 5
_BAND, _LIGHT, _DARK = 14, (230, 230, 230), (0, 0, 0)


class Row(NamedTuple):
    """A row of a contact sheet: a name to the left, an image per column, and the colour of a bar between them."""

    name: str
    images: Sequence[Painted]
    colour: Colour | None = None


def contact_sheet(
    rows: Sequence[Row],
    labels: Sequence[str],
    cell: tuple[int, int] = (_CELL, _CELL),
    entries: Sequence[Entry] = (),
) -> Painted:
    """Rows of images, brought to one size without smoothing, with a label over each column."""
    font = ImageFont.load_default(size=11)
    high, wide = cell
    names = [line for row in rows for line in row.name.split("\n") if row.name]
    margin = max([_MARGIN, *(8 + round(font.getlength(line)) for line in names)]) if names else 0
    bar = _BAR if any(row.colour for row in rows) else 0
    left, top = margin + bar + _GAP, _LABEL + _GAP // 2
    size = (left + len(labels) * (wide + _GAP), _LABEL + len(rows) * (high + _GAP) + _GAP)
    sheet = Image.new("RGB", size, _GROUND)
    draw = ImageDraw.Draw(sheet)
    for column, label in enumerate(labels):
        centre = left + column * (wide + _GAP) + wide // 2
        draw.text((centre, _LABEL // 2 + 2), label, fill=_INK, font=font, anchor="mm")
    for number, row in enumerate(rows):
        upper = top + number * (high + _GAP)
        draw.text((margin - 2, upper + high // 2), row.name, fill=_INK, font=font, anchor="rm", align="right")
        if row.colour is not None:
            draw.rectangle((margin + 3, upper, margin + bar, upper + high - 1), fill=row.colour)
        for column, image in enumerate(row.images):
            sheet.paste(Image.fromarray(resize(image, cell, smooth=False)), (left + column * (wide + _GAP), upper))
    if entries:
        return np.concatenate([np.asarray(sheet), legend(entries, size[0], _GROUND, _INK)])
    return np.asarray(sheet)


def film_strip(
    panels: Mapping[str, UInt8[np.ndarray, "time height width 3"]],
    borders: Sequence[Colour] | None = None,
) -> UInt8[np.ndarray, "time strip_height strip_width 3"]:
    """Videos side by side with their names above, every frame in a border of one pixel."""
    time, height, width, _ = next(iter(panels.values())).shape
    blank = Image.new("RGB", (len(panels) * (width + 1) + 1, height + _BAND + 2))
    draw = ImageDraw.Draw(blank)
    draw.fontmode = "1"  # no half-tones: the strip is going to be enlarged
    font = ImageFont.load_default(11)
    lefts = [1 + column * (width + 1) for column in range(len(panels))]
    for left, name in zip(lefts, panels, strict=True):
        draw.text((left + width // 2, _BAND // 2), name, fill=_LIGHT, font=font, anchor="mm")
    strips = np.repeat(np.asarray(blank)[None], time, axis=0)
    strips[:, _BAND:] = np.array(borders or [DIM] * time, dtype=np.uint8)[:, None, None]
    for left, video in zip(lefts, panels.values(), strict=True):
        strips[:, _BAND + 1 : _BAND + 1 + height, left : left + width] = video
    return strips


def stacked_strips(
    strips: Mapping[str, UInt8[np.ndarray, "time height width 3"]],
) -> UInt8[np.ndarray, "steps sheet_height sheet_width 3"]:
    """Videos below one another, each with its title above, all for as long as the longest: their frames are held."""
    steps, width = max(map(len, strips.values())), max(strip.shape[2] for strip in strips.values())
    rows = []
    for title, strip in strips.items():
        held = strip[np.arange(steps) * len(strip) // steps]
        above = legend([(None, title)], width, _DARK, _LIGHT, sharp=True)
        rows += [np.broadcast_to(above, (steps, *above.shape))]
        rows += [np.pad(held, ((0, 0), (0, _GAP), (0, width - strip.shape[2]), (0, 0)))]
    return np.concatenate(rows, axis=1)


def legend(entries: Sequence[Entry], width: int, ground: Colour, ink: Colour, sharp: bool = False) -> Painted:
    """A strip with the entries one after the other, over as many lines as they need.

    Args:
        entries: the texts with their colours.
        width: of the strip in pixels.
        ground: behind the words.
        ink: of the words.
        sharp: without half-tones, for a strip that is going to be enlarged.
    """
    font = ImageFont.load_default(size=11)
    lines = _broken(entries, width, font)
    strip = Image.new("RGB", (width, len(lines) * _LINE + 2), ground)
    draw = ImageDraw.Draw(strip)
    if sharp:
        draw.fontmode = "1"
    for row, line in enumerate(lines):
        left, middle = _SIDE, row * _LINE + _LINE // 2 + 1
        for colour, text in line:
            if colour is not None:
                box = (left, middle - _PATCH // 2, left + _PATCH - 1, middle + _PATCH // 2 - 1)
                draw.rectangle(box, fill=colour, outline=ink)
                left += _PATCH + 3
            draw.text((left, middle), text, fill=ink, font=font, anchor="lm")
            left += round(font.getlength(text)) + _SPACE
    return np.asarray(strip)


def _broken(
    entries: Sequence[Entry], width: int, font: ImageFont.FreeTypeFont | ImageFont.ImageFont
) -> list[list[Entry]]:
    """The entries in lines that are no wider than the strip; one that is too long for a line is broken at a space."""
    lines: list[list[Entry]] = [[]]
    left = _SIDE
    for colour, text in entries:
        words, first = text.split(" "), True
        while words:
            room = width - _SIDE - left - (_PATCH + 3 if colour is not None and first else 0)
            count = len(words)
            while count > 1 and font.getlength(" ".join(words[:count])) > room:
                count -= 1
            part = " ".join(words[:count])
            whole = first and count == len(words)
            if lines[-1] and (font.getlength(part) > room or not whole):
                lines.append([])
                left = _SIDE
                continue
            lines[-1].append((colour if first else None, part))
            left += round(font.getlength(part)) + _SPACE + (_PATCH + 3 if colour is not None and first else 0)
            words, first = words[count:], False
            if words:
                lines.append([])
                left = _SIDE
    return lines
