"""What a run shows of itself: rows of small labelled images, videos side by side, curves, and legends below them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float, Integer, UInt8

# not pyplot: it would pick a window system and keep every figure alive
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from slotbench.interfaces import unit_frames

__all__ = [
    "OVERLAY",
    "SLOT_COLOURS",
    "Entry",
    "contact_sheet",
    "draw_horizon",
    "film_strip",
    "legend",
    "paint_classes",
    "paint_frame",
    "paint_overlay",
    "paint_rollout",
    "paint_slots",
]

Colour = tuple[int, int, int]
Entry = tuple[Colour | None, str]
"""A text, and the colour of the patch before it, if it has one."""

OVERLAY: tuple[Entry, ...] = (((0, 255, 0), "truth"), ((255, 0, 0), "prediction"), ((255, 255, 0), "both"))
"""The colours of `paint_overlay`."""

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
        (45, 75, 0),
        (135, 0, 60),
        (120, 45, 0),
        (15, 0, 225),
        (195, 195, 255),
        (0, 105, 90),
        (75, 60, 105),
        (0, 255, 180),
        (135, 135, 0),
        (240, 0, 105),
        (105, 195, 255),
        (0, 75, 120),
    ],
    dtype=np.uint8,
)
"""A colour for each slot, reused in turn past the 24th. Each of the second twelve was chosen far from all before it."""

_CELL, _GAP, _LABEL, _MARGIN, _BAR, _GROUND, _INK = 96, 6, 18, 66, 12, (250, 250, 250), (60, 60, 60)
_LINE, _PATCH, _SPACE, _SIDE = 16, 8, 10, 5
_BLACK, _WHITE = (0, 0, 0), (230, 230, 230)
_PANEL, _BAND, _LOOKING, _ALONE = 64, 14, (240, 190, 60), (70, 70, 70)


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


def paint_frame(
    frame: Float[Tensor, "channels height width"] | UInt8[Tensor, "channels height width"],
) -> UInt8[np.ndarray, "height width 3"]:
    """A frame in [0, 1], or of bytes, with one or three channels; of any other number, the mean of the channels."""
    frame = unit_frames(frame)
    shown = frame if len(frame) == 3 else frame.mean(0, keepdim=True).expand(3, -1, -1)
    return (shown.float().clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()


def paint_overlay(
    true: Float[Tensor, "channels height width"], predicted: Float[Tensor, "channels height width"]
) -> UInt8[np.ndarray, "height width 3"]:
    """Two frames in [0, 1] over one another: the true one green, the predicted one red, yellow where both are."""
    red, green = (frame.mean(0) for frame in (predicted, true))
    return paint_frame(torch.stack([red, green, torch.zeros_like(red)]))


def paint_rollout(
    true: Float[Tensor, "time channels height width"], predicted: Float[Tensor, "horizon channels height width"]
) -> UInt8[np.ndarray, "time strip_height strip_width 3"]:
    """A video of a roll-out: truth, prediction and both over one another, side by side with their names above.

    What comes before the first predicted frame is context: it is shown in all three places, in a yellow border, which
    is grey for predicted frames. Below stand the number of the frame, whether it is context or predicted, and the
    colours of the third place. Small frames are enlarged by whole pixels so that the names fit.

    Args:
        true: the clip from its first frame of context to the last frame predicted, in [0, 1].
        predicted: its last frames as the model has them, in [0, 1].
    """
    context = len(true) - len(predicted)
    if context < 0:
        raise ValueError(f"{len(predicted)} predicted frames and {len(true)} true ones; expected at least as many true")
    factor = math.ceil(_PANEL / true.shape[-1])
    shown = torch.cat([true[:context], predicted])
    panels = {
        "truth": [paint_frame(frame) for frame in true],
        "prediction": [paint_frame(frame) for frame in shown],
        "both": [paint_overlay(frame, other) for frame, other in zip(true, shown, strict=True)],
    }
    enlarged = {name: np.stack(video).repeat(factor, 1).repeat(factor, 2) for name, video in panels.items()}
    strips = film_strip(enlarged, [_LOOKING] * context + [_ALONE] * len(predicted))
    said = [f"frame {t + 1}: context" for t in range(context)]
    said += [f"frame {context + t + 1}: predicted (+{t + 1})" for t in range(len(predicted))]
    keys = [_key(text, _LOOKING if t < context else _WHITE, strips.shape[2]) for t, text in enumerate(said)]
    return np.concatenate([strips, np.stack(keys)], axis=1)


def _key(text: str, ink: tuple[int, int, int], width: int) -> UInt8[np.ndarray, "height width 3"]:
    """What stands below a frame of a roll-out."""
    lines = [legend([(None, text)], width, _BLACK, ink, sharp=True), legend(OVERLAY, width, _BLACK, _WHITE, sharp=True)]
    return np.concatenate(lines)


def film_strip(
    panels: Mapping[str, UInt8[np.ndarray, "time height width 3"]],
    borders: Sequence[tuple[int, int, int]] | None = None,
) -> UInt8[np.ndarray, "time strip_height strip_width 3"]:
    """Videos side by side with their names above, every frame in a border of one pixel.

    Args:
        panels: name -> video, all of one size; the names need some 64 pixels each.
        borders: the colour of the border at each time; grey if absent.
    """
    time, height, width, _ = next(iter(panels.values())).shape
    blank = Image.new("RGB", (len(panels) * (width + 1) + 1, height + _BAND + 2))
    draw = ImageDraw.Draw(blank)
    draw.fontmode = "1"  # no half-tones: the strip is going to be enlarged
    lefts = [1 + column * (width + 1) for column in range(len(panels))]
    for left, name in zip(lefts, panels, strict=True):
        draw.text(
            (left + width // 2, _BAND // 2), name, fill=(230, 230, 230), font=ImageFont.load_default(11), anchor="mm"
        )
    strips = np.repeat(np.asarray(blank)[None], time, axis=0)
    strips[:, _BAND:] = np.array(borders or [_ALONE] * time, dtype=np.uint8)[:, None, None]
    for left, video in zip(lefts, panels.values(), strict=True):
        strips[:, _BAND + 1 : _BAND + 1 + height, left : left + width] = video
    return strips


def contact_sheet(
    rows: Sequence[Sequence[UInt8[np.ndarray, "height width 3"]]],
    labels: Sequence[str],
    row_labels: Sequence[str] | None = None,
    row_colours: Sequence[tuple[int, int, int] | None] | None = None,
    cell: tuple[int, int] = (_CELL, _CELL),
    entries: Sequence[Entry] = (),
) -> UInt8[np.ndarray, "sheet_height sheet_width 3"]:
    """Rows of images, brought to one size without smoothing, with a label over each column.

    Args:
        rows: the images, the same number in every row.
        labels: one per column.
        row_labels: one per row, to the left of it, of one or several lines.
        row_colours: a bar between label and row, where a row has a colour.
        cell: height and width of an image on the sheet.
        entries: a legend below the rows.
    """
    font = ImageFont.load_default(size=11)
    high, wide = cell
    margin = 0
    if row_labels is not None:
        margin = max(
            [_MARGIN, *(8 + round(font.getlength(line)) for label in row_labels for line in label.split("\n"))]
        )
    bar = 0 if row_colours is None else _BAR
    left, top = margin + bar + _GAP, _LABEL + _GAP // 2
    size = (left + len(labels) * (wide + _GAP), _LABEL + len(rows) * (high + _GAP) + _GAP)
    sheet = Image.new("RGB", size, _GROUND)
    draw = ImageDraw.Draw(sheet)
    for column, label in enumerate(labels):
        centre = left + column * (wide + _GAP) + wide // 2
        draw.text((centre, _LABEL // 2 + 2), label, fill=_INK, font=font, anchor="mm")
    for row, images in enumerate(rows):
        upper = top + row * (high + _GAP)
        if row_labels is not None:
            draw.text(
                (margin - 2, upper + high // 2), row_labels[row], fill=_INK, font=font, anchor="rm", align="right"
            )
        if row_colours is not None and row_colours[row] is not None:
            draw.rectangle((margin + 3, upper, margin + bar, upper + high - 1), fill=row_colours[row])
        for column, image in enumerate(images):
            shown = Image.fromarray(image).resize((wide, high), Image.Resampling.NEAREST)
            sheet.paste(shown, (left + column * (wide + _GAP), upper))
    if entries:
        return np.concatenate([np.asarray(sheet), legend(entries, size[0], _GROUND, _INK)])
    return np.asarray(sheet)


def draw_horizon(panels: Mapping[str, Mapping[str, Sequence[float]]]) -> UInt8[np.ndarray, "height width 3"]:
    """Curves over the predicted frames, a panel per score: the first of each bold, baselines dashed, oracles dotted.

    Args:
        panels: title of the panel -> name of the curve -> its values, one per predicted frame. An oracle's name begins
            with "oracle:".
    """
    figure = Figure(figsize=(4.2 * len(panels), 3.2), dpi=120, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    for axis, (title, curves) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for index, (name, values) in enumerate(curves.items()):
            steps = range(1, len(values) + 1)
            if index == 0:
                axis.plot(steps, values, color="#2563eb", linewidth=2.2, label=name, zorder=3)
            else:
                colour = SLOT_COLOURS[(index - 1) % len(SLOT_COLOURS)] / 255
                style = ":" if name.startswith("oracle:") else "--"
                axis.plot(steps, values, color=colour, linewidth=1.2, linestyle=style, label=name)
        axis.set_title(title, loc="left", fontsize=10)
        axis.set_xlabel("frames after the context", fontsize=9)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.2)
        if all(value >= 0 for values in curves.values() for value in values):
            axis.set_ylim(bottom=0)
    figure.axes[0].legend(fontsize=7.5, frameon=False)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


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
