"""The two-layer perceptron used after attention."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from slotbench.nn.linear import xavier_linear

__all__ = ["MLP"]


class MLP(nn.Module):
    """Linear, GELU, linear, on the last axis.

    Args:
        dim: width of the input and of the output.
        hidden_dim: width between the two; `4 * dim` if None.
    """

    def __init__(self, dim: int, hidden_dim: int | None = None):
        super().__init__()
        hidden_dim = 4 * dim if hidden_dim is None else hidden_dim
        self.expand = xavier_linear(dim, hidden_dim)
        self.contract = xavier_linear(hidden_dim, dim)

    def forward(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """Each element on its own."""
        return self.contract(nn.functional.gelu(self.expand(x)))
