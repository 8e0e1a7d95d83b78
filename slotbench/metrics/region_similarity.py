"""Region similarity J of DAVIS, for objects that nobody has named: IoUs of frames, averaged over a video, then matched.

Source: Pont-Tuset et al., "The 2017 DAVIS challenge on video object segmentation", 2017; Caelles et al., "The 2019
DAVIS challenge on VOS: unsupervised multi-object segmentation", 2019, and the challenge's tool, davis2017-evaluation.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Integer
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from slotbench.metric_info import MetricInfo
from slotbench.metrics.segmentation import SegmentationMetric

__all__ = ["RegionSimilarity"]


class RegionSimilarity(SegmentationMetric):
    """J of DAVIS: the IoU of each object with its own slot in every frame, mean over frames, then over all objects.

    The IoU is 1 in a frame where neither the object nor the slot has a pixel, so a slot must let go of an object that
    is hidden. One assignment serves a whole video, the one with the largest sum of these means (Hungarian), and the
    first and last frames count, as in the challenge's tool for unsupervised methods. An object that is left over where
    slots are fewer is compared with an empty slot. The mean is over the objects of all videos, not over videos. Objects
    are those that a video shows anywhere; the tool counts those up to the highest id of its first frame.

    Example:
        >>> metric = RegionSimilarity("video")
        >>> metric.update(torch.tensor([[[[0, 1]], [[0, 0]]]]), torch.tensor([[[[0, 1]], [[0, 1]]]]))
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    info = MetricInfo("jaccard", "J of DAVIS", True)

    def score(self, table: Integer[Tensor, "samples true predicted"]) -> tuple[Tensor, Tensor]:
        """Of samples of one frame."""
        return self.score_frames(table[:, None])

    def score_frames(
        self, tables: Integer[Tensor, "samples frames true predicted"]
    ) -> tuple[Float[Tensor, " samples"], Integer[Tensor, " samples"]]:
        """The mean over the objects of each sample, and how many it has."""
        found = np.array([_of_one(sample) for sample in tables.cpu().numpy()]).reshape(-1, 2)
        value, objects = torch.from_numpy(found).to(tables.device).unbind(1)
        return value, objects.long()


def _of_one(table: Integer[np.ndarray, "frames true predicted"]) -> tuple[float, int]:
    table = table[table.any((1, 2))]  # frames without a valid pixel are in no mean
    objects, slots = table[:, 1:].any((0, 2)), table.any((0, 1))
    count = int(objects.sum())
    if not count:
        return 0.0, 0
    empty = max(0, count - int(slots.sum()))
    table = np.pad(table[:, :, slots], ((0, 0), (0, 0), (0, empty)))
    shared = table[:, 1:][:, objects]
    either = shared.sum(2, keepdims=True) + table.sum(1, keepdims=True) - shared
    mean = np.where(either > 0, shared / np.maximum(either, 1), 1.0).mean(0)
    return float(mean[linear_sum_assignment(mean, maximize=True)].mean()), count
