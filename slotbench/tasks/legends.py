"""Words below a picture that say what is to be seen in it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw, ImageFont

__all__ = ["OVERLAY", "Entry", "legend"]

Colour = tuple[int, int, int]
Entry = tuple[Colour | None, str]
"""A text, and the colour of the patch before it, if it has one."""

OVERLAY: tuple[Entry, ...] = (((0, 255, 0), "truth"), ((255, 0, 0), "prediction"), ((255, 255, 0), "both"))
"""The colours of `paint_overlay`."""

_LINE, _PATCH, _SPACE, _MARGIN = 16, 8, 10, 5


def legend(
    entries: Sequence[Entry], width: int, ground: Colour, ink: Colour, sharp: bool = False
) -> UInt8[np.ndarray, "height width 3"]:
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
        left, middle = _MARGIN, row * _LINE + _LINE // 2 + 1
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
    left = _MARGIN
    for colour, text in entries:
        words, first = text.split(" "), True
        while words:
            room = width - _MARGIN - left - (_PATCH + 3 if colour is not None and first else 0)
            count = len(words)
            while count > 1 and font.getlength(" ".join(words[:count])) > room:
                count -= 1
            part = " ".join(words[:count])
            whole = first and count == len(words)
            if lines[-1] and (font.getlength(part) > room or not whole):
                lines.append([])
                left = _MARGIN
                continue
            lines[-1].append((colour if first else None, part))
            left += round(font.getlength(part)) + _SPACE + (_PATCH + 3 if colour is not None and first else 0)
            words, first = words[count:], False
            if words:
                lines.append([])
                left = _MARGIN
    return lines
