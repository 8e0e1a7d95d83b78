"""How many points each true and each predicted segment share: tables of counts, from label maps and from soft masks.

Ids are integers of any type and sign, or true and false for 1 and 0; truth of a floating-point type is refused, since
what was divided by 255 would be cut off to nothing. Soft masks are shares, floating point, "batch time slots height
width"; a pixel on which no slot has a share belongs to no slot (`masks_to_labels`).

Counts are int64, and there is no Python loop over pixels, frames or samples; large inputs go through in parts that
stay in a processor's cache. Row 0 of a table is the true background, always; column 0 is a predicted id like any other.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor
from torch.nn import functional as F

__all__ = [
    "LEAST_SHARE",
    "Labels",
    "SoftMasks",
    "Tables",
    "TrueLabels",
    "Valid",
    "compact_ids",
    "contingency",
    "counted",
    "frame_tables",
    "integer_ids",
    "masks_to_labels",
    "resized_masks",
]

Labels = Integer[Tensor, "batch time *views rows cols"] | Bool[Tensor, "batch time *views rows cols"]
SoftMasks = Float[Tensor, "batch time *views slots rows cols"] | Bool[Tensor, "batch time *views slots rows cols"]
TrueLabels = Integer[Tensor, "batch time *views height width"] | Bool[Tensor, "batch time *views height width"]
Valid = Bool[Tensor, "batch time *views height width"]
Tables = Integer[Tensor, "batch time views true predicted"]

LEAST_SHARE = 0.001
"""A pixel on which the largest share is smaller belongs to no slot."""

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
    return _renumbered(integer_ids(labels, "labels"))[0]


def integer_ids(labels: Tensor, what: str) -> Tensor:
    """Ids in a type that torch computes with: true and false as 1 and 0, and negative ids like any other."""
    if labels.is_floating_point() or labels.is_complex():
        raise ValueError(
            f"{what} are of {labels.dtype}; expected integer ids, 0 = background: an image that was divided by 255 has "
            "none, so read it as integers, for example torch.from_numpy(numpy.array(Image.open(path)))"
        )
    if labels.dtype == torch.bool:
        return labels.to(torch.uint8)
    return labels.long() if labels.dtype in _UNSIGNED else labels


def _renumbered(labels: Tensor) -> tuple[Tensor, int]:
    """The compact ids, and one more than the highest."""
    low, high = _bounds(labels)
    if low >= 0 and high < _SMALL_IDS:
        return labels, high + 1
    flat = labels.reshape(-1, labels.shape[-1])
    if (high - low + 1) * len(flat) <= max(labels.numel(), 2**20):
        ids = torch.arange(low, high + 1, device=labels.device)
        places = flat.long() - low
    else:
        ids, places = torch.unique(flat, return_inverse=True)
    present = torch.zeros(len(flat), len(ids), dtype=torch.bool, device=labels.device).scatter_(1, places, True)
    ranks = (present & (ids != 0)).cumsum(1) * (ids != 0)
    return ranks.gather(1, places).view(labels.shape), int(ranks.max()) + 1


def _bounds(labels: Tensor) -> tuple[int, int]:
    if labels.numel() == 0:
        return 0, 0
    low, high = labels.aminmax()
    return int(low), int(high)


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

    Example:
        >>> contingency(torch.tensor([0, 1, 1, 0]), torch.tensor([1, 1, 1, 0]))
        tensor([[1, 0],
                [1, 2]])
    """
    predicted, true = integer_ids(predicted, "predicted ids"), integer_ids(true, "true ids")
    if valid is not None:
        predicted, true = predicted.masked_fill(~valid, 0), true.masked_fill(~valid, 0)
    sides = []
    for labels, number, side in ((predicted, num_predicted, "predicted"), (true, num_true, "true")):
        if number is None:
            labels, number = _renumbered(labels)
        else:
            low, high = _bounds(labels)
            if low < 0 or high >= number:
                raise ValueError(
                    f"{side} ids go from {low} to {high}, and num_{side}={number} allows 0 to {number - 1}: give a "
                    f"larger num_{side}, or leave it out to have any ids renumbered"
                )
        sides.append((labels, number))
    (predicted, columns), (true, rows) = sides
    return _count(predicted, true, columns, rows, valid)


