"""Linear layers with the initial weights that the models here use, and the two-layer perceptron."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["MLP", "hoisted", "lecun_linear", "lecun_normal_", "xavier_linear"]

_TRUNCATED_STD = 0.87962566103423978  # standard deviation of a unit normal cut off at 2 standard deviations


def xavier_linear(in_features: int, out_features: int, maps: int = 1, *, bias: bool = True) -> nn.Linear:
    """A linear layer with Xavier-uniform weights and zero bias, or none.

    Several maps of one input can be stored as one layer, one after the other along the output; each is then initialised
    by its own fan, as if it were a layer of its own.

    Args:
        in_features: width of the input.
        out_features: width of the output of one map.
        maps: how many maps the layer holds.
        bias: give it a bias.
    """
    layer = nn.Linear(in_features, out_features * maps, bias=bias)
    for weight in layer.weight.chunk(maps):
        nn.init.xavier_uniform_(weight)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def lecun_normal_(weight: Tensor, fan_in: int | None = None) -> Tensor:
    """Fills `weight` in place from a normal of variance 1 / fan_in, cut off at twice the deviation before the cut.

    Args:
        weight: of a linear layer or a convolution, output channels first.
        fan_in: numbers that one output sums over; by default all but the first axis of `weight`.
    """
    std = math.sqrt(1 / (fan_in or weight[0].numel())) / _TRUNCATED_STD
    return nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std)


def lecun_linear(in_features: int, out_features: int, *, bias: bool = True) -> nn.Linear:
    """A linear layer with the weights of `lecun_normal_` and zero bias, or none.

    Args:
        in_features: width of the input.
        out_features: width of the output.
        bias: give it a bias.
    """
    layer = nn.Linear(in_features, out_features, bias=bias)
    lecun_normal_(layer.weight)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def hoisted(layer: nn.Module) -> Callable[[Tensor], Tensor]:
    """A plain linear layer as a product "rows in -> rows out" whose weight is transposed once for all calls.

    A subclass or a parametrised layer, one without a bias, and any layer under autocast is returned as it is.
    """
    if type(layer) is not nn.Linear:
        return layer
    weight, bias = layer.weight, layer.bias
    if bias is None or torch.is_autocast_enabled(weight.device.type):
        return layer
    transposed = weight.mT
    return lambda rows: torch.addmm(bias, rows, transposed)


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
