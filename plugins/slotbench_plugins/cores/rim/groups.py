"""Linear maps, GRUs and LSTMs side by side: every group has weights of its own, and all are one batched product."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from slotbench.nn.gru import gru_update
from slotbench.nn.parameters import without_decay

__all__ = ["GroupGRU", "GroupLSTM", "GroupLinear", "group_units"]


class GroupLinear(nn.Module):
    """A linear map without bias for each group.

    Several maps of one input can be stored one after the other along the output; each is initialised by its own fan.

    Source: the primitives of the RIM thesis' code, which starts all weights at 0.01 N(0, 1); here that is `std=0.01`.

    Args:
        groups: how many maps side by side.
        in_features: width of a group's input.
        out_features: width of a group's output, of one map.
        maps: how many maps each group holds.
        std: standard deviation of the initial weights; Xavier-uniform if None.
    """

    def __init__(self, groups: int, in_features: int, out_features: int, maps: int = 1, std: float | None = None):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(groups, in_features, maps * out_features))
        if std is None:
            bound = (6 / (in_features + out_features)) ** 0.5
            nn.init.uniform_(self.weight, -bound, bound)
        else:
            nn.init.normal_(self.weight, std=std)

    def forward(self, x: Float[Tensor, "batch groups in_features"]) -> Float[Tensor, "batch groups out_features"]:
        """Each group by its own map."""
        return torch.bmm(x.transpose(0, 1), self.weight).transpose(0, 1)


class GroupGRU(nn.Module):
    """A GRU for each group: `groups` times `torch.nn.GRUCell`, with its two biases and its initialisation.

    Args:
        groups: how many GRUs side by side.
        input_dim: width of a group's input.
        dim: width of a group's state.
    """

    def __init__(self, groups: int, input_dim: int, dim: int):
        super().__init__()
        self.input_weight = nn.Parameter(torch.empty(groups, input_dim, 3 * dim))
        self.hidden_weight = nn.Parameter(torch.empty(groups, dim, 3 * dim))
        # the leading axis of the groups would make a bias look like a matrix to weight decay
        self.input_bias = without_decay(nn.Parameter(torch.empty(groups, 1, 3 * dim)))
        self.hidden_bias = without_decay(nn.Parameter(torch.empty(groups, 1, 3 * dim)))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(dim**-0.5), dim**-0.5)

    def forward(
        self, x: Float[Tensor, "batch groups input_dim"], hidden: Float[Tensor, "batch groups dim"]
    ) -> Float[Tensor, "batch groups dim"]:
        """The state after one step."""
        # groups first throughout, which is how the products come out
        before = hidden.transpose(0, 1)
        input_gates = torch.baddbmm(self.input_bias, x.transpose(0, 1), self.input_weight)
        hidden_gates = torch.baddbmm(self.hidden_bias, before, self.hidden_weight)
        return gru_update(input_gates, hidden_gates, before).transpose(0, 1)


class GroupLSTM(nn.Module):
    """An LSTM for each group, without biases or with the two of `torch.nn.LSTMCell`.

        i, f, o = sigmoid(W x + U h + b),  g = tanh(W x + U h + b)
        c' = f * c + i * g,  h' = o * tanh(c')

    Source: the primitives of the RIM thesis' code, which have no biases; the RIM authors' code has them.

    Args:
        groups: how many LSTMs side by side.
        input_dim: width of a group's input.
        dim: width of a group's state.
        bias: add a bias to the input's part and another to the state's.
    """

    def __init__(self, groups: int, input_dim: int, dim: int, bias: bool = False):
        super().__init__()
        self.input_weight = nn.Parameter(torch.empty(groups, input_dim, 4 * dim))
        self.hidden_weight = nn.Parameter(torch.empty(groups, dim, 4 * dim))
        self.input_bias: nn.Parameter | None = None
        self.hidden_bias: nn.Parameter | None = None
        if bias:
            self.input_bias = without_decay(nn.Parameter(torch.empty(groups, 1, 4 * dim)))
            self.hidden_bias = without_decay(nn.Parameter(torch.empty(groups, 1, 4 * dim)))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(dim**-0.5), dim**-0.5)

    def forward(
        self,
        x: Float[Tensor, "batch groups input_dim"],
        hidden: Float[Tensor, "batch groups dim"],
        memory: Float[Tensor, "batch groups dim"],
    ) -> tuple[Float[Tensor, "batch groups dim"], Float[Tensor, "batch groups dim"]]:
        """(h, c) after one step."""
        dim = hidden.shape[-1]
        hidden_gates = torch.bmm(hidden.transpose(0, 1), self.hidden_weight)
        if self.input_bias is not None and self.hidden_bias is not None:
            hidden_gates = hidden_gates + (self.input_bias + self.hidden_bias)
        gates = torch.baddbmm(hidden_gates, x.transpose(0, 1), self.input_weight).to(memory.dtype)
        sigmoids, candidate = gates.split((3 * dim, dim), dim=-1)
        enter, keep, show = torch.sigmoid(sigmoids).chunk(3, dim=-1)
        memory = torch.addcmul(keep * memory.transpose(0, 1), enter, torch.tanh(candidate))
        return (show * torch.tanh(memory)).transpose(0, 1), memory.transpose(0, 1)


def group_units(
    cell_type: Literal["gru", "lstm"], groups: int, input_dim: int, dim: int, *, lstm_bias: bool = False
) -> GroupGRU | GroupLSTM:
    """A `GroupGRU` or a `GroupLSTM`."""
    if cell_type == "lstm":
        return GroupLSTM(groups, input_dim, dim, bias=lstm_bias)
    return GroupGRU(groups, input_dim, dim)
