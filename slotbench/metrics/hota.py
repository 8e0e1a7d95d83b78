"""HOTA of slots that follow objects: how well they are detected and how well they are kept, of equal weight.

Source: Luiten et al., "HOTA: a higher order metric for evaluating multi-object tracking", 2021; the matching over a
whole clip and the sums over clips are those of the authors' evaluation code, TrackEval.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy.optimize import linear_sum_assignment

__all__ = ["THRESHOLDS", "Hota", "hota_counts"]

THRESHOLDS = tuple(round(0.05 * step, 2) for step in range(1, 20))
"""IoUs from which on a pair is a match; scores are means over all of them."""
_SLACK = np.finfo(float).eps


@dataclass(frozen=True)
class Hota:
    """Counts of one clip or, added up, of several.

    Attributes:
        objects: true objects that are there, counted in each frame.
        slots: slots that are there, counted in each frame.
        matches: pairs of both at each threshold, counted in each frame.
        kept: sum over these pairs of the frames in which the two are a pair, as a share of those in which either is
            there.
    """

    objects: int = 0
    slots: int = 0
    matches: tuple[int, ...] = (0,) * len(THRESHOLDS)
    kept: tuple[float, ...] = (0.0,) * len(THRESHOLDS)

    def __add__(self, other: Hota) -> Hota:
        return Hota(
            self.objects + other.objects,
            self.slots + other.slots,
            tuple(one + another for one, another in zip(self.matches, other.matches, strict=True)),
            tuple(one + another for one, another in zip(self.kept, other.kept, strict=True)),
        )

    @property
    def detection(self) -> float | None:
        """DetA: pairs as a share of all that is an object, a slot or a pair; None without objects and slots."""
        return float(self._detection().mean()) if self.objects + self.slots else None

    @property
    def association(self) -> float | None:
        """AssA: mean of `kept` over the pairs, 0 at a threshold without any; None without objects and slots."""
        return float(self._association().mean()) if self.objects + self.slots else None

    @property
    def score(self) -> float | None:
        """HOTA: mean over the thresholds of the geometric mean of both; None without objects and slots."""
        return float(np.sqrt(self._detection() * self._association()).mean()) if self.objects + self.slots else None

    def _detection(self) -> Float[np.ndarray, " thresholds"]:
        matches = np.array(self.matches)
        return matches / (self.objects + self.slots - matches)

    def _association(self) -> Float[np.ndarray, " thresholds"]:
        return np.array(self.kept) / np.maximum(self.matches, 1)


def hota_counts(
    objects: Bool[np.ndarray, "time objects"],
    slots: Bool[np.ndarray, "time slots"],
    iou: Float[np.ndarray, "time objects slots"],
) -> Hota:
    """Matches the objects and slots of one clip, and counts.

    Each frame is matched once for all thresholds, by the largest sum (Hungarian) of IoUs times how much the two overlap
    in the whole clip: the sum over frames of their IoU, as a share of all IoUs that either has there, divided by the
    frames of both less that sum.

    Example:
        >>> there, iou = np.ones((4, 1), bool), np.ones((4, 1, 2)) * [[[1, 0]], [[1, 0]], [[0, 1]], [[0, 1]]]
        >>> counts = hota_counts(there, iou[:, 0] > 0, iou)  # slot 0 has the object for two frames, then slot 1
        >>> counts.detection, counts.association
        (1.0, 0.5)
    """
    iou = np.where(objects[:, :, None] & slots[:, None, :], iou, 0.0)
    either = iou.sum(1, keepdims=True) + iou.sum(2, keepdims=True) - iou
    shared = np.where(either > _SLACK, iou / np.maximum(either, _SLACK), 0.0).sum(0)
    frames = objects.sum(0)[:, None] + slots.sum(0)[None]
    worth = iou * (shared / np.maximum(frames - shared, 1))
    pairs = []
    for time in np.flatnonzero(worth.any((1, 2))):
        rows, columns = np.flatnonzero(worth[time].any(1)), np.flatnonzero(worth[time].any(0))
        row, column = linear_sum_assignment(worth[time][np.ix_(rows, columns)], maximize=True)
        pairs.append(np.stack([np.full(len(row), time), rows[row], columns[column]]))
    time, one, slot = np.concatenate(pairs, 1) if pairs else np.zeros((3, 0), int)
    matches, kept = [], []
    for threshold in THRESHOLDS:
        count = np.zeros(frames.shape, int)
        enough = iou[time, one, slot] >= threshold - _SLACK
        np.add.at(count, (one[enough], slot[enough]), 1)
        matches.append(int(count.sum()))
        kept.append(float((count * (count / np.maximum(frames - count, 1))).sum()))
    return Hota(int(objects.sum()), int(slots.sum()), tuple(matches), tuple(kept))
