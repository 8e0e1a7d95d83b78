"""Vector quantisation: the nearest row of a codebook for every cell of a map, and the gradient past that choice.

Source: van den Oord, Vinyals, Kavukcuoglu, "Neural Discrete Representation Learning", NeurIPS 2017, Equations 1 and 2.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench.nn.linear import lecun_linear
from slotbench.nn.patch_codebook import nearest_entries

__all__ = ["CosineQuantiser", "Quantised", "code_rows", "nearest_codes", "straight_through"]


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


def straight_through(maps: Float[Tensor, "*shape"], quantised: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """`quantised` in value, with the gradient of `maps`.

    Example:
        >>> maps = torch.full((1, 1, 1, 1), 0.3, requires_grad=True)
        >>> straight_through(maps, torch.ones(1, 1, 1, 1)).square().sum().backward()
        >>> maps.grad.item()
        2.0
    """
    return maps + (quantised - maps).detach()


class Quantised(NamedTuple):
    """What a quantiser made of vectors.

    Attributes:
        vectors: those of the codes, with the gradient of the vectors that were quantised.
        codes: the code of each.
        losses: terms that the quantiser adds to the loss, scalars by name.
    """

    vectors: Float[Tensor, "*batch dim"]
    codes: Integer[Tensor, "*batch"]
    losses: dict[str, Float[Tensor, ""]]


class CosineQuantiser(nn.Module):
    """Replaces vectors by the codes of largest cosine, in a space of fewer dimensions.

    Vectors are mapped to `code_dim`, and they and the rows of the codebook are scaled to length 1; the nearest row is
    mapped back. The gradient passes the choice unchanged. Terms of the loss are half the squared difference of unit
    vectors and rows, mean over all numbers: `codebook` moves the rows, and `commitment` moves the vectors.

    Source: Yu et al., "Vector-quantized Image Modeling with Improved VQGAN", ICLR 2022, Section 3.2; initial values and
    weights are those of TECO's code (Yan et al., ICML 2023).

    Args:
        dim: width of the vectors.
        num_codes: rows of the codebook.
        code_dim: width of a row.
        commitment_weight: of `commitment`.
    """

    def __init__(self, dim: int, num_codes: int = 256, code_dim: int = 32, commitment_weight: float = 0.25):
        super().__init__()
        if num_codes < 1 or code_dim < 1:
            raise ValueError(
                f"CosineQuantiser: num_codes is {num_codes} and code_dim is {code_dim}; expected at least 1 of each"
            )
        self.commitment_weight = commitment_weight
        self.codebook = nn.Parameter(0.02 * torch.randn(num_codes, code_dim))
        self.project_in = lecun_linear(dim, code_dim, bias=False)
        self.project_out = lecun_linear(code_dim, dim, bias=False)

    def forward(self, vectors: Float[Tensor, "*batch dim"]) -> Quantised:
        """The vectors of the nearest codes, these codes, and the two terms."""
        given = F.normalize(self.project_in(vectors).to(self.codebook.dtype), dim=-1)
        rows = F.normalize(self.codebook, dim=-1)
        with torch.autocast(vectors.device.type, enabled=False):
            # between unit vectors the nearest row is that of the largest cosine
            codes = nearest_entries(given.detach(), rows.detach())
        chosen = F.embedding(codes, rows)
        losses = {
            "codebook": 0.5 * F.mse_loss(chosen, given.detach()),
            "commitment": self.commitment_weight * 0.5 * F.mse_loss(given, chosen.detach()),
        }
        return Quantised(self.project_out(straight_through(given, chosen)), codes, losses)

    def embed(self, codes: Integer[Tensor, "*batch"]) -> Float[Tensor, "*batch dim"]:
        """The vectors of codes, as `forward` gives them."""
        return self.project_out(F.normalize(F.embedding(codes, self.codebook), dim=-1))
