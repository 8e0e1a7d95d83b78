"""Scores of segmentations, as pure functions of how many points true and predicted segments share and as torchmetrics.

The metrics (`ARI`, `FGARI`, `MatchedIoU`, `MeanBestOverlap`) say in their `scope` which pixels are scored together; the
numbers of one scope say nothing about another's. Their state is sums and counts: it does not grow with the number of
batches, and it is added up over processes.

The functions take the tables of `slotbench.metrics.contingency`, whose row 0 is the true background, any number at
once, and compute in float64. Only the Hungarian algorithm loops over samples, over their small tables.

Sources: Hubert & Arabie, "Comparing partitions", 1985 (the adjusted Rand index); Greff et al., "Multi-Object
Representation Learning with Iterative Variational Inference", 2019 (over foreground alone); Kuhn, "The Hungarian
method", 1955; Arbelaez et al., "Multiscale combinatorial grouping", 2014 (best overlap).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from slotbench.metric_info import MetricInfo
from slotbench.metrics.contingency import (
    Labels,
    SoftMasks,
    Tables,
    TrueLabels,
    Valid,
    contingency,
    frame_tables,
    integer_ids,
)
from slotbench.metrics.distinct import DistinctMetric
from slotbench.metrics.registered import RegisteredMetric

__all__ = [
    "ARI",
    "FGARI",
    "MatchedIoU",
    "MatchedIoUOfPairs",
    "MatchedIoUWithBackground",
    "MeanBestOverlap",
    "Scope",
    "SegmentationMetric",
    "adjusted_rand_index",
    "contingency",
    "frames_of_samples",
    "matched_iou",
    "matched_iou_of_pairs",
    "mean_best_overlap",
    "pairwise_iou",
]

Scope = Literal["frame", "video", "step", "scene"]
"""What one sample is: a camera's frame; a camera's whole clip; one time step seen by all cameras; all of a clip."""

Table = Integer[Tensor, "*samples true predicted"]
_Values = tuple[Float[Tensor, "*samples"], Bool[Tensor, "*samples"] | Integer[Tensor, "*samples"]]


def adjusted_rand_index(table: Table) -> _Values:
    """Agreement of two partitions beyond chance: 1 if identical, 0 on average for random ones, -0.5 at worst.

    With C(x) = x (x - 1) / 2, R = sum C(n_ij), A = sum C(a_i), B = sum C(b_j) and E = A B / C(n), it is
    (R - E) / ((A + B) / 2 - E). It is computed from counts of pairs, which are exact in int64: multiplied by C(n) the
    numerator is tp tn - fp fn, and the only cases of 0 / 0 are trivial partitions that are identical, which get 1.

    For FG-ARI, drop the row of the background: `adjusted_rand_index(table[..., 1:, :])`.

    Returns:
        The value of each sample, and whether it has a point at all (without one the value is 1, as in scikit-learn).

    Example:
        >>> table = contingency(torch.tensor([0, 1, 0, 0, 1, 2, 2, 2]), torch.tensor([0, 0, 1, 1, 1, 2, 2, 2]))
        >>> adjusted_rand_index(table)[0], adjusted_rand_index(table[1:])[0]
        (tensor(0.4286, dtype=torch.float64), tensor(0.7059, dtype=torch.float64))
    """
    table = integer_ids(table, "counts of points").long()
    total = table.sum((-2, -1))

    def pairs(counts: Tensor) -> Tensor:
        return counts * (counts - 1) // 2

    together = pairs(table).sum((-2, -1))
    only_true = pairs(table.sum(-1)).sum(-1) - together
    only_predicted = pairs(table.sum(-2)).sum(-1) - together
    apart = pairs(total) - together - only_true - only_predicted
    identical = (only_true == 0) & (only_predicted == 0)
    tp, fn, fp, tn = (count.double() for count in (together, only_true, only_predicted, apart))
    below = (tp + fn) * (fn + tn) + (tp + fp) * (fp + tn)
    return torch.where(identical, 1.0, 2 * (tp * tn - fn * fp) / below.clamp(min=1)), total > 0


def pairwise_iou(table: Table) -> Float[Tensor, "*samples true predicted"]:
    """Intersection over union of each true with each predicted segment; 0 where both are empty.

    A predicted segment is all its points, those on background included.
    """
    union = table.sum(-1, keepdim=True) + table.sum(-2, keepdim=True) - table
    return table.double() / union.clamp(min=1).double()


def matched_iou(table: Table, ignore_background: bool = True) -> _Values:
    """Mean IoU of the true segments, each with a predicted segment of its own, by the Hungarian algorithm.

    The assignment maximises the sum of IoUs. The mean is over the true segments that are present; one that is left
    without a partner, as some are where predicted segments are fewer, counts 0.

    Returns:
        The value of each sample, and whether it has a true segment to score (without one the value is 0).

    Example:
        >>> table = contingency(torch.tensor([0, 1, 0, 0, 1, 2, 2, 2]), torch.tensor([0, 0, 1, 1, 1, 2, 2, 2]))
        >>> matched_iou(table)[0], matched_iou(table, ignore_background=False)[0]
        (tensor(0.7500, dtype=torch.float64), tensor(0.6111, dtype=torch.float64))
    """
    iou, present = _segments(table, ignore_background)
    # Ids that are absent have an IoU of 0 with everything, so that their rows change no optimum.
    matrices = iou.reshape(iou.shape[:-2].numel(), *iou.shape[-2:]).cpu().numpy()
    sums = [matrix[linear_sum_assignment(matrix, maximize=True)].sum() for matrix in matrices]
    total = torch.from_numpy(np.array(sums, dtype=np.float64)).to(iou.device).view(iou.shape[:-2])
    return total / present.clamp(min=1), present > 0


def matched_iou_of_pairs(table: Table) -> _Values:
    """Sum of the IoUs of matched segments, background among them, over the pairs that have a segment on either side.

    So a surplus slot costs as much as a true segment without a slot. Segments that share no pixel are paired, as far as
    both sides go, which makes these pairs as many as the side with more segments has.

    Source: Karazija et al., "ClevrTex", 2021, whose code calls it mIoU, and `matched_iou` with the background mIoU_gt.

    Returns:
        The value of each sample, and whether it has a segment (without one the value is 0).

    Example:
        >>> table = contingency(torch.tensor([0, 0, 0, 1, 2, 3]), torch.tensor([0, 0, 0, 1, 1, 1]))
        >>> matched_iou_of_pairs(table)[0], matched_iou(table, ignore_background=False)[0]
        (tensor(0.3333, dtype=torch.float64), tensor(0.6667, dtype=torch.float64))
    """
    mean, defined = matched_iou(table, ignore_background=False)
    true, predicted = ((table.sum(axis) > 0).sum(-1) for axis in (-1, -2))
    return mean * true / torch.maximum(true, predicted).clamp(min=1), defined


def mean_best_overlap(table: Table) -> _Values:
    """Mean over the true objects of the IoU with the predicted segment that fits best; one may serve several objects.

    Returns:
        The value of each sample, and whether it has an object (without one the value is 0).
    """
    iou, present = _segments(table, ignore_background=True)
    return iou.amax(-1).sum(-1) / present.clamp(min=1), present > 0


def _segments(table: Table, ignore_background: bool) -> tuple[Tensor, Tensor]:
    """The IoUs of the true segments that count, and how many of them are present."""
    first = 1 if ignore_background else 0
    return pairwise_iou(table)[..., first:, :], (table[..., first:, :].sum(-1) > 0).sum(-1)


def frames_of_samples(tables: Tables, scope: Scope) -> Integer[Tensor, "samples frames true predicted"]:
    """The tables of the frames that each sample is made of, those of several cameras being frames too."""
    if scope == "frame":
        return tables.flatten(0, 2)[:, None]
    if scope == "video":
        return tables.transpose(1, 2).flatten(0, 1)
    return tables.flatten(0, 1) if scope == "step" else tables.flatten(1, 2)


class SegmentationMetric(RegisteredMetric, DistinctMetric):
    """Base of metrics of masks: a score per sample, and its mean over samples.

    A sample without a valid pixel is left out, as is one whose score is undefined.

    Attributes:
        headline: label of the decoder's masks per video in the final report; empty for no headline.
    """

    headline: ClassVar[str] = ""
    higher_is_better = True
    is_differentiable = False
    full_state_update = False
    total: Tensor
    samples: Tensor
    total_several: Tensor
    several: Tensor
    single: Tensor
    empty: Tensor
    skipped: Tensor

    def __init__(self, scope: Scope = "video") -> None:
        super().__init__()
        if scope not in get_args(Scope):
            raise ValueError(f"no scope named {scope!r}; expected one of {', '.join(get_args(Scope))}")
        self.scope: Scope = scope
        for name in ("total", "total_several"):
            self.add_state(name, torch.tensor(0.0, dtype=torch.float64), dist_reduce_fx="sum")
        for name in ("samples", "several", "single", "empty", "skipped"):
            self.add_state(name, torch.tensor(0), dist_reduce_fx="sum")

    @abstractmethod
    def score(self, table: Integer[Tensor, "samples true predicted"]) -> _Values:
        """The value of each sample, and whether it has one, or of how many objects it is the mean, which weighs it."""

    def score_frames(self, tables: Integer[Tensor, "samples frames true predicted"]) -> _Values:
        """The same from the tables of a sample's frames, for a metric that tells them apart."""
        return self.score(tables.sum(1))

    def update(self, predicted: Labels | SoftMasks, true: TrueLabels, valid: Valid | None = None) -> None:
        """Adds clips.

        Args:
            predicted: ids of slots, any integers, or soft masks (floating point): the argmax over slots is scored,
                after a bilinear resize to the size of `true`. Pixels that no mask covers are a segment of their own
                (`masks_to_labels`).
            true: ids of objects, any integers, 0 = background.
            valid: false at pixels that count nowhere.
        """
        self._add(frame_tables(predicted, true, valid))

    def update_tables(self, tables: Tables) -> None:
        """Adds clips of which `frame_tables` has been taken, so that several metrics need only one count."""
        self.update_nothing()
        self._add(tables)

    def update_nothing(self) -> None:
        """Adds no clip, but there is a value to compute: of the clips of the other processes."""
        # what torchmetrics does around `update`: the value that it keeps is out of date
        self._computed = None
        self._update_count += 1

    def _add(self, tables: Tables) -> None:
        frames = frames_of_samples(tables, self.scope)
        value, weight = self.score_frames(frames)
        points = frames.sum((1, -1))
        seen, objects = points.sum(-1) > 0, (points[:, 1:] > 0).sum(-1)
        weight = weight * seen
        scored, several = weight > 0, weight * (objects > 1)
        self.total += (value * weight)[scored].sum()
        self.samples += weight.sum()
        self.total_several += (value * several)[several > 0].sum()
        self.several += several.sum()
        self.single += (scored & (objects == 1)).sum()
        self.empty += (seen & (objects == 0)).sum()
        self.skipped += (~scored).sum()

    def compute(self) -> Float[Tensor, ""]:
        """Mean over the samples that have a value; nan before any."""
        return self.total / self.samples

    def mean_of_several(self) -> float:
        """Mean over the samples with at least two visible objects, of all processes; nan before any."""
        with self.sync_context(self.dist_sync_fn, should_sync=self._to_sync):
            return (self.total_several / self.several).item()

    def counts(self) -> dict[str, int]:
        """How many samples were of which kind: "samples" and, of them, "single_object" and "several_objects".

        "skipped" are not in the mean of `compute`. "without_objects" are all background, in the mean or not.
        """
        kinds = ("samples", "several_objects", "single_object", "without_objects", "skipped")
        with self.sync_context(self.dist_sync_fn, should_sync=self._to_sync):
            values = (self.samples, self.several, self.single, self.empty, self.skipped)
            return {kind: int(value) for kind, value in zip(kinds, values, strict=True)}


