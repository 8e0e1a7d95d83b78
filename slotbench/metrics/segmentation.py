"""Scores of segmentations as pure functions: how many points each true and predicted id share, and what follows.

Everything is computed from contingency tables, with counts in int64 and values in float64, and without a Python loop
over pixels, frames or samples (except the Hungarian algorithm's, over small tables). Row 0 of a table is the true
background, always; column 0 is a predicted id like any other.

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
from torch.nn import functional as F

__all__ = [
    "adjusted_rand_index",
    "compact_ids",
    "contingency",
    "masks_to_labels",
    "matched_iou",
    "mean_best_overlap",
    "pairwise_iou",
]

Table = Integer[Tensor, "*samples true predicted"]
Scores = tuple[Float[Tensor, "*samples"], Bool[Tensor, "*samples"]]

# Ids below this are used as they are; a table of 64 x 64 counts takes 32 kB.
_SMALL_IDS = 64
# Points that are worked on at once: what stays in a processor's cache, and what keeps an accelerator busy.
_POINTS_ON_CPU, _POINTS_ELSEWHERE = 2**18, 2**26
_UNSIGNED = {torch.uint16, torch.uint32, torch.uint64}  # torch can store these and compute little with them


def _points_at_once(device: torch.device) -> int:
    return _POINTS_ON_CPU if device.type == "cpu" else _POINTS_ELSEWHERE


def compact_ids(labels: Integer[Tensor, "*samples points"]) -> Integer[Tensor, "*samples points"]:
    """Ids renumbered within each sample without gaps: 0 stays 0, the others become 1, 2, ... in rising order.

    Maps whose ids are all from 0 to 63 come back as they are, gaps included: their tables are small enough.

    Example:
        >>> compact_ids(torch.tensor([[0, 900, 7, 900], [5000, -1, -1, 7]]))
        tensor([[0, 2, 1, 2],
                [3, 1, 1, 2]])
    """
    if labels.numel() == 0:
        return labels
    if labels.dtype in _UNSIGNED:
        labels = labels.long()
    low, high = (int(bound) for bound in labels.aminmax())
    if low >= 0 and high < _SMALL_IDS:
        return labels
    flat = labels.reshape(-1, labels.shape[-1])
    if (high - low + 1) * len(flat) <= max(labels.numel(), 2**20):
        ids = torch.arange(low, high + 1, device=labels.device)
        places = flat.long() - low
    else:
        ids, places = torch.unique(flat, return_inverse=True)
    present = torch.zeros(len(flat), len(ids), dtype=torch.bool, device=labels.device).scatter_(1, places, True)
    ranks = (present & (ids != 0)).cumsum(1) * (ids != 0)
    return ranks.gather(1, places).view(labels.shape)


def contingency(
    predicted: Integer[Tensor, "*samples points"],
    true: Integer[Tensor, "*samples points"],
    num_predicted: int | None = None,
    num_true: int | None = None,
    valid: Bool[Tensor, "*samples points"] | None = None,
) -> Integer[Tensor, "*samples true predicted"]:
    """How many points of each sample have a true id i and a predicted id j, in int64.

    Where the number of ids is not given, ids may be any integers: they go through `compact_ids`.

    Args:
        predicted: ids of slots.
        true: ids of objects, 0 = background.
        num_predicted: columns of the table; ids are then 0 to num_predicted - 1.
        num_true: rows of the table; ids are then 0 to num_true - 1.
        valid: false at points that count nowhere, whatever their ids.

    Raises:
        ValueError: an id of a valid point is negative or beyond the number of ids given.

    Example:
        >>> contingency(torch.tensor([0, 1, 1, 0]), torch.tensor([1, 1, 1, 0]))
        tensor([[1, 0],
                [1, 2]])
    """
    if valid is not None:
        predicted, true = predicted.masked_fill(~valid, 0), true.masked_fill(~valid, 0)
    predicted, columns = _ids_and_number(predicted, num_predicted, "predicted")
    true, rows = _ids_and_number(true, num_true, "true")
    samples, points = true.shape[:-1], true.shape[-1]
    shape = samples.numel(), points
    flat_predicted, flat_true = predicted.reshape(shape), true.reshape(shape)
    flat_valid = None if valid is None else valid.reshape(shape)
    cells = rows * columns
    step = max(1, min(_points_at_once(true.device) // max(points, 1), 2**24 // max(cells, 1)))
    dtype = torch.int32 if step * cells < 2**31 - 1 else torch.int64
    counts = []
    for start in range(0, len(flat_true), step):
        part = slice(start, start + step)
        # one code per point: (sample, true, predicted)
        codes = torch.add(flat_predicted[part].to(dtype), flat_true[part].to(dtype), alpha=columns)
        codes += cells * torch.arange(len(codes), dtype=dtype, device=codes.device)[:, None]
        size = len(codes) * cells
        if flat_valid is not None:
            codes.masked_fill_(~flat_valid[part], size)  # one bin more, which nobody reads
        counts.append(torch.bincount(codes.flatten(), minlength=size)[:size])
    table = torch.cat(counts) if counts else torch.zeros(0, dtype=torch.long, device=true.device)
    return table.view(*samples, rows, columns)


def _ids_and_number(labels: Tensor, given: int | None, side: str) -> tuple[Tensor, int]:
    if given is None:
        labels = compact_ids(labels)
        return labels, int(labels.max()) + 1 if labels.numel() else 1
    if labels.dtype in _UNSIGNED:
        labels = labels.long()
    low, high = (int(bound) for bound in labels.aminmax()) if labels.numel() else (0, 0)
    if low < 0 or high >= given:
        raise ValueError(
            f"{side} ids go from {low} to {high}, and num_{side}={given} allows 0 to {given - 1}: give a larger "
            f"num_{side}, or leave it out to have any ids renumbered"
        )
    return labels, given


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


def masks_to_labels(
    masks: Float[Tensor, "*batch slots rows cols"], size: tuple[int, int] | None = None
) -> Integer[Tensor, "*batch height width"]:
    """The slot with the largest share of each pixel, the lowest one on a tie.

    Masks of another size are first resized bilinearly (labels never are). It works through some frames at a time, so
    that it takes little memory beyond the labels', which are of 8 bits for up to 256 slots and of 16 bits beyond.

    Args:
        masks: shares, or logits that are monotone in them.
        size: height and width of the labels in pixels; that of the masks if absent.

    Example:
        >>> masks_to_labels(torch.tensor([[[0.6, 0.5]], [[0.4, 0.5]]]))
        tensor([[0, 0]], dtype=torch.uint8)
    """
    slots, *mask_size = masks.shape[-3:]
    height, width = size or mask_size
    flat = masks.reshape(-1, slots, *mask_size)
    dtype = torch.uint8 if slots <= 256 else torch.int16
    labels = torch.empty(len(flat), height, width, dtype=dtype, device=masks.device)
    step = max(1, 4 * _points_at_once(masks.device) // (slots * height * width))
    for start in range(0, len(flat), step):
        part = flat[start : start + step]
        if (height, width) != tuple(mask_size):
            part = F.interpolate(part.float(), (height, width), mode="bilinear", align_corners=False)
        labels[start : start + step] = part.argmax(1)
    return labels.view(*masks.shape[:-3], height, width)
