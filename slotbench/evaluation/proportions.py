"""Masks and truth of different proportions, which show different parts of the frames, cut to a common part."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jaxtyping import Shaped

from slotbench.errors import UserError
from slotbench.interfaces import View
from slotbench.metrics.mask_rules import Rules

__all__ = ["fit", "part_of", "same_proportion"]

Size = tuple[int, int]


def fit(
    masks: Shaped[np.ndarray, "time ..."],
    truth: Shaped[np.ndarray, "time height width"],
    rules: Rules,
    view: View | None,
    paths: tuple[Path, Path],
) -> tuple[np.ndarray, np.ndarray, View]:
    """Masks and truth, cut as the rule `fit` says to what both show, and the view that is left of the truth's frames.

    Args:
        masks: ids "time height width" or soft masks "time slots height width".
        truth: ids.
        rules: in force.
        view: the part of the frames that the masks show, if their file has it.
        paths: of masks and truth, for messages.

    Raises:
        UserError: the sides are of different proportions, and the rule does not say what that means.
    """
    shown, true = _size(masks), _size(truth)
    if rules.fit == "file":
        if view is None:
            raise UserError(
                f"{paths[0]} does not say what its masks show of the frames (an array view beside them); give --fit "
                "crop or --fit stretch, or leave --fit out where masks and truth have the same proportion"
            )
        box = _box_in(true, view)
        if box is None:
            raise UserError(
                f"{paths[0]} shows {_pixels(view.box[2:])} of frames of {_pixels(view.frame)} pixels, and {paths[1]} "
                f"has {_pixels(true)}, the proportion of neither: is it the truth of another video?"
            )
        return masks, _cut(truth, box), View(true, box)
    if rules.fit == "stretch" or same_proportion(shown, true):
        return masks, truth, View.whole(*true)
    if rules.fit == "refuse":
        raise UserError(_about_proportions(shown, true, paths))
    wide = [width / height for height, width in (shown, true)]
    # on two sides of the square: neither is a part of the other
    if (wide[0] - 1) * (wide[1] - 1) < 0:
        raise UserError(f"{_about_proportions(shown, true, paths)}; one lies and one stands, so --fit crop cannot tell")
    if max(wide[1], 1 / wide[1]) > max(wide[0], 1 / wide[0]):
        box = _middle(true, shown)
        return masks, _cut(truth, box), View(true, box)
    return _cut(masks, _middle(shown, true)), truth, View.whole(*true)


def same_proportion(one: Size, other: Size) -> bool:
    """Whether one of two sizes is the other enlarged, sides rounded to whole pixels.

    Example:
        >>> same_proportion((120, 214), (480, 854)), same_proportion((32, 32), (32, 64))
        (True, False)
    """
    small, large = sorted((one, other))
    if 1 in small:
        return small[0] * large[1] == small[1] * large[0]
    return (
        abs(small[1] - small[0] * large[1] / large[0]) <= 0.5 or abs(small[0] - small[1] * large[0] / large[1]) <= 0.5
    )


def part_of(
    frame: Shaped[np.ndarray, "height width channels"], view: View, path: Path
) -> Shaped[np.ndarray, "rows columns channels"]:
    """What a view shows of a frame of the video, which may be larger or smaller than the view's.

    Raises:
        UserError: the frame has another proportion.
    """
    size = (frame.shape[0], frame.shape[1])
    box = _box_in(size, view)
    if box is None:
        shapes = f"frames of {_pixels(size)} pixels, and the truth {_pixels(view.frame)}"
        raise UserError(f"{path} has {shapes}: another proportion")
    top, left, height, width = box
    return frame[top : top + height, left : left + width]


def _size(values: np.ndarray) -> Size:
    return values.shape[-2], values.shape[-1]


def _pixels(size: Size) -> str:
    return f"{size[0]} x {size[1]}"


def _about_proportions(shown: Size, true: Size, paths: tuple[Path, Path]) -> str:
    turned = ": are rows and columns exchanged?" if same_proportion(shown[::-1], true) else ""
    return (
        f"{paths[0]} has masks of {_pixels(shown)} pixels (height x width), and {paths[1]} {_pixels(true)}, another "
        f"proportion{turned or ':'} give --fit crop if one shows the middle of what the other shows, or --fit stretch "
        "if one was squeezed or stretched"
    )


def _cut(values: np.ndarray, box: tuple[int, int, int, int]) -> np.ndarray:
    top, left, height, width = box
    return values[..., top : top + height, left : left + width]


def _middle(size: Size, proportion: Size) -> tuple[int, int, int, int]:
    """The largest part in the middle that has a proportion."""
    height = min(size[0], max(1, round(size[1] * proportion[0] / proportion[1])))
    width = min(size[1], max(1, round(size[0] * proportion[1] / proportion[0])))
    return (size[0] - height) // 2, (size[1] - width) // 2, height, width


def _box_in(size: Size, view: View) -> tuple[int, int, int, int] | None:
    """Where a view is in frames of a size, which may be larger, or cut already; None for another proportion."""
    if same_proportion(size, view.frame):
        down, across = size[0] / view.frame[0], size[1] / view.frame[1]
        top, left, height, width = view.box
        rows, columns = max(1, round(height * down)), max(1, round(width * across))
        return min(round(top * down), size[0] - rows), min(round(left * across), size[1] - columns), rows, columns
    return (0, 0, *size) if same_proportion(size, view.box[2:]) else None
