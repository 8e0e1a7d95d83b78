"""The gated recurrent unit in two halves: one that many steps can compute at once, and one that needs the state."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from slotbench.nn.linear import xavier_linear

__all__ = ["SharedGRU", "gru_update"]


def gru_update(
    input_gates: Float[Tensor, "*batch gates"],
    hidden_gates: Float[Tensor, "*batch gates"],
    hidden: Float[Tensor, "*batch dim"],
) -> Float[Tensor, "*batch dim"]:
    """The element-wise half of a GRU step, in PyTorch's convention.

        r, z = sigmoid(input_gates[r, z] + hidden_gates[r, z])
        n = tanh(input_gates[n] + r * hidden_gates[n])
        h' = (1 - z) * n + z * h

    Computed in the precision of `hidden`, so that under autocast the state keeps float32.

    Source: Cho et al., 2014, as `torch.nn.GRUCell` has it (the reset gate after the matrix).

    Args:
        input_gates: W x + b for the gates r, z, n, one after the other.
        hidden_gates: the same of the state.
        hidden: the state.
    """
    dim = hidden.shape[-1]
    input_rz, input_n = torch.split_with_sizes(input_gates.to(hidden.dtype), (2 * dim, dim), dim=-1)
    hidden_rz, hidden_n = torch.split_with_sizes(hidden_gates.to(hidden.dtype), (2 * dim, dim), dim=-1)
    reset, update = torch.sigmoid(input_rz + hidden_rz).chunk(2, dim=-1)
    candidate = torch.tanh(torch.addcmul(input_n, reset, hidden_n))
    return torch.lerp(candidate, hidden, update)


class SharedGRU(nn.Module):
    """One GRU for every element of a set.

    Args:
        input_dim: width of the input.
        dim: width of the state.
    """

    def __init__(self, input_dim: int, dim: int):
        super().__init__()
        self.input_map = xavier_linear(input_dim, dim, maps=3)
        self.hidden_map = xavier_linear(dim, dim, maps=3)

    def input_gates(self, x: Float[Tensor, "*batch input_dim"]) -> Float[Tensor, "*batch gates"]:
        """The half of a step that does not depend on the state: compute it for all steps at once."""
        return self.input_map(x)

    def forward(
        self, input_gates: Float[Tensor, "*batch gates"], hidden: Float[Tensor, "*batch dim"]
    ) -> Float[Tensor, "*batch dim"]:
        """The state after a step, from `input_gates` of that step and the state before it."""
        return gru_update(input_gates, self.hidden_map(hidden), hidden)
