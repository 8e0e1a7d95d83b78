"""A picture as a mixture of the pictures of the slots."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["mix_slots"]


def mix_slots(
    components: Float[Tensor, "batch time slots channels height width"],
    logits: Float[Tensor, "batch time slots height width"],
) -> tuple[Float[Tensor, "batch time channels height width"], Float[Tensor, "batch time slots height width"]]:
    """(picture, masks): each pixel is the mean of what the slots paint there, weighted by a softmax over the slots.

    The softmax and the sum are taken in float32 (or wider, where the input is).

    Source: SlotSSM, equation 17.

    Args:
        components: what each slot paints.
        logits: how strongly each slot claims each pixel.
    """
    masks = logits.softmax(dim=2, dtype=torch.promote_types(logits.dtype, torch.float32))
    return (masks[:, :, :, None] * components).sum(dim=2), masks
