"""Frames of masks paired with those of the truth by the numbers that files give."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np
from jaxtyping import Integer

from slotbench.errors import UserError

__all__ = ["FrameNumbers", "matching_frames"]


class FrameNumbers(NamedTuple):
    """The frames of masks, or of a truth, and their numbers in the video where the file gives them.

    Attributes:
        length: how many.
        numbers: of each, rising; None if the file does not say them.
        from_zero: whether they are places in the video, from 0 on; names of files may count from 0 or 1.
    """

    length: int
    numbers: Integer[np.ndarray, " frames"] | None = None
    from_zero: bool = False

    def in_words(self) -> str:
        """Which frames they are."""
        if self.numbers is None:
            return f"{self.length} frames"
        if len(self.numbers) > 1 and self.is_run:
            return f"frames {self.numbers[0]} to {self.numbers[-1]}"
        few = [str(number) for number in self.numbers[:3]]
        return f"frames {', '.join(few)}{f', ... {self.numbers[-1]}' if len(self.numbers) > 3 else ''}"

    @property
    def is_run(self) -> bool:
        """Whether no number is left out between the first and the last."""
        return self.numbers is not None and bool((np.diff(self.numbers) == 1).all())


def matching_frames(
    masks: FrameNumbers, truth: FrameNumbers, in_order: bool, paths: tuple[Path, Path], allow_missing: bool = False
) -> tuple[Integer[np.ndarray, " frames"], Integer[np.ndarray, " frames"]] | None:
    """The places of the frames that belong together, among the masks and in the truth; None to take them as they come.

    Frames of one number belong together. As many frames whose numbers begin at 0 on one side and at 1 on the other are
    the same frames, and names that begin at 1 count from there.

    Args:
        masks: its frames.
        truth: its frames.
        in_order: whether numbers are not looked at.
        paths: of both, for messages.
        allow_missing: leave out frames of the masks that the truth does not have.

    Raises:
        UserError: masks are of frames that the truth does not have, or the numbers do not say which.
    """
    alike = masks.length == truth.length
    if in_order or (masks.numbers is None and truth.numbers is None):
        return None
    if masks.numbers is None:
        if alike or truth.is_run:
            return None
        _refuse(masks, truth, paths)
    if truth.numbers is None:
        if not masks.from_zero:
            if alike or (masks.is_run and masks.numbers[0] < 2):
                return None
            _refuse(masks, truth, paths)
        there = np.arange(truth.length)
    else:
        there = truth.numbers
    wanted = masks.numbers
    if masks.from_zero != truth.from_zero:
        wanted, there = (_from_zero(one, side) for one, side in ((wanted, masks), (there, truth)))
    elif alike and abs(int(wanted[0]) - int(there[0])) == 1 and (wanted - there == wanted[0] - there[0]).all():
        return None
    places = np.minimum(np.searchsorted(there, wanted), len(there) - 1)
    known = there[places] == wanted
    if not (known.any() if allow_missing else known.all()):
        _refuse(masks, truth, paths)
    return np.flatnonzero(known), places[known]


def _from_zero(numbers: np.ndarray, side: FrameNumbers) -> np.ndarray:
    return numbers - 1 if side.numbers is not None and not side.from_zero and numbers[0] == 1 else numbers


def _refuse(masks: FrameNumbers, truth: FrameNumbers, paths: tuple[Path, Path]) -> NoReturn:
    raise UserError(
        f"{paths[0]} has {masks.in_words()}, and {paths[1]} has {truth.in_words()}: expected the truth of every frame "
        "of the masks, by its number; give --allow-missing for the frames that both have, or --frames-in-order if they "
        "belong together as they come"
    )
