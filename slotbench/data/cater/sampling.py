"""The frames of a video that a clip shows: one of each segment, consecutive ones, or random ones."""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Int

__all__ = ["Sampling", "frame_numbers"]

Sampling = Literal["segments", "window", "random"]
"""One frame of each of as many segments of equal length; consecutive frames; or frames drawn from the whole video."""


def frame_numbers(
    sampling: Sampling, rng: np.random.Generator, length: int, count: int, training: bool, skipped: int = 0
) -> Int[np.ndarray, " count"]:
    """The numbers of the frames that a clip shows, in order.

    In training a frame of each segment, and where a window begins, are drawn; else it is the last frame of each
    segment, and the window that ends with the video. Random frames are drawn in either, without repetition.

    Args:
        sampling: how.
        rng: the clip's own generator, so that what is drawn for it is the same each time.
        length: frames of the video, at least `count`.
        count: frames of the clip.
        training: whether the clip is one to learn from.
        skipped: frames at the start that are in no segment.
    """
    if sampling == "random":
        return np.sort(rng.choice(length, count, replace=False))
    if sampling == "window":
        room = length - count
        return (int(rng.integers(0, room + 1)) if training else room) + np.arange(count)
    edges = skipped + np.arange(count + 1) * (length - skipped) // count
    return rng.integers(edges[:-1], edges[1:]) if training else edges[1:] - 1
