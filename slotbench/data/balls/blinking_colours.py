"""The colours of Blinking Color Balls: palette, rules, and the images that follow from them.

Source: SlotSSM, section 7.2 and appendix B.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Integer, UInt8

from slotbench.data.compiled import compiled

__all__ = ["BACKGROUND", "FIRST_COLOUR", "PALETTE", "RULES", "WHITE", "Rule", "paint", "rule_classes"]

Rule = Literal["earliest", "most_frequent"]

RULES = ("earliest", "most_frequent", "last")
"""The rules whose answers a sample logs: the two that are tasks, and one for which the latest colour is enough."""

BACKGROUND, WHITE, FIRST_COLOUR = 0, 1, 2

PALETTE = np.array(
    [(0, 0, 0), (255, 255, 255), (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0), (255, 0, 255)], dtype=np.uint8
)
"""Red, green and blue of the seven classes: background (black), white, and red, green, blue, yellow, magenta."""


def rule_classes(
    context: Integer[np.ndarray, "frames 2"], num_balls: int
) -> dict[str, Integer[np.ndarray, "frames objects"]]:
    """The class of every ball after every context frame, under each of `RULES`.

    "earliest" is the first colour that the ball received. "most_frequent" is the one that it received most often, and
    of several the one that it received first. "last", which is no task of the paper's, is the latest. A ball that
    received none is white. Source: SlotSSM, appendix B.

    Args:
        context: the ball painted in each context frame, from 0, and the class of its colour.
        num_balls: balls in the clip.
    """
    earliest, most_frequent, last = [WHITE] * num_balls, [WHITE] * num_balls, [WHITE] * num_balls
    counts: list[dict[int, int]] = [{} for _ in range(num_balls)]
    rows: list[list[list[int]]] = []
    for ball, colour in context.tolist():
        count = counts[ball]
        count[colour] = count.get(colour, 0) + 1
        # a dict keeps the order of first insertion and max takes the first of equals: that is the rule for ties
        earliest[ball] = next(iter(count))
        most_frequent[ball] = max(count, key=count.__getitem__)
        last[ball] = colour
        rows.append([earliest.copy(), most_frequent.copy(), last.copy()])
    return dict(zip(RULES, np.array(rows).transpose(1, 0, 2), strict=True))


def paint(
    ids: UInt8[np.ndarray, "batch frames height width"],
    shown: UInt8[np.ndarray, "batch targets instances"],
    asked: UInt8[np.ndarray, "batch targets instances"],
    patches_per_side: int,
) -> tuple[
    UInt8[np.ndarray, "batch time 3 cell_height cell_width"],
    UInt8[np.ndarray, "batch time cell_height cell_width"],
    UInt8[np.ndarray, "batch targets height width"],
]:
    """Frames, masks and targets of clips from the instance in each pixel and the class of each instance.

    All frames but the first make the targets; all but the last make frames and masks cut into cells.

    Args:
        ids: instance in each pixel, 0 for background.
        shown: class of each instance in each frame that is shown, the background being instance 0.
        asked: class of each instance in each target.
        patches_per_side: P; each frame takes P^2 steps.

    Returns:
        frames, masks, targets.
    """
    num_clips, num_frames, side, _ = ids.shape
    num_context, cell = num_frames - 1, side // patches_per_side
    steps = num_context * patches_per_side**2
    frames = np.empty((num_clips, steps, 3, cell, cell), dtype=np.uint8)
    masks = np.empty((num_clips, steps, cell, cell), dtype=np.uint8)
    targets = np.empty((num_clips, num_context, side, side), dtype=np.uint8)
    compiled(_paint)(ids, shown, asked, PALETTE, frames, masks, targets)
    return frames, masks, targets


def _paint(
    ids: np.ndarray,
    shown: np.ndarray,
    asked: np.ndarray,
    palette: np.ndarray,
    frames: np.ndarray,
    masks: np.ndarray,
    targets: np.ndarray,
) -> None:
    """Fills `frames` and `masks`, cut into cells, and `targets` from instance ids and each instance's class."""
    num_clips, num_context, side = targets.shape[0], targets.shape[1], targets.shape[2]
    cell = masks.shape[2]
    per_side = side // cell
    num_instances = shown.shape[2]
    colours = np.empty((3, num_instances), dtype=np.uint8)
    for clip in range(num_clips):
        for frame in range(num_context):
            classes = asked[clip, frame]
            for instance in range(num_instances):
                for channel in range(3):
                    colours[channel, instance] = palette[shown[clip, frame, instance], channel]
            for row in range(side):
                # lines counted from 0, one value each: far quicker than to index four axes for each pixel
                coming, target = ids[clip, frame + 1, row], targets[clip, frame, row]
                for column in range(side):
                    target[column] = classes[coming[column]]
            for place in range(per_side * per_side):
                step = frame * per_side * per_side + place
                top = place // per_side * cell
                left = place % per_side * cell
                for row in range(cell):
                    seen = ids[clip, frame, top + row, left : left + cell]
                    mask = masks[clip, step, row]
                    for column in range(cell):
                        mask[column] = seen[column]
                    for channel in range(3):
                        shades, line = colours[channel], frames[clip, step, channel, row]
                        for column in range(cell):
                            line[column] = shades[seen[column]]
