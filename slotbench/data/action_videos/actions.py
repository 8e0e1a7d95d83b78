"""Actions in files, as vectors that come with the frame in which they are taken."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32

__all__ = ["action_vectors", "actions_of_frames"]


def action_vectors(values: np.ndarray, num_actions: int) -> Float32[np.ndarray, "entries num_actions"]:
    """One-hot vectors of actions that a file has as ids, or as one-hot vectors, where zeros stand for no action.

    Args:
        values: ids "entries", or vectors "entries num_actions".
        num_actions: actions to choose from.

    Raises:
        ValueError: they are neither, or an id is out of range.
    """
    if values.ndim == 1 and values.dtype.kind in "iu":
        low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
        if low < 0 or high >= num_actions:
            raise ValueError(f"has ids from {low} to {high}; expected 0 to {num_actions - 1}: set num_actions")
        return np.eye(num_actions, dtype=np.float32)[values]
    if values.ndim != 2 or values.dtype.kind not in "biuf":
        raise ValueError(f"holds {values.dtype} values of shape {values.shape}; expected whole numbers, one a frame")
    if values.shape[1] != num_actions:
        raise ValueError(f"has vectors of {values.shape[1]}; expected {num_actions}: set num_actions to their length")
    if not ((values == 0) | (values == 1)).all() or values.sum(1, dtype=np.float64).max(initial=0) > 1:
        raise ValueError("has vectors that are not one-hot; expected a 1 among zeros, or zeros alone for no action")
    return values.astype(np.float32)


def actions_of_frames(
    values: np.ndarray, num_frames: int, num_actions: int, offset: int
) -> Float32[np.ndarray, "frames num_actions"]:
    """The action that is taken in each frame, and leads to the next one; zeros if the last frame has none.

    Args:
        values: the entries of a file, as `action_vectors` takes them.
        num_frames: frames of the video.
        num_actions: actions to choose from.
        offset: the entry of frame 0: 0 if entry t is the action taken in frame t, 1 if it is the one that led to it.

    Raises:
        ValueError: there are more or fewer entries than such a video has, or they are no actions.
    """
    entries, fewest = values.shape[0] if values.ndim else 0, num_frames - 1 + offset
    # before there are vectors of them: a small file may hold any number of zeros
    if not fewest <= entries <= fewest + 1:
        raise ValueError(
            f"has {entries} entries for {num_frames} frames; expected {fewest} or {fewest + 1} with action_offset "
            f"{offset}: 0 where entry t is taken in frame t, 1 where it led to frame t"
        )
    taken = action_vectors(values, num_actions)[offset:]
    return np.concatenate([taken, np.zeros((num_frames - len(taken), num_actions), np.float32)])
