"""Labels of soft masks: the slot with the largest share of a pixel, or none; and a check of the axis of slots.

A pixel on which no slot has a share is no slot's, so that its label is -1 and not that of the lowest slot.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Integer
from torch import Tensor

from slotbench.metrics.contingency import masks_to_labels

__all__ = ["NO_SLOT", "check_slots_axis", "soft_labels"]

NO_SLOT = -1
"""The label of a pixel that no slot has."""

_TOLERANCE = 0.02
_LOOKED_AT = 8
_MOST_SLOTS = 4096
_AXES = ("time", "slots", "height", "width")


def soft_labels(
    masks: Float[Tensor, "time slots height width"], are_logits: bool = False
) -> tuple[Integer[Tensor, "time height width"], int, int]:
    """The slot of every pixel, and how many pixels are ties, and have shares that do not sum to 1.

    The slot is the one with the largest share, the lowest one on a tie, and `NO_SLOT` where the largest is below
    `LEAST_SHARE`. Sums may be off by 0.02; pixels of no slot are neither ties nor counted among the sums.

    Args:
        masks: shares, or logits that are monotone in them.
        are_logits: there are values below 0, so that every pixel is some slot's.

    Raises:
        ValueError: a largest share is no number, or infinite.

    Example:
        >>> soft_labels(torch.tensor([[[[0.6, 0.5, 0.0]], [[0.4, 0.5, 0.0]]]]))
        (tensor([[[ 0,  0, -1]]], dtype=torch.int16), 1, 0)
    """
    largest = masks.amax(1)
    if not bool(largest.isfinite().all()):  # the largest of numbers is none if one of them is
        raise ValueError("values that are no numbers (nan or infinite)")
    # what is below 0 may be in another part of the clip
    labels = (masks.argmax(1) if are_logits else masks_to_labels(masks)).to(torch.int16)
    nowhere = labels == masks.shape[1]
    ties = (masks == largest[:, None]).sum(1, dtype=torch.int16) > 1
    unequal = (masks.sum(1) - 1).abs() > _TOLERANCE
    return labels.masked_fill(nowhere, NO_SLOT), int((ties & ~nowhere).sum()), int((unequal & ~nowhere).sum())


def check_slots_axis(masks: np.ndarray) -> None:
    """Refuses soft masks whose shares sum to 1 over another axis than the second, and not over that.

    Only some pixels of some frames are looked at.

    Args:
        masks: "time slots height width", any numbers.

    Raises:
        ValueError: they do; the message names the axis, and what to type.
    """
    thin = tuple(slice(None, None, -(-length // _LOOKED_AT)) for length in masks.shape)
    alike = []
    for axis, length in enumerate(masks.shape):
        if length > _MOST_SLOTS:
            alike.append(False)
            continue
        part = np.array(masks[tuple(slice(None) if axis == other else cut for other, cut in enumerate(thin))])
        total = part.astype(np.float64).sum(axis)
        alike.append(length > 1 and bool((np.abs(total - 1) <= _TOLERANCE).all()))
    if alike[1] or masks.shape[1] == 1 or not any(alike):
        return
    axis = alike.index(True)
    raise ValueError(
        f"soft masks of shape {masks.shape} whose shares sum to 1 over axis {axis}, and not over axis 1; expected "
        f"({', '.join(_AXES)}): numpy.moveaxis(masks, {axis if axis != 3 else -1}, 1)"
    )
