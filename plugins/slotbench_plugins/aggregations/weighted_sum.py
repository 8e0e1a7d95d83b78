"""Weighted sum: a slot's sum over tokens, divided by the number of tokens."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from slotbench.interfaces import SummedAggregation, TokenSums


class WeightedSum(SummedAggregation):
    """The sum of the values by share, divided by a number that is the same for all slots.

        u[k] = sum_n g[n, k] v[n] / C,    C = number of visible tokens, or `scale`

    The share of all tokens that a slot has won stays in the length of its update. With C the number of tokens, updates
    of all slots add up to the mean value, and none is larger than the largest value.

    Source: Krimmel, Achterhold, Stueckler, "Attention Normalization Impacts Cardinality Generalization in Slot
    Attention", TMLR 2024, Section 4.1. `scale=1.0` is the sum that Locatello et al. (2020) tried, which trains badly.

    Args:
        dim: width of a value; the sum needs no width.
        scale: C; None for the number of visible tokens.
    """

    def __init__(self, dim: int, scale: float | None = None):
        super().__init__(dim)
        self.scale = scale

    def from_sums(self, sums: TokenSums) -> Float[Tensor, "*batch slots dim"]:
        """A slot that can see no token at all gets zero."""
        return sums.values / (sums.num_tokens.clamp(min=1) if self.scale is None else self.scale)
