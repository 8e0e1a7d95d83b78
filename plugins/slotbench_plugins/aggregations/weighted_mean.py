"""Weighted mean: a slot's update is the average of the tokens that it has won."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from slotbench.interfaces import Aggregation
from slotbench.nn.aggregation import gather_values, visible_tokens

EpsForm = Literal["sum", "entry"]


class WeightedMean(Aggregation):
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

    Raises:
        ValueError: a negative `eps`, or an unknown `eps_form`.
    """

    def __init__(self, dim: int, eps: float = 1e-5, eps_form: EpsForm = "sum"):
        super().__init__(dim)
        if eps < 0:
            raise ValueError(
                f"eps={eps} is negative, but is added to a sum of weights: give 0 or a small positive number"
            )
        if eps_form not in get_args(EpsForm):
            raise ValueError(f"no eps_form named {eps_form!r}; choose one of {', '.join(get_args(EpsForm))}")
        self.eps = eps
        self.eps_form = eps_form

    def forward(
        self, assignment: Float[Tensor, "*batch slots tokens"], values: Float[Tensor, "*#batch tokens dim"]
    ) -> Float[Tensor, "*batch slots dim"]:
        """Leading axes of `values` of length one are shared by all that `assignment` has there, without a copy."""
        # Dividing the sum is cheaper than dividing the weights. The mass stays in the precision of the softmax.
        mass = assignment.sum(dim=-1, keepdim=True)
        if self.eps_form == "sum":
            gathered = torch.einsum("...st,...td->...sd", assignment.to(values.dtype), values)
            return (gathered / (mass + self.eps)).to(values.dtype)
        seen = visible_tokens(assignment)[..., None, :].to(mass.dtype)
        # in float32: 1e-8 is zero in half precision
        gathered = gather_values(assignment, values) + self.eps * gather_values(seen, values)
        return (gathered / (mass + self.eps * seen.sum(dim=-1, keepdim=True).clamp(min=1))).to(values.dtype)
