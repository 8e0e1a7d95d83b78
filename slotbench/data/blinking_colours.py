"""The colours of Blinking Color Balls: palette, rules, and the pictures that follow from them.

Source: SlotSSM, section 7.2 and appendix B.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from einops import rearrange
from jaxtyping import Integer, UInt8

from slotbench.data.ball_kernel import Kernel, compiled_paint, use_numba

__all__ = [
    "BACKGROUND",
    "FIRST_COLOUR",
    "PALETTE",
    "RULES",
    "WHITE",
    "Rule",
    "dequantise",
    "paint",
    "patchify",
    "quantise",
    "rule_classes",
    "unpatchify",
]

Rule = Literal["earliest", "most_frequent"]

RULES = ("earliest", "most_frequent", "last")
"""The rules whose answers a sample logs: the two that are tasks, and a floor, for which the latest colour is enough."""

BACKGROUND, WHITE, FIRST_COLOUR = 0, 1, 2

PALETTE = np.array(
    [(0, 0, 0), (255, 255, 255), (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0), (255, 0, 255)], dtype=np.uint8
)
"""Red, green and blue of the seven classes: background (black), white, and red, green, blue, yellow, magenta."""

# a palette colour as a number: bit c says whether channel c is on. Cyan has a number but no class.
_BITS = np.array([1, 2, 4], dtype=np.uint8)
_NO_CLASS = 255
_CLASS_OF_NUMBER = np.full(8, _NO_CLASS, dtype=np.uint8)
_CLASS_OF_NUMBER[(PALETTE // 255) @ _BITS] = np.arange(len(PALETTE))


def dequantise(classes: UInt8[np.ndarray, "*shape"]) -> UInt8[np.ndarray, "*shape 3"]:
    """The colour image of a class image, channels last."""
    return PALETTE[classes]


def quantise(rgb: UInt8[np.ndarray, "*shape 3"]) -> UInt8[np.ndarray, "*shape"]:
    """The class image of a colour image, channels last; the exact inverse of `dequantise`.

    Raises:
        ValueError: if a pixel has none of the seven colours.
    """
    classes = _CLASS_OF_NUMBER[(rgb // 255) @ _BITS]
    wrong = (classes == _NO_CLASS) | ((rgb != 0) & (rgb != 255)).any(-1)
    if wrong.any():
        raise ValueError(
            f"{int(wrong.sum())} pixels have a colour outside the palette, the first of them {rgb[wrong][0].tolist()}; "
            f"expected one of {PALETTE.tolist()}: turn off smoothing and lossy compression"
        )
    return classes


def patchify(video: Integer[np.ndarray, "frames height width *channels"], patches_per_side: int) -> np.ndarray:
    """Cuts each frame into P x P cells and puts them in a row: step s is cell s % P^2, row-major, of frame s // P^2."""
    p = patches_per_side
    return rearrange(video, "frames (y h) (x w) ... -> (frames y x) h w ...", y=p, x=p)


def unpatchify(steps: Integer[np.ndarray, "time height width *channels"], patches_per_side: int) -> np.ndarray:
    """Puts the cells that `patchify` cut back into frames."""
    p = patches_per_side
    return rearrange(steps, "(frames y x) h w ... -> frames (y h) (x w) ...", y=p, x=p)


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
    kernel: Kernel = "auto",
) -> tuple[
    UInt8[np.ndarray, "batch time 3 cell_height cell_width"],
    UInt8[np.ndarray, "batch time cell_height cell_width"],
    UInt8[np.ndarray, "batch targets height width"],
]:
    """Colours instances.

    All frames but the first make the targets; all but the last make frames and masks cut into cells.

    Args:
        ids: instance in each pixel, 0 for background.
        shown: class of each instance in each frame that is shown, the background being instance 0.
        asked: class of each instance in each target.
        patches_per_side: P; each frame takes P^2 steps.
        kernel: "numba" compiles, "numpy" does not, "auto" takes numba where it is installed. All give the same bytes.

    Returns:
        frames, masks, targets.
    """
    num_clips, num_frames, side, _ = ids.shape
    num_context, cell = num_frames - 1, side // patches_per_side
    steps = num_context * patches_per_side**2
    frames = np.empty((num_clips, steps, 3, cell, cell), dtype=np.uint8)
    masks = np.empty((num_clips, steps, cell, cell), dtype=np.uint8)
    targets = np.empty((num_clips, num_context, side, side), dtype=np.uint8)
    run: Callable[..., None] = compiled_paint() if use_numba(kernel) else _paint
    run(ids, shown, asked, PALETTE, frames, masks, targets)
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
    """The readable form of the kernel, with its arguments."""
    num_clips, num_context, side, _ = targets.shape
    p = side // masks.shape[-1]
    row = np.arange(num_context)[:, None, None]
    for clip in range(num_clips):
        before, after = ids[clip, :-1], ids[clip, 1:]
        masks[clip] = patchify(before, p)
        frames[clip] = np.moveaxis(patchify(palette[shown[clip][row, before]], p), -1, 1)
        targets[clip] = asked[clip][row, after]
