"""Sizes: of a step of the data, of tokens, of slots. They flow forward once, from the data to the decoder.

`PartError` is what a part that breaks its interface ends with.
"""

from __future__ import annotations

from dataclasses import dataclass

from slotbench.errors import UserError

__all__ = ["DataSpec", "PartError", "SlotSpec", "TokenSpec", "VideoSpec"]


class PartError(UserError, ValueError):
    """A part breaks its interface, or cannot do what a task asks; a command ends with the sentence alone."""


@dataclass(frozen=True)
class VideoSpec:
    """One time step of a video, of the input or of the target.

    Args:
        channels: values per pixel: colour channels, or classes of a target. The codes of a tokenizer are classes of the
            cells of a grid, and the label of a clip is the class of a frame of one pixel.
        height: rows of pixels.
        width: columns of pixels.
        num_actions: size of the action vector that comes with a step; 0 where there is none.
        vector_actions: whether an action is a vector of any numbers, such as a pose; otherwise it is one-hot.
        num_views: cameras per step. With 1, tensors have no axis of views.
        patches_per_side: 1 where a step is a whole frame. With P > 1 step s is cell s % P^2, in row-major order, of
            frame s // P^2, and `height` and `width` are those of one cell.
        palette: red, green and blue in 0..255 of each class, where the channels are classes.
        codes: the codes that a task has for the step beside its pixels, as a tokenizer's `code_spec` has them.
    """

    channels: int
    height: int
    width: int
    num_actions: int = 0
    num_views: int = 1
    patches_per_side: int = 1
    palette: tuple[tuple[int, int, int], ...] | None = None
    codes: VideoSpec | None = None
    vector_actions: bool = False

    @property
    def steps_per_frame(self) -> int:
        """Time steps that one frame takes: `patches_per_side` squared."""
        return self.patches_per_side**2


@dataclass(frozen=True)
class DataSpec:
    """What a data set feeds in, what it asks for, and the size of the features that come with its frames, if any."""

    input: VideoSpec
    target: VideoSpec
    features: VideoSpec | None = None

    @classmethod
    def of_frames(cls, channels: int, height: int, width: int | None = None) -> DataSpec:
        """Frames that are their own target; square without a `width`."""
        frame = VideoSpec(channels, height, height if width is None else width)
        return cls(frame, frame)


@dataclass(frozen=True)
class TokenSpec:
    """Output of an encoder per step: `num_tokens` vectors of width `dim`, on a `grid` (rows, columns) if any.

    Where data shows other numbers of views in evaluation, an encoder that `takes_views` gives proportionally more or
    fewer, one view after the other, for cores that read tokens as a set.
    """

    dim: int
    num_tokens: int
    grid: tuple[int, int] | None = None


@dataclass(frozen=True)
class SlotSpec:
    """Output of a core per time step; `grid` is set when the "slots" are the cells of a feature map (ConvS5)."""

    num_slots: int
    dim: int
    grid: tuple[int, int] | None = None
