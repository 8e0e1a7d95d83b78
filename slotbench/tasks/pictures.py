"""Rows of small labelled pictures: what a run shows of itself."""

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

__all__ = [
    "SLOT_COLOURS",
    "contact_sheet",
    "draw_horizon",
    "paint_classes",
    "paint_frame",
    "paint_overlay",
    "paint_rollout",
    "paint_slots",
]

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

_CELL, _GAP, _LABEL, _MARGIN, _GROUND = 96, 6, 18, 66, (250, 250, 250)
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


def paint_frame(frame: Float[Tensor, "channels height width"]) -> UInt8[np.ndarray, "height width 3"]:
    """A frame in [0, 1] with one or three channels; of any other number, the mean of the channels."""
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

    What comes before the first predicted frame is context: it is shown in all three places, in a yellow border that
    turns grey as soon as the model is on its own. Small frames are enlarged by whole pixels so that the names fit.

    Args:
        true: the clip from its first frame of context to the last frame predicted, in [0, 1].
        predicted: its last frames as the model has them, in [0, 1].
    """
    context = len(true) - len(predicted)
    if context < 0:
        raise ValueError(f"{len(predicted)} predicted frames and {len(true)} true ones; expected at least as many true")
    factor = math.ceil(_PANEL / true.shape[-1])
    height, width = (factor * side for side in true.shape[-2:])
    blank = Image.new("RGB", (3 * width + 4, height + _BAND + 2))
    draw = ImageDraw.Draw(blank)
    draw.fontmode = "1"  # no half-tones: the strip is going to be enlarged
    lefts = [1 + column * (width + 1) for column in range(3)]
    for left, name in zip(lefts, ("truth", "prediction", "both"), strict=True):
        draw.text(
            (left + width // 2, _BAND // 2), name, fill=(230, 230, 230), font=ImageFont.load_default(11), anchor="mm"
        )
    strips = np.repeat(np.asarray(blank)[None], len(true), axis=0)
    strips[:context, _BAND:] = _LOOKING
    strips[context:, _BAND:] = _ALONE
    for time, frame in enumerate(true):
        answer = frame if time < context else predicted[time - context]
        for left, panel in zip(
            lefts, (paint_frame(frame), paint_frame(answer), paint_overlay(frame, answer)), strict=True
        ):
            enlarged = panel.repeat(factor, axis=0).repeat(factor, axis=1)
            strips[time, _BAND + 1 : _BAND + 1 + height, left : left + width] = enlarged
    return strips


def contact_sheet(
    rows: Sequence[Sequence[UInt8[np.ndarray, "height width 3"]]],
    labels: Sequence[str],
    row_labels: Sequence[str] | None = None,
) -> UInt8[np.ndarray, "sheet_height sheet_width 3"]:
    """Rows of pictures, enlarged by whole pixels, with a label over each column.

    Args:
        rows: the pictures, the same number in every row.
        labels: one per column.
        row_labels: one per row, to the left of it.
    """
    columns = len(labels)
    margin = 0 if row_labels is None else _MARGIN
    width = margin + columns * (_CELL + _GAP) + _GAP
    height = _LABEL + len(rows) * (_CELL + _GAP) + _GAP
    sheet = Image.new("RGB", (width, height), _GROUND)
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(size=11)
    for column, label in enumerate(labels):
        centre = margin + _GAP + column * (_CELL + _GAP) + _CELL // 2
        draw.text((centre, _LABEL // 2 + 2), label, fill=(60, 60, 60), font=font, anchor="mm")
    for row, pictures in enumerate(rows):
        if row_labels is not None:
            middle = _LABEL + _GAP // 2 + row * (_CELL + _GAP) + _CELL // 2
            draw.text((margin - 2, middle), row_labels[row], fill=(60, 60, 60), font=font, anchor="rm")
        for column, picture in enumerate(pictures):
            cell = Image.fromarray(picture).resize((_CELL, _CELL), Image.Resampling.NEAREST)
            sheet.paste(cell, (margin + _GAP + column * (_CELL + _GAP), _LABEL + _GAP // 2 + row * (_CELL + _GAP)))
    return np.asarray(sheet)


def draw_horizon(panels: Mapping[str, Mapping[str, Sequence[float]]]) -> UInt8[np.ndarray, "height width 3"]:
    """Curves over the predicted frames, a panel per score: the first curve of each bold, the others, floors, dashed.

    Args:
        panels: title of the panel -> name of the curve -> its values, one per predicted frame.
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
                axis.plot(steps, values, color=colour, linewidth=1.2, linestyle="--", label=name)
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
