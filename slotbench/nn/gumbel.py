"""Gumbel noise, and draws by it."""

from __future__ import annotations

import torch
from jaxtyping import Float, Integer
from torch import Tensor

__all__ = ["draw_categories", "gumbel_noise"]


def gumbel_noise(like: Tensor) -> Tensor:
    """Gumbel noise of the shape of `like`, in float32 or float64: the negative log of exponential noise."""
    noise = torch.empty_like(like, dtype=torch.promote_types(like.dtype, torch.float32)).exponential_()
    return -noise.clamp(min=torch.finfo(noise.dtype).tiny).log()


def draw_categories(logits: Float[Tensor, "*batch categories"], temperature: float = 1.0) -> Integer[Tensor, "*batch"]:
    """A category of each row, drawn by its logits.

    Unlike `torch.multinomial` it goes on where logits are not finite, so that the scores of a model that has diverged
    can say so.

    Args:
        logits: of any scale.
        temperature: they are divided by it; 0 for the largest.
    """
    if temperature == 0:
        return logits.argmax(-1)
    scaled = logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature
    return (scaled + gumbel_noise(scaled)).argmax(-1)
