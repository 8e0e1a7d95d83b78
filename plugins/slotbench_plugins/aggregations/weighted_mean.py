"""Weighted mean: a slot's update is the average of the tokens that it has won."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float
from torch import Tensor

from slotbench.interfaces import SummedAggregation, TokenSums

EpsForm = Literal["sum", "entry"]


class WeightedMean(SummedAggregation):
    """The mean of the values, weighted with the slot's share of each token.

        u[k] = sum_n g[n, k] v[n] / (sum_n g[n, k] + eps)             eps_form "sum"
        u[k] = sum_n (g[n, k] + eps) v[n] / sum_n (g[n, k] + eps)     eps_form "entry"

    How much a slot has won in all is divided out. The two forms differ for a slot that has won nothing: with "sum" its
    update is zero, with "entry" the plain mean of all tokens that it could see.

    Source: Slot Attention (Locatello et al., 2020), Algorithm 1; Krimmel et al., TMLR 2024, Eq 4, both without `eps`.
    The public codes of PSB and SlotSSM have "sum" with 1e-5, that of SAVi "sum" with 1e-8, those of Slot Attention and
    of Krimmel et al. "entry" with 1e-8.

    Args:
        dim: width of a value; the mean needs no width.
        eps: keeps a slot that has won nothing from dividing by zero.
        eps_form: "sum" adds `eps` to the slot's sum of shares, "entry" to each of its shares.
    """

    def __init__(self, dim: int, eps: float = 1e-5, eps_form: EpsForm = "sum"):
        super().__init__(dim)
        if eps < 0:
            raise ValueError(
                f"eps={eps} is negative, but is added to a sum of weights: give 0 or a small positive number"
            )
        self.eps = eps
        self.eps_form = eps_form

    @property
    def share_offset(self) -> float:  # type: ignore[override]
        """`eps`, where it is added to each share."""
        return self.eps if self.eps_form == "entry" else 0.0

    def from_sums(self, sums: TokenSums) -> Float[Tensor, "*batch slots dim"]:
        """Dividing the sum is cheaper than dividing the weights."""
        if self.eps_form == "sum":
            return sums.values / (sums.mass + self.eps)
        # below `eps` where a slot can see no token at all
        return sums.values / sums.mass.clamp(min=self.eps)
