"""Weighted mean: a slot's update is the average of the tokens that it has won."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from slotbench.interfaces import Aggregation


class WeightedMean(Aggregation):
    """The mean of the values, weighted with the slot's share of each token.

    How much a slot has won in all is divided out. A slot that has won nothing gets an update of zero.

    Source: Slot Attention (Locatello et al., 2020), Algorithm 1; PSB (Singh et al., 2024), Appendix D.1.2, without
    `eps`; its public code has the value and the place of `eps` used here.

    Args:
        eps: added to the sum of a slot's shares before dividing by it.

    Raises:
        ValueError: a negative `eps`.
    """

    def __init__(self, eps: float = 1e-5):
        super().__init__()
        if eps < 0:
            raise ValueError(
                f"eps={eps} is negative, but is added to a sum of weights: give 0 or a small positive number"
            )
        self.eps = eps

    def forward(
        self, assignment: Float[Tensor, "*batch slots tokens"], values: Float[Tensor, "*#batch tokens dim"]
    ) -> Float[Tensor, "*batch slots dim"]:
        """Leading axes of `values` of length one are shared by all that `assignment` has there, without a copy."""
        # Dividing the sum is cheaper than dividing the weights. The mass stays in the precision of the soft-max.
        mass = assignment.sum(dim=-1, keepdim=True) + self.eps
        return (torch.einsum("...st,...td->...sd", assignment.to(values.dtype), values) / mass).to(values.dtype)
