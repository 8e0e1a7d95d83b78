"""Which slot looks at an object, or at what covers it."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from slotbench.interfaces import VideoBatch

__all__ = ["outermost", "watching_slot"]


def outermost(holders: Int[Tensor, "batch time objects"]) -> Int[Tensor, "batch time"]:
    """What is to be seen in the place of object 0: itself, or the cone over it, or the cone over that.

    Args:
        holders: what is directly over each object, -1 for nothing.
    """
    seen = torch.zeros_like(holders[..., 0])
    for _ in range(holders.shape[-1]):
        above = holders.gather(-1, seen[..., None])[..., 0]
        seen = torch.where(above >= 0, above, seen)
    return seen


def watching_slot(
    attention: Float[Tensor, "batch time slots tokens"] | None,
    batch: VideoBatch,
    grid: tuple[int, int] | None,
    tokens_are_objects: bool,
) -> Int[Tensor, "batch time"] | None:
    """The slot that looks most at object 0, or at what is to be seen in its place; -1 where nothing of it is in sight.

    Args:
        attention: of the slots to the tokens, by either norm; None if the core has none.
        batch: with "holders" in `objects`, and masks in which object i is i + 1.
        grid: rows and columns of the tokens, if they are cells of the frames.
        tokens_are_objects: whether token i is object i.

    Returns:
        None if that cannot be told.
    """
    holders = batch.objects.get("holders")
    if attention is None or holders is None:
        return None
    seen = outermost(holders)
    if tokens_are_objects:
        if attention.shape[-1] != holders.shape[-1]:
            return None
        at = F.one_hot(seen, attention.shape[-1])
    else:
        if grid is None or batch.masks is None or grid[0] * grid[1] != attention.shape[-1]:
            return None
        own = (batch.masks == (seen + 1)[..., None, None]).to(attention.dtype)
        at = F.adaptive_avg_pool2d(own, grid).flatten(2)
    at = at.to(attention.dtype)
    looks = torch.einsum("btsn,btn->bts", attention, at)
    return torch.where(at.sum(-1) > 0, looks.argmax(-1), -1)
