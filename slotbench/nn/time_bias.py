"""How far apart in time: a learned number per head for every offset between two steps."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from slotbench.nn.linear import xavier_linear

__all__ = ["RelativeTimeBias"]


class RelativeTimeBias(nn.Module):
    """A two-layer perceptron on sines and cosines of the signed offset between two steps gives a bias per head.

    It is defined for every offset, so that no clip is too long, and knows no absolute time. All frequencies are
    multiples of the slowest: offsets that are 2 `max_length` - 1 apart have the same bias.

    Source: PSB (Singh et al., 2024), Section 2.1.1 and Appendix D.1.2 ask for a relative bias per head; this form is
    that of the public code.

    Args:
        num_heads: biases per offset.
        hidden_dim: width between the two layers.
        num_frequencies: sines, and as many cosines; each frequency is twice the one before.
        max_length: steps, which set the slowest frequency: one period in 2 `max_length` - 1 steps.

    Raises:
        ValueError: a number below 1.
    """

    def __init__(self, num_heads: int, hidden_dim: int = 128, num_frequencies: int = 8, max_length: int = 1024):
        super().__init__()
        if min(num_heads, hidden_dim, num_frequencies, max_length) < 1:
            raise ValueError(
                f"{num_heads=}, {hidden_dim=}, {num_frequencies=}, {max_length=}: each of them must be at least 1"
            )
        self.num_frequencies = num_frequencies
        self.max_length = max_length
        self.expand = xavier_linear(2 * num_frequencies, hidden_dim)
        nn.init.kaiming_uniform_(self.expand.weight, nonlinearity="relu")
        self.contract = xavier_linear(hidden_dim, num_heads)

    def forward(self, offsets: Integer[Tensor, " offsets"]) -> Float[Tensor, "heads offsets"]:
        """The biases of each offset, step of the key less step of the query. Ask once for each offset that occurs."""
        slowest = 2 * math.pi / (2 * self.max_length - 1)
        # as exact as the weights, and in float32 at least
        dtype = torch.promote_types(self.expand.weight.dtype, torch.float32)
        frequencies = slowest * 2.0 ** torch.arange(self.num_frequencies, device=offsets.device, dtype=dtype)
        angles = offsets[..., None].to(dtype) * frequencies
        code = math.sqrt(2) * torch.cat([angles.sin(), angles.cos()], dim=-1)
        hidden = nn.functional.gelu(self.expand(code.to(self.expand.weight.dtype)))
        return self.contract(hidden).mT
