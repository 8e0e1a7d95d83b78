"""The linear map of the models whose other weights are LeCun-normal too."""

from __future__ import annotations

from torch import nn

from slotbench.nn.resnet_blocks import lecun_normal_

__all__ = ["lecun_linear"]


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