class ARI(SegmentationMetric):
    """Adjusted Rand index over all pixels, the background being a segment like any other.

    Example:
        >>> metric = ARI("frame")
        >>> metric.update(torch.tensor([[[[0, 1, 0, 0, 1, 2, 2, 2]]]]), torch.tensor([[[[0, 0, 1, 1, 1, 2, 2, 2]]]]))
        >>> metric.compute()
        tensor(0.4286, dtype=torch.float64)
    """

    info = MetricInfo("ari", "ARI", True)
    headline = "with the background: ARI per video"
    rank = 2

    def score(self, table: Integer[Tensor, "samples true predicted"]) -> _Values:
        """See `adjusted_rand_index`."""
        return adjusted_rand_index(table)


class FGARI(SegmentationMetric):
    """Adjusted Rand index over the pixels whose true id is not background.

    What slots do on background is free: report an IoU beside it. A sample without objects counts 1, as in published
    code, and one with a single object 1 or 0: `mean_of_several` is the mean without both.

    Example:
        >>> metric = FGARI("frame")
        >>> metric.update(torch.tensor([[[[0, 1, 0, 0, 1, 2, 2, 2]]]]), torch.tensor([[[[0, 0, 1, 1, 1, 2, 2, 2]]]]))
        >>> metric.compute()
        tensor(0.7059, dtype=torch.float64)
    """

    info = MetricInfo("fg_ari", "FG-ARI", True)
    headline = "objects told apart: FG-ARI per video"
    rank = 0

    def score(self, table: Integer[Tensor, "samples true predicted"]) -> _Values:
        """See `adjusted_rand_index`; a sample without foreground has the value 1."""
        value, _ = adjusted_rand_index(table[:, 1:])
        return value, torch.ones_like(value, dtype=torch.bool)


