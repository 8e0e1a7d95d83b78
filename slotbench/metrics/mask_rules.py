"""The rules by which masks are scored: every way in which published numbers of the same masks differ, by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from slotbench.errors import UserError

__all__ = ["Rules"]

Resolution = Literal["truth", "masks"]
Resize = Literal["bilinear", "nearest"]
Uncovered = Literal["background", "void"]
Empty = Literal["one", "skip"]
Absent = Literal["out", "zero"]


@dataclass(frozen=True)
class Rules:
    """How masks are scored; two scores compare only where all rules are the same.

    Attributes:
        first: score the first frames only, so many; None for all.
        skip: leave out so many frames at the start, such as one that a model was given.
        window: cut each clip into pieces of so many frames, each a sample of its own in scores per video; what is left
            at the end is not scored. None for whole clips.
        background: the true id that is no object; None where every id is an object.
        void: true ids whose pixels count nowhere.
        resolution: score at the size of the "truth" or of the "masks"; the truth is shrunk by nearest neighbours.
        resize: how masks come to the size of the truth: "bilinear", soft masks before the argmax, or "nearest", slots
            or ids after it.
        uncovered: what a pixel is that no slot has, all its shares below 0.001 or its id below 0: in a segment of its
            own, beside those of the slots, "background", or it counts nowhere, "void".
        empty: what a sample without an object is in FG-ARI: "one", as in published code, or left out, "skip". IoUs
            have no value there and leave it out.
        absent: what an object that is not in a sample is in IoUs: no part of it, "out", or 0 if a higher id is in it,
            "zero".
        match_iou: IoU from which a slot and an object are matched in tracking.
        min_pixels: what is no larger in a frame is not there, in tracking.
        background_iou: a slot with a larger IoU with the true background is no track in that frame; None for none.
    """

    first: int | None = None
    skip: int = 0
    window: int | None = None
    background: int | None = 0
    void: tuple[int, ...] = ()
    resolution: Resolution = "truth"
    resize: Resize = "bilinear"
    uncovered: Uncovered = "background"
    empty: Empty = "one"
    absent: Absent = "out"
    match_iou: float = 0.5
    min_pixels: int = 5
    background_iou: float | None = 0.2

    def __post_init__(self) -> None:
        least = {"first": 1, "skip": 0, "window": 1, "min_pixels": 0}
        for name, lowest in least.items():
            value = getattr(self, name)
            if value is not None and value < lowest:
                raise UserError(f"{option(name)} is {value}; expected {lowest} or more")
        for name in ("match_iou", "background_iou"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1:
                raise UserError(f"{option(name)} is {value}; expected a number above 0 and up to 1")
        if self.first is not None and self.first <= self.skip:
            raise UserError(f"--first {self.first} with --skip {self.skip} leaves no frame; give a larger --first")
        if self.background in self.void:
            raise UserError(f"--void {self.background} is the background; give --background none, or another --void")

    def as_record(self) -> dict[str, Any]:
        """Every rule by name, as plain values."""
        return {**vars(self), "void": list(self.void)}

    def in_words(self) -> list[str]:
        """Each rule as it is typed, the usual ones among them."""
        return [f"{option(name)} {'none' if value in (None, ()) else value}" for name, value in vars(self).items()]


def option(name: str) -> str:
    """What is typed for a rule."""
    return f"--{name.replace('_', '-')}"
