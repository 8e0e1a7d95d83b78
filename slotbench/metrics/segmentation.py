"""Scores of segmentations as pure functions of how many points each true and predicted segment share.

They take the tables of `slotbench.metrics.contingency`, whose row 0 is the true background, any number at once, and
compute in float64. Only the Hungarian algorithm loops over samples, over their small tables.

Sources: Hubert & Arabie, "Comparing partitions", 1985 (the adjusted Rand index); Greff et al., "Multi-Object
Representation Learning with Iterative Variational Inference", 2019 (over foreground alone); Kuhn, "The Hungarian
method", 1955; Arbelaez et al., "Multiscale combinatorial grouping", 2014 (best overlap).
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from slotbench.metrics.contingency import contingency

__all__ = ["adjusted_rand_index", "contingency", "matched_iou", "mean_best_overlap", "pairwise_iou"]

Table = Integer[Tensor, "*samples true predicted"]
Scores = tuple[Float[Tensor, "*samples"], Bool[Tensor, "*samples"]]


def adjusted_rand_index(table: Table) -> Scores:
    """Agreement of two partitions beyond chance: 1 if identical, 0 on average for random ones, -0.5 at worst.

    With C(x) = x (x - 1) / 2, R = sum C(n_ij), A = sum C(a_i), B = sum C(b_j) and E = A B / C(n), it is
    (R - E) / ((A + B) / 2 - E). It is computed from counts of pairs, which are exact in int64: multiplied by C(n) the
    numerator is tp tn - fp fn, and the only cases of 0 / 0 are trivial partitions that are identical, which get 1.

    For FG-ARI, drop the row of the background: `adjusted_rand_index(table[..., 1:, :])`.

    Args:
        table: points by true and by predicted id.

    Returns:
        The value of each sample, and whether it has a point at all (without one the value is 1, as in scikit-learn).

    Example:
        >>> table = contingency(torch.tensor([0, 1, 0, 0, 1, 2, 2, 2]), torch.tensor([0, 0, 1, 1, 1, 2, 2, 2]))
        >>> adjusted_rand_index(table)[0], adjusted_rand_index(table[1:])[0]
        (tensor(0.4286, dtype=torch.float64), tensor(0.7059, dtype=torch.float64))
    """
    table = table.long()
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

    Args:
        table: points by true and by predicted id, the row of the background included.
    """
    union = table.sum(-1, keepdim=True) + table.sum(-2, keepdim=True) - table
    return table.double() / union.clamp(min=1).double()


def matched_iou(table: Table, ignore_background: bool = True) -> Scores:
    """Mean IoU of the true segments, each with a predicted segment of its own, by the Hungarian algorithm.

    The assignment maximises the sum of IoUs. The mean is over the true segments that are present; one that is left
    without a partner, as some are where predicted segments are fewer, counts 0.

    Args:
        table: points by true and by predicted id, the row of the background included.
        ignore_background: score true ids 1 and above only; else the background is a segment like any other.

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


def mean_best_overlap(table: Table) -> Scores:
    """Mean over the true objects of the IoU with the predicted segment that fits best; one may serve several objects.

    Args:
        table: points by true and by predicted id, the row of the background included.

    Returns:
        The value of each sample, and whether it has an object (without one the value is 0).
    """
    iou, present = _segments(table, ignore_background=True)
    return iou.amax(-1).sum(-1) / present.clamp(min=1), present > 0


def _segments(table: Table, ignore_background: bool) -> tuple[Tensor, Tensor]:
    """The IoUs of the true segments that count, and how many of them are present."""
    first = 1 if ignore_background else 0
    return pairwise_iou(table)[..., first:, :], (table[..., first:, :].sum(-1) > 0).sum(-1)
