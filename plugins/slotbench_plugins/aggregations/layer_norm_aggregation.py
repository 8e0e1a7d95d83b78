"""Layer norm: a slot's sum over tokens, normalised over its channels."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from slotbench.interfaces import SummedAggregation, TokenSums


class LayerNormAggregation(SummedAggregation):
    """The sum of the values by share, brought to mean zero and variance one over the channels of each slot.

        u[k] = LayerNorm(sum_n g[n, k] v[n])

    Weights and offsets of the LayerNorm are shared by slots and iterations (and by heads). As with the weighted mean,
    how much a slot has won is lost: a multiple of the sum gives the same update.

    Source: Slot Attention (Locatello et al., 2020), an ablation; Krimmel et al., TMLR 2024, Section 2.1 and Eq 16-18.

    Args:
        dim: width of a value.
        eps: added to the variance.
    """

    def __init__(self, dim: int, eps: float = 1e-5):
        super().__init__(dim)
        self.norm = nn.LayerNorm(dim, eps=eps)

    def from_sums(self, sums: TokenSums) -> Float[Tensor, "*batch slots dim"]:
        """A slot that has won nothing gets the offsets."""
        return self.norm(sums.values.to(self.norm.weight.dtype))
