"""Image-level norm: sums over tokens, normalised over all slots and channels of an image."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from slotbench.interfaces import SummedAggregation, TokenSums


class ImageLevelNorm(SummedAggregation):
    """The sum of the values by share, less its mean and over its deviation among slots and channels of one image.

        u[k] = weight (s[k] - mean(s)) / sqrt(variance(s) + eps) + bias,    s[k] = sum_n g[n, k] v[n]

    Mean and variance are numbers, one of each per image, that is per clip and step (and per head): what a slot has won
    is kept relative to the other slots of that image. `weight` and `bias` are learned numbers.

    Source: an option of the public code of Krimmel et al., TMLR 2024 ("image_level"), which the paper does not mention.

    Args:
        dim: width of a value; two numbers need no width.
        eps: added to the variance.
    """

    def __init__(self, dim: int, eps: float = 1e-5):
        super().__init__(dim)
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(()))
        self.bias = nn.Parameter(torch.zeros(()))

    def from_sums(self, sums: TokenSums) -> Float[Tensor, "*batch slots dim"]:
        """The same in training and in evaluation."""
        variance, mean = torch.var_mean(sums.values, dim=(-2, -1), correction=0, keepdim=True)
        return self.weight * (sums.values - mean) * torch.rsqrt(variance + self.eps) + self.bias