class MatchedIoU(SegmentationMetric):
    """Mean IoU of the true segments, each matched with a slot of its own by the Hungarian algorithm (mIoU).

    Example:
        >>> metric = MatchedIoU("frame")
        >>> metric.update(torch.tensor([[[[0, 1, 0, 0, 1, 2, 2, 2]]]]), torch.tensor([[[[0, 0, 1, 1, 1, 2, 2, 2]]]]))
        >>> metric.compute()
        tensor(0.7500, dtype=torch.float64)
    """

    info = MetricInfo("miou", "mIoU", True)
    headline = "masks that fit: mIoU per video"
    rank = 1

    def __init__(self, scope: Scope = "video", ignore_background: bool = True) -> None:
        super().__init__(scope)
        self.ignore_background = ignore_background

    def score(self, table: Integer[Tensor, "samples true predicted"]) -> _Values:
        """See `matched_iou`."""
        return matched_iou(table, self.ignore_background)


class MatchedIoUWithBackground(MatchedIoU):
    """`MatchedIoU` with the background matched and scored like an object."""

    info = MetricInfo("miou_with_background", "mIoU with background", True)
    headline = ""
    rank = 9

    def __init__(self, scope: Scope = "video") -> None:
        super().__init__(scope, ignore_background=False)


class MatchedIoUOfPairs(SegmentationMetric):
    """Mean IoU over all pairs with a segment on either side, the background among them: surplus slots count 0.

    Example:
        >>> metric = MatchedIoUOfPairs("frame")
        >>> metric.update(torch.tensor([[[[0, 1, 0, 0, 1, 2, 2, 2]]]]), torch.tensor([[[[0, 0, 1, 1, 1, 2, 2, 2]]]]))
        >>> round(float(metric.compute()), 4)
        0.6111
    """

    info = MetricInfo("miou_of_pairs", "mIoU of all pairs", True)
    logged = False

    def score(self, table: Integer[Tensor, "samples true predicted"]) -> _Values:
        """See `matched_iou_of_pairs`."""
        return matched_iou_of_pairs(table)


class MeanBestOverlap(SegmentationMetric):
    """Mean over the true objects of the IoU with the slot that fits best (mBO); a slot may serve several objects.

    Example:
        >>> metric = MeanBestOverlap("frame")
        >>> metric.update(torch.tensor([[[[0, 0, 0, 0, 0, 0]]]]), torch.tensor([[[[1, 1, 2, 2, 3, 3]]]]))
        >>> metric.compute()
        tensor(0.3333, dtype=torch.float64)
    """

    info = MetricInfo("mbo", "mBO", True)
    headline = "the best slot of each object: mBO per video"

    def score(self, table: Integer[Tensor, "samples true predicted"]) -> _Values:
        """See `mean_best_overlap`."""
        return mean_best_overlap(table)
