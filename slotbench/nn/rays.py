"""Rays of posed cameras: codes of points and rays as sines and cosines, and images of what is painted along them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from slotbench.interfaces import PartError, VideoBatch

__all__ = ["RAY_CODES", "NormedMLP", "RayPoint", "ResidualMLP", "encode_rays", "encode_scalars", "of_rays", "rays_of"]

RAY_CODES = 96
"""Width of the code of a ray."""

RayPoint = Literal["camera", "nearest"]
"""What stands for a ray in its code: its origin, or its point nearest to where all coordinates are 0."""


def encode_scalars(
    values: Float[Tensor, "*lead axes"], max_value: float, octaves: int = 8
) -> Float[Tensor, "*lead codes"]:
    """Sines and cosines of each number at octaves of frequency, interleaved; of three numbers 48 with eight octaves.

    Source: PSB (Singh et al., ICML 2024), appendix D.4.3: of frequency pi * 2^i / `max_value`, i from 0.
    """
    frequencies = math.pi / max_value * 2.0 ** torch.arange(octaves, device=values.device, dtype=values.dtype)
    angles = values[..., None] * frequencies
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-3)


def encode_rays(
    rays: Float[Tensor, "*lead 6"], max_value: float, point: RayPoint = "camera"
) -> Float[Tensor, "*lead codes"]:
    """`encode_scalars` of a point of each ray and of its direction: 96 numbers.

    With "nearest" all rays along the same line have the same code, wherever on it their cameras are, as Plücker
    coordinates have it (Sitzmann et al., Light Field Networks, NeurIPS 2021).
    """
    place, direction = rays.split(3, dim=-1)
    if point == "nearest":
        place = place - (place * direction).sum(-1, keepdim=True) * direction
    return torch.cat([encode_scalars(place, max_value), encode_scalars(direction, 1.0)], dim=-1)


def rays_of(batch: VideoBatch | None, name: str) -> Float[Tensor, "batch time *views 6 height width"]:
    """The rays that a decoder is to paint."""
    if batch is None or batch.rays is None:
        raise PartError(
            f"{name} paints rays of posed cameras, and this batch has none: choose data with rays, such as "
            "MultiCameraLike, and a task that gives them to the decoder, NovelViewAutoencoding"
        )
    return batch.rays


def of_rays(
    paint: Callable[[Float[Tensor, "steps rays 6"]], dict[str, Tensor]],
    rays: Float[Tensor, "batch time *views 6 height width"],
) -> dict[str, Tensor]:
    """What is painted of rays, laid out as images again.

    Returns:
        "batch time *views ... height width" each.
    """
    lead, size = rays.shape[:-3], rays.shape[-2:]
    views = lead[2:]
    found = paint(rays.movedim(-3, -1).reshape(lead[0] * lead[1], math.prod((*views, *size)), 6))

    def laid_out(value: Tensor) -> Tensor:
        images = value.reshape(*lead, *size, *value.shape[2:])
        first = 2 + len(views)
        return images.movedim((first, first + 1), (-2, -1))

    return {name: laid_out(value) for name, value in found.items()}


class ResidualMLP(nn.Module):
    """LayerNorm, linear, ReLU and linear on the last axis, with a residual around them.

    Args:
        dim: width.
    """

    def __init__(self, dim: int):
        super().__init__()
        self.change = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))

    def forward(self, x: Float[Tensor, "*lead dim"]) -> Float[Tensor, "*lead dim"]:
        """Each vector on its own."""
        return x + self.change(x)


class NormedMLP(nn.Sequential):
    """LayerNorm, then residual MLPs: the blocks of PSB's three-dimensional decoders.

    Source: PSB, Tables 10 (two), 11 (one) and 12 (four).

    Args:
        dim: width.
        num_blocks: residual MLPs.
    """

    def __init__(self, dim: int, num_blocks: int):
        super().__init__(nn.LayerNorm(dim), *(ResidualMLP(dim) for _ in range(num_blocks)))
