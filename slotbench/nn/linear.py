"""The linear map that all layers here are made of."""

from __future__ import annotations

from torch import nn

__all__ = ["xavier_linear"]


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
