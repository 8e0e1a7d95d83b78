"""Segments of single frames made tracks, without learning: named after those of the frame before that they overlap."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Integer
from scipy.optimize import linear_sum_assignment
from torch import Tensor

__all__ = ["linked_labels"]


def linked_labels(
    labels: Integer[Tensor, "batch time height width"],
) -> Integer[Tensor, "batch time height width"]:
    """Gives the segments of each frame the names of those of the frame before that they overlap most.

    Pairs of two neighbouring frames are those with the largest sum of IoUs (Hungarian). A segment that overlaps none of
    the others is new, and nothing is remembered of one that is gone: an object that was hidden comes back as another.

    Returns:
        Ids from 0, new ones as they come.

    Example:
        >>> linked_labels(torch.tensor([[[[0, 0, 5]], [[7, 7, 2]], [[7, 7, 7]], [[1, 1, 3]]]])).flatten(2)
        tensor([[[0, 0, 1],
                 [0, 0, 1],
                 [0, 0, 0],
                 [0, 0, 2]]])
    """
    linked = [_linked(clip) for clip in labels.cpu().numpy()]
    return torch.from_numpy(np.stack(linked)).to(labels.device)


def _linked(clip: Integer[np.ndarray, "time height width"]) -> Integer[np.ndarray, "time height width"]:
    names = np.empty(clip.shape, np.int64)
    known, before = 0, None
    for time, frame in enumerate(clip):
        ids, now = np.unique(frame, return_inverse=True)
        now = now.reshape(frame.shape)
        found = np.full(len(ids), -1)
        if before is not None:
            earlier, place = np.unique(before, return_inverse=True)
            shared = np.zeros((len(earlier), len(ids)), np.int64)
            np.add.at(shared, (place.reshape(frame.shape), now), 1)
            iou = shared / (shared.sum(1)[:, None] + shared.sum(0)[None] - shared)
            rows, columns = linear_sum_assignment(iou, maximize=True)
            touching = shared[rows, columns] > 0
            found[columns[touching]] = earlier[rows[touching]]
        new = found < 0
        found[new] = known + np.arange(new.sum())
        known += int(new.sum())
        names[time] = before = found[now]
    return names
