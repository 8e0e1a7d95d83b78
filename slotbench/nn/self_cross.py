"""The layer that reads a set of tokens into a set of queries: self-attention, cross-attention, MLP."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from slotbench.nn.attention import CrossAttention, SelfAttention
from slotbench.nn.mlp import MLP

__all__ = ["SelfCrossLayer"]


class SelfCrossLayer(nn.Module):
    """Queries talk to each other, then look at the context, then think; each with a residual and a LayerNorm before it.

    The layer of both the slot encoder (queries are slots, context is tokens) and the transformer decoder (queries are
    places in the picture, context is slots).

    Source: SlotSSM, Eq 18-21 and 35-37; that the context is normalised too is our choice.

    Args:
        dim: width of a query.
        context_dim: width of a context element; `dim` if None.
        num_heads: heads of both attentions.
        mlp_ratio: hidden width of the MLP in units of `dim`.

    Raises:
        ValueError: `num_heads` does not divide `dim`.
    """

    def __init__(self, dim: int, context_dim: int | None = None, num_heads: int = 4, mlp_ratio: int = 4):
        super().__init__()
        self.self_norm = nn.LayerNorm(dim)
        self.self_attention = SelfAttention(dim, num_heads)
        self.query_norm = nn.LayerNorm(dim)
        self.context_norm = nn.LayerNorm(dim if context_dim is None else context_dim)
        self.cross_attention = CrossAttention(dim, context_dim, num_heads)
        self.mlp_norm = nn.LayerNorm(dim)
        self.mlp = MLP(dim, mlp_ratio * dim)

    def forward(
        self, queries: Float[Tensor, "#batch queries dim"], context: Float[Tensor, "batch tokens context_dim"]
    ) -> tuple[Float[Tensor, "batch queries dim"], Float[Tensor, "batch heads queries tokens"]]:
        """(queries, cross-attention weights).

        Learned queries that are the same for the whole batch come with a leading axis of one: their self-attention is
        then computed once, and the cross-attention spreads them over the batch.
        """
        queries = queries + self.self_attention(self.self_norm(queries))
        read, weights = self.cross_attention(self.query_norm(queries), self.context_norm(context))
        queries = queries + read
        return queries + self.mlp(self.mlp_norm(queries)), weights
