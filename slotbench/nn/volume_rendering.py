"""Volume rendering: densities along a ray to the share that each of its points has in what the ray shows."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = [
    "DensityMix",
    "Rendered",
    "mix_densities",
    "ray_points",
    "render_weights",
    "render_weights_reference",
    "termination_depth",
]

DensityMix = Literal["sum", "weighted_mean"]

EPSILON = 1e-6
"""The least density that is divided by, so that empty space has colours and gradients that are finite."""


class Rendered(NamedTuple):
    """How the light of a ray is shared out; the two sum to 1.

    Attributes:
        weights: the share of each point, transmittance times alpha.
        left: what passes all points, the transmittance behind the last.
    """

    weights: Float[Tensor, "*lead points"]
    left: Float[Tensor, "*lead"]


def render_weights(density: Float[Tensor, "*lead points"], lengths: Float[Tensor, "*lead points"]) -> Rendered:
    """The share of each point of a ray in its colour, from the densities and the lengths they hold for.

    The transmittance is the exponential of a sum, so that no gradient divides by one that is 0.

    Source: NeRF (Mildenhall et al., ECCV 2020), equation 3.
    """
    optical = density * lengths
    reached = optical.cumsum(dim=-1)
    return Rendered(torch.exp(optical - reached) * -torch.expm1(-optical), torch.exp(-reached[..., -1]))


def render_weights_reference(
    density: Float[Tensor, "*lead points"], lengths: Float[Tensor, "*lead points"]
) -> Rendered:
    """The same point by point: the definition."""
    transmittance, weights = torch.ones_like(density[..., 0]), []
    for point in range(density.shape[-1]):
        alpha = 1 - torch.exp(-density[..., point] * lengths[..., point])
        weights.append(transmittance * alpha)
        transmittance = transmittance * (1 - alpha)
    return Rendered(torch.stack(weights, dim=-1), transmittance)


def ray_points(
    near: float, far: float, jitter: Float[Tensor, "*lead points"]
) -> tuple[Float[Tensor, "*lead points"], Float[Tensor, "*lead points"]]:
    """(distances from the origin, lengths): a point in each of equal bins of a ray, and the way that each stands for.

    That is the way to the next point, or to `far`; the first point also has the way from `near`, so that the lengths
    sum to that of the ray.

    Source: NeRF, equation 2; PSB (Singh et al., ICML 2024), section 3.2, where nothing has the way to the first point.
    """
    bins = torch.arange(jitter.shape[-1], device=jitter.device, dtype=jitter.dtype)
    distances = near + (bins + jitter) * ((far - near) / jitter.shape[-1])
    end = torch.ones_like(distances[..., :1])
    return distances, torch.diff(distances[..., 1:], prepend=near * end, append=far * end)


def termination_depth(
    rendered: Rendered, distances: Float[Tensor, "*lead points"], far: float
) -> Float[Tensor, "*lead"]:
    """Expected distance at which a ray ends; what passes all points ends at `far`."""
    return (rendered.weights * distances).sum(dim=-1) + rendered.left * far


def mix_densities(
    density: Float[Tensor, "*lead fields"], mix: DensityMix = "sum"
) -> tuple[Float[Tensor, "*lead"], Float[Tensor, "*lead fields"]]:
    """(density, shares) of several fields at one point; colours are mixed by the shares.

    Shares are densities over their sum. They sum to 1 but where the sum is below 1e-6, in space that is all but empty.
    """
    total = density.sum(dim=-1)
    shares = density / total.clamp(min=EPSILON)[..., None]
    if mix == "sum":
        return total, shares
    if mix == "weighted_mean":
        return (shares * density).sum(dim=-1), shares
    raise ValueError(f"no mix of densities named {mix!r}; choose sum or weighted_mean")
