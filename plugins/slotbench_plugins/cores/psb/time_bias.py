"""What a layer of PSB adds to a logit for the time between a slot and what it attends to."""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from slotbench.nn.linear import xavier_linear

__all__ = ["BucketTimeBias", "RelativeTimeBias", "TimeBiasKind"]

TimeBiasKind = Literal["mlp", "buckets", "none"]
"""A perceptron on the offset, as in PSB's code; T5's buckets of offsets, as in its text; or nothing."""


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
    """

    def __init__(self, num_heads: int, hidden_dim: int = 128, num_frequencies: int = 8, max_length: int = 1024):
        super().__init__()
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


class BucketTimeBias(nn.Module):
    """A learned number per head and bucket of offsets: a bucket for each short offset, wider ones for longer ones.

    Of `num_buckets` the first half are offsets of their own; the others grow by a constant factor up to
    `max_distance`, and the last has all beyond. Without `causal` each direction has half of all buckets. All numbers
    start from zero.

    Source: Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer", JMLR
    2020, Section 2.1, which PSB (Singh et al., 2024), Section 2.1.1 names; 32 buckets and 128 are T5's, the zeros ours.

    Args:
        num_heads: biases per offset.
        causal: no key is later than its query, so that one direction has all buckets.
        num_buckets: of all offsets.
        max_distance: steps from which on all offsets share a bucket.
    """

    def __init__(self, num_heads: int, causal: bool = True, num_buckets: int = 32, max_distance: int = 128):
        super().__init__()
        self.causal, self.max_distance = causal, max_distance
        self.table = nn.Parameter(torch.zeros(num_heads, num_buckets))

    def forward(self, offsets: Integer[Tensor, " offsets"]) -> Float[Tensor, "heads offsets"]:
        """The biases of each offset, step of the key less step of the query."""
        return self.table[:, self.buckets(offsets)]

    def buckets(self, offsets: Integer[Tensor, " offsets"]) -> Integer[Tensor, " offsets"]:
        """The bucket of each offset; with `causal` later keys, which are masked, are in that of the step itself."""
        count = self.table.shape[1]
        first = torch.zeros_like(offsets)
        if not self.causal:
            count //= 2
            first = torch.where(offsets > 0, count, 0)
        distance = (-offsets).clamp_min(0) if self.causal else offsets.abs()
        exact = count // 2
        # float64: the edges of buckets are powers, which float32 would move
        growth = (distance.clamp_min(1).double() / exact).log() / math.log(self.max_distance / exact)
        wide = (exact + (growth * (count - exact)).long()).clamp_max(count - 1)
        return first + torch.where(distance < exact, distance, wide)