def _count(predicted: Tensor, true: Tensor, columns: int, rows: int, valid: Tensor | None) -> Tensor:
    samples, points = true.shape[:-1], true.shape[-1]
    shape = samples.numel(), points
    flat_predicted, flat_true = predicted.reshape(shape), true.reshape(shape)
    flat_valid = None if valid is None else valid.reshape(shape)
    cells = rows * columns
    step = max(1, min(_points_at_once(true.device) // max(points, 1), 2**24 // max(cells, 1)))
    dtype = next(dtype for dtype in (torch.int16, torch.int32, torch.int64) if step * cells <= torch.iinfo(dtype).max)
    counts = []
    for start in range(0, len(flat_true), step):
        part = slice(start, start + step)
        # one code per point: (sample, true, predicted)
        codes = torch.add(flat_predicted[part].to(dtype), flat_true[part].to(dtype), alpha=columns)
        codes += cells * torch.arange(len(codes), dtype=dtype, device=codes.device)[:, None]
        size = len(codes) * cells
        if flat_valid is not None:
            codes.masked_fill_(~flat_valid[part], size)  # one bin more, which is dropped
        counts.append(torch.bincount(codes.flatten(), minlength=size)[:size])
    table = torch.cat(counts) if counts else torch.zeros(0, dtype=torch.long, device=true.device)
    return table.view(*samples, rows, columns)


def frame_tables(predicted: Labels | SoftMasks, true: TrueLabels, valid: Valid | None = None) -> Tables:
    """Points of every frame by true and by predicted id; an id is the same row or column in all frames of a clip.

    So the table of a clip is the sum of those of its frames, and one count serves every metric and scope.

    Args:
        predicted: ids of slots, any integers, or soft masks (floating point, or true and false with an axis of slots),
            which are resized to the size of `true`. Pixels of no slot are one segment more, the last column.
        true: ids of objects, any integers, 0 = background.
        valid: false at pixels that count nowhere.
    """
    true = integer_ids(true, "true labels")
    if true.ndim not in (4, 5):
        raise ValueError(
            f"true labels have shape {tuple(true.shape)}; expected (batch, time, height, width), or with several "
            "cameras (batch, time, views, height, width)"
        )
    columns = None
    if predicted.dtype == torch.bool and predicted.ndim == true.ndim + 1:
        predicted = predicted.float()
    if predicted.is_floating_point():
        _check_axes(predicted, true)
        slots = predicted.shape[-3]
        predicted = masks_to_labels(predicted, (true.shape[-2], true.shape[-1]))
        columns = slots + int((predicted == slots).any())
    if predicted.shape != true.shape:
        raise ValueError(
            f"predicted labels have shape {tuple(predicted.shape)} and true ones {tuple(true.shape)}: labels are not "
            "resized, so give the soft masks (floating point, with an axis of slots) if they are of another size"
        )
    predicted = integer_ids(predicted, "predicted labels")
    if true.ndim == 4:
        predicted, true, valid = predicted[:, :, None], true[:, :, None], None if valid is None else valid[:, :, None]
    if valid is not None:
        predicted, true = predicted.masked_fill(~valid, 0), true.masked_fill(~valid, 0)
    frames = (*true.shape[:3], true.shape[-2] * true.shape[-1])
    true, rows = _renumbered(true.flatten(1))
    if columns is None:
        predicted, columns = _renumbered(predicted.flatten(1))
    valid = None if valid is None else valid.reshape(frames)
    return _count(predicted.reshape(frames), true.reshape(frames), columns, rows, valid)


def counted(true: TrueLabels) -> Valid | None:
    """Where pixels count, of a data set's ids, in which -1 is where they do not (`void`); None for everywhere."""
    valid = true >= 0
    return None if bool(valid.all()) else valid


def _check_axes(masks: Tensor, true: Tensor) -> None:
    """Refuses soft masks whose axes are others than those of the truth with slots before height and width."""
    order = "(batch, time, slots, height, width), with views before the slots if there are several"
    beside = f"soft masks have shape {tuple(masks.shape)} beside true labels of shape {tuple(true.shape)}"
    size = true.shape[-2:]
    turned = masks.shape[-3:-1] == size and masks.shape[-2:] != size
    if masks.ndim != true.ndim + 1 or masks.shape[:-3] != true.shape[:-2] or turned:
        raise ValueError(
            f"{beside}; expected {order}, or integer ids: slots that come last go by masks.movedim(-1, -3)"
        )
    if not _sums_to_one(masks, -3):
        for axis in (masks.ndim - 1, 1):
            if masks.shape[axis] > 1 and _sums_to_one(masks, axis):
                raise ValueError(
                    f"{beside}, and sum to 1 over axis {axis} in place of the slots' ({masks.ndim - 3}); expected "
                    f"{order}: give masks.movedim({axis}, -3)"
                )


def _sums_to_one(masks: Tensor, axis: int) -> bool:
    if not masks.numel():
        return True
    sums = masks.sum(axis, dtype=torch.promote_types(masks.dtype, torch.float32))
    return bool((sums - 1).abs().amax() < 0.01)


def resized_masks(
    masks: Float[Tensor, "*batch slots rows cols"], size: tuple[int, int]
) -> Float[Tensor, "*batch slots height width"]:
    """Masks at another size (height, width), bilinear; in float32 at least."""
    if tuple(masks.shape[-2:]) == tuple(size):
        return masks
    flat = masks.reshape(-1, *masks.shape[-3:])
    flat = flat.float() if masks.dtype.itemsize < 4 else flat
    resized = F.interpolate(flat, tuple(size), mode="bilinear", align_corners=False)
    return resized.unflatten(0, masks.shape[:-3])


def masks_to_labels(
    masks: Float[Tensor, "*batch slots rows cols"], size: tuple[int, int] | None = None
) -> Integer[Tensor, "*batch height width"]:
    """The slot with the largest share of each pixel, the lowest on a tie; where none has a share, the number of slots.

    A pixel on which the largest share is below `LEAST_SHARE` is covered by no mask: it belongs to no slot, which is a
    label of its own, one beyond the last slot, and never to the slot that the argmax of zeros would name. In scores it
    is a segment like any other, as a predicted background is; it is not left out, so that nothing is gained by covering
    less. Masks with a negative value anywhere are logits, for which there is no such pixel.

    Masks of another size are first resized bilinearly (labels never are). It works through some frames at a time, so
    that it takes little memory beyond the labels', which are of 8 bits for up to 255 slots and of 16 bits beyond.

    Example:
        >>> masks_to_labels(torch.tensor([[[0.6, 0.5, 0.0]], [[0.4, 0.5, 0.0]]]))
        tensor([[0, 0, 2]], dtype=torch.uint8)
    """
    slots, *mask_size = masks.shape[-3:]
    height, width = size or mask_size
    flat = masks.detach().reshape(-1, slots, *mask_size)
    lowest = float(flat.amin()) if flat.numel() else 0.0
    if lowest != lowest:
        raise ValueError("soft masks hold values that are no numbers (nan); expected shares, or logits")
    dtype = torch.uint8 if slots < 256 else torch.int16
    labels = torch.zeros(len(flat), height, width, dtype=dtype, device=masks.device)
    step = max(1, 4 * _points_at_once(masks.device) // (slots * height * width))
    for start in range(0, len(flat), step):
        part, chosen = flat[start : start + step], labels[start : start + step]
        if part.dtype.itemsize < 4:
            part = part.float()
        if (height, width) != tuple(mask_size):
            part = F.interpolate(part, (height, width), mode="bilinear", align_corners=False)
        # Slot by slot: torch's argmax over an axis that is not the last reads memory in strides and takes many times as
        # long. Numbers of slots rise, so that the latest to win is the largest to have won.
        best = part[:, 0].clone()
        for slot in range(1, slots):
            wins = (part[:, slot] > best).to(dtype).mul_(slot)
            torch.maximum(chosen, wins, out=chosen)
            torch.maximum(best, part[:, slot], out=best)
        if lowest >= 0:
            chosen.masked_fill_(best < LEAST_SHARE, slots)
    return labels.view(*masks.shape[:-3], height, width)
