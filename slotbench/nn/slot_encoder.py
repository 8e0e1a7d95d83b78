"""Slot encoder: learned queries read the tokens of one time step into slots."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from slotbench.nn.attention import SelfCrossLayer, mean_over_heads
from slotbench.nn.linear import xavier_linear
from slotbench.nn.parameters import without_decay

__all__ = ["SlotEncoder"]


class SlotEncoder(nn.Module):
    """Learned queries, one per slot and the same at every time step, read a set of tokens through self-cross layers.

    The queries start as distinct normal vectors: equal rows would stay equal for ever, since nothing else tells slots
    apart. No positions are added, so the order of the tokens does not matter.

    Source: SlotSSM, Eq 6-8 and 18-22, Appendix C.1 (three layers).

    Args:
        context_dim: width of a token.
        num_slots: learned queries.
        dim: width of a slot.
        num_layers: self-cross layers, at least one.
        num_heads: heads of every attention.
        mlp_ratio: hidden width of the MLPs in units of `dim`.
    """

    def __init__(
        self, context_dim: int, num_slots: int, dim: int, num_layers: int = 3, num_heads: int = 4, mlp_ratio: int = 4
    ):
        super().__init__()
        if num_slots < 1 or num_layers < 1:
            raise ValueError(f"a slot encoder needs at least 1 slot and 1 layer, got {num_slots=} and {num_layers=}")
        self.queries = without_decay(nn.Parameter(torch.randn(num_slots, dim)))
        self.layers = nn.ModuleList(SelfCrossLayer(dim, context_dim, num_heads, mlp_ratio) for _ in range(num_layers))
        self.output = xavier_linear(dim, dim)

    def forward(
        self, tokens: Float[Tensor, "*batch tokens context_dim"]
    ) -> tuple[Float[Tensor, "*batch slots dim"], Float[Tensor, "*batch slots tokens"]]:
        """(slots, the last layer's cross-attention averaged over heads, which sums to 1 over the tokens).

        No information crosses the leading axes, such as time.
        """
        batch, tokens = tokens.shape[:-2], tokens.flatten(0, -3)
        slots = self.queries[None]
        for layer in self.layers:
            slots, weights = layer(slots, tokens)
        return self.output(slots).unflatten(0, batch), mean_over_heads(weights).unflatten(0, batch)
