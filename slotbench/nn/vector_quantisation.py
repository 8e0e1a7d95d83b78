"""Vector quantisation: the nearest row of a codebook for every cell of a map, and the gradient past that choice.

Source: van den Oord, Vinyals, Kavukcuoglu, "Neural Discrete Representation Learning", NeurIPS 2017, Equations 1 and 2.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Integer
from torch import Tensor
from torch.nn import functional as F

from slotbench.nn.patch_codebook import nearest_entries

__all__ = ["code_rows", "nearest_codes", "straight_through"]


def nearest_codes(
    maps: Float[Tensor, "frames dim rows cols"], codebook: Float[Tensor, "codes dim"]
) -> Integer[Tensor, "frames rows cols"]:
    """The row of the codebook that is nearest to each cell, computed without autocast and without a gradient."""
    with torch.autocast(maps.device.type, enabled=False):
        return nearest_entries(maps.detach().to(codebook.dtype).movedim(1, -1), codebook.detach())


def code_rows(
    codes: Integer[Tensor, "frames rows cols"], codebook: Float[Tensor, "codes dim"]
) -> Float[Tensor, "frames dim rows cols"]:
    """The row of each code, as maps; they have a gradient if the codebook has."""
    return F.embedding(codes, codebook).movedim(-1, 1)


def straight_through(
    maps: Float[Tensor, "frames dim rows cols"], quantised: Float[Tensor, "frames dim rows cols"]
) -> Float[Tensor, "frames dim rows cols"]:
    """`quantised` in value, with the gradient of `maps`.

    Example:
        >>> maps = torch.full((1, 1, 1, 1), 0.3, requires_grad=True)
        >>> straight_through(maps, torch.ones(1, 1, 1, 1)).square().sum().backward()
        >>> maps.grad.item()
        2.0
    """
    return maps + (quantised - maps).detach()
