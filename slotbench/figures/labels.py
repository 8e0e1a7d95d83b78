"""Labels of clips: some frames, what became of the snitch, and the true and the predicted cell."""

from __future__ import annotations

from itertools import pairwise
from math import isqrt

import numpy as np
from jaxtyping import Float
from PIL import Image, ImageDraw
from torch import Tensor

from slotbench.figures.painting import Painted, paint_frame, resize
from slotbench.figures.sheets import Entry, Row, contact_sheet
from slotbench.interfaces import VideoBatch

__all__ = ["label_sheet"]

_SHOWN, _SIDE, _RIBBON = 6, 96, 10
_STATES: tuple[Entry, ...] = (
    ((70, 175, 90), "visible"),
    ((240, 190, 60), "occluded"),
    ((60, 130, 220), "contained"),
    ((230, 85, 60), "carried"),
)
_TRUE, _ANSWER = (0, 200, 0), (230, 60, 40)


def label_sheet(
    batch: VideoBatch,
    logits: Float[Tensor, "batch classes"],
    cells: bool,
) -> Painted:
    """A row per clip: frames in order, with the states of the snitch in a ribbon below, and the probability of a label.

    Cells of a grid are shown as seen from above, brighter where more likely, framed green where the snitch is
    and red where the model says, and these two also on the floor of the last frame. Classes are bars in their order.
    """
    probabilities = logits.detach().float().softmax(1).cpu().numpy()
    labels = batch.require("target")[:, -1].flatten().cpu().numpy()
    ends = np.linspace(0, batch.num_steps, min(_SHOWN, batch.num_steps) + 1).round().astype(int)
    states, corners = batch.objects.get("snitch_state"), batch.objects.get("floor_corners")
    rows = []
    for i in range(len(batch)):
        images = []
        answer = int(probabilities[i].argmax())
        for start, end in pairwise(ends):
            image = _square(paint_frame(batch.frames[i, end - 1]))
            if cells and corners is not None and end == batch.num_steps:
                image = _on_floor(image, corners[i].cpu().numpy(), int(labels[i]), answer)
            ribbons = [] if states is None else [_state_ribbon(states[i, start:end].cpu().numpy())]
            images.append(np.concatenate([image, *ribbons]))
        paint = _cells if cells else _bars
        beside = paint(probabilities[i], int(labels[i]), answer)
        below = np.full((len(images[0]) - _SIDE, _SIDE, 3), 255, np.uint8)
        rows.append(Row(f"is {labels[i]}\nsaid {answer}", [*images, np.concatenate([beside, below])]))
    entries = [*(_STATES if states is not None else ()), (_TRUE, "true label"), (_ANSWER, "predicted label")]
    columns = [f"step {end}" for end in ends[1:]] + ["cells" if cells else "classes"]
    return contact_sheet(rows, columns, rows[0].images[0].shape[:2], entries)


def _square(image: np.ndarray) -> np.ndarray:
    return resize(image, (_SIDE, _SIDE), smooth=False)


def _state_ribbon(states: np.ndarray) -> np.ndarray:
    """A strip with the colour of each step's state, in order."""
    colours = np.array([colour for colour, _ in _STATES], np.uint8)
    return np.broadcast_to(colours[states[np.arange(_SIDE) * len(states) // _SIDE]], (_RIBBON, _SIDE, 3))


def _on_floor(image: np.ndarray, corners: np.ndarray, label: int, answer: int) -> np.ndarray:
    """The outlines of the true and of the predicted cell; `corners` "rows+1 columns+1 2" are in units of the image."""
    drawn = Image.fromarray(image)
    pen = ImageDraw.Draw(drawn)
    side = len(corners) - 1
    for cell, colour, share in ((label, _TRUE, 1.0), (answer, _ANSWER, 0.65)):
        row, column = divmod(cell, side)
        around = np.array([corners[row + y, column + x] * _SIDE for x, y in ((0, 0), (1, 0), (1, 1), (0, 1), (0, 0))])
        middle = around[:4].mean(0)
        pen.line([(float(x), float(y)) for x, y in middle + share * (around - middle)], fill=colour, width=2)
    return np.array(drawn)


def _cells(probabilities: np.ndarray, label: int, answer: int) -> np.ndarray:
    side = isqrt(len(probabilities))
    light = np.sqrt(probabilities.reshape(side, side)[::-1])  # y upwards
    image = _square(np.repeat((light * 255).astype(np.uint8)[..., None], 3, axis=2))
    for cell, colour, inset in ((label, _TRUE, 0), (answer, _ANSWER, 3)):
        row, column = side - 1 - cell // side, cell % side
        top, left = row * _SIDE // side + inset, column * _SIDE // side + inset
        bottom, right = (row + 1) * _SIDE // side - inset, (column + 1) * _SIDE // side - inset
        framed = np.zeros(image.shape[:2], bool)
        framed[top:bottom, left:right] = True
        framed[top + 2 : bottom - 2, left + 2 : right - 2] = False
        image[framed] = colour
    return image


def _bars(probabilities: np.ndarray, label: int, answer: int) -> np.ndarray:
    image = np.zeros((_SIDE, _SIDE, 3), np.uint8)
    for column in range(_SIDE):
        which = column * len(probabilities) // _SIDE
        height = max(1, int(probabilities[which] * (_SIDE - 4)))
        image[_SIDE - 4 - height : _SIDE - 4, column] = _ANSWER if which == answer else (160, 160, 160)
        if which == label:
            image[-3:, column] = _TRUE
    return image
