"""Multi-head attention for the short sequences of slot models: a few slots, a few dozen tokens.

Projections that share an input are one matrix product, and the weights are computed explicitly: at these sizes that is
as fast as the fused kernel, and slot models report the weights. Long self-attention, whose weights are not needed,
goes through `scaled_dot_product_attention`, which never stores them.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from slotbench.nn.linear import MLP, xavier_linear

__all__ = ["CrossAttention", "SelfAttention", "SelfCrossLayer", "SlotAttentionMixer", "SlotMixer"]

LONG_SEQUENCE = 48
"""From this many keys on the fused kernel is at least as fast as explicit weights, and it saves memory."""

FEW_QUERIES_TOKENS = 16
"""From this many tokens on a few queries are faster without keys and values; below, many small products cost more."""


def check_heads(dim: int, num_heads: int) -> None:
    """Raises ValueError unless `dim` splits evenly into `num_heads`."""
    if num_heads < 1 or dim % num_heads:
        raise ValueError(
            f"dim={dim} does not split into num_heads={num_heads}: choose a number of heads that divides dim"
        )


def split_heads(x: Float[Tensor, "batch tokens dim"], num_heads: int) -> Float[Tensor, "batch heads tokens head_dim"]:
    """Views the last axis as heads and moves them before the tokens."""
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def merge_heads(x: Float[Tensor, "batch heads tokens head_dim"]) -> Float[Tensor, "batch tokens dim"]:
    """Undoes `split_heads`."""
    return x.transpose(1, 2).flatten(-2)


class SelfAttention(nn.Module):
    """Every element of a set attends to the whole set.

    There is neither mask nor position, so permuting the set permutes the output.

    Args:
        dim: width of an element.
        num_heads: heads, which must divide `dim`.
    """

    def __init__(self, dim: int, num_heads: int = 4):
        super().__init__()
        check_heads(dim, num_heads)
        self.num_heads = num_heads
        self.query_key_value = xavier_linear(dim, dim, maps=3)
        self.output = xavier_linear(dim, dim)

    def forward(self, x: Float[Tensor, "batch tokens dim"]) -> Float[Tensor, "batch tokens dim"]:
        """Softmax over the keys of q k / sqrt(head width), then the weighted mean of the values."""
        query, key, value = (split_heads(part, self.num_heads) for part in self.query_key_value(x).chunk(3, dim=-1))
        if x.shape[1] >= LONG_SEQUENCE:
            attended = nn.functional.scaled_dot_product_attention(query, key, value)
        else:
            weights = (query * query.shape[-1] ** -0.5 @ key.mT).softmax(dim=-1)
            attended = weights @ value
        return self.output(merge_heads(attended))


class CrossAttention(nn.Module):
    """Queries attend to the elements of a context.

    Where all items of the batch ask the same queries, give them once, with a leading axis of one.

    Args:
        dim: width of a query and of the output.
        context_dim: width of a context element; `dim` if None.
        num_heads: heads, which must divide `dim`.
    """

    def __init__(self, dim: int, context_dim: int | None = None, num_heads: int = 4):
        super().__init__()
        check_heads(dim, num_heads)
        self.num_heads = num_heads
        self.query = xavier_linear(dim, dim)
        self.key_value = xavier_linear(dim if context_dim is None else context_dim, dim, maps=2)
        self.output = xavier_linear(dim, dim)

    def forward(
        self,
        queries: Float[Tensor, "#batch queries dim"],
        context: Float[Tensor, "batch tokens context_dim"],
        gain: float = 1.0,
    ) -> tuple[Float[Tensor, "batch queries dim"], Float[Tensor, "batch heads queries tokens"]]:
        """(output, weights); the weights of a query sum to 1 over the tokens, a softmax of logits times `gain`."""
        query = split_heads(self.query(queries), self.num_heads)
        query = query * (gain * query.shape[-1] ** -0.5)
        few = self.num_heads * queries.shape[1] < self.output.in_features and context.shape[1] >= FEW_QUERIES_TOKENS
        mixed, weights = (self.few_queries if few else self.reference)(query, context)
        return self.output(merge_heads(mixed)), weights

    def reference(
        self, query: Float[Tensor, "#batch heads queries head_dim"], context: Float[Tensor, "batch tokens context_dim"]
    ) -> tuple[Float[Tensor, "batch heads queries head_dim"], Float[Tensor, "batch heads queries tokens"]]:
        """(mean value of every query and head, weights), from a key and a value of every token: the definition."""
        key, value = (split_heads(part, self.num_heads) for part in self.key_value(context).chunk(2, dim=-1))
        weights = (query @ key.mT).softmax(dim=-1)
        return weights.to(value.dtype) @ value, weights

    def few_queries(
        self, query: Float[Tensor, "#batch heads queries head_dim"], context: Float[Tensor, "batch tokens context_dim"]
    ) -> tuple[Float[Tensor, "batch heads queries head_dim"], Float[Tensor, "batch heads queries tokens"]]:
        """The same without keys and values: queries ask the tokens themselves, and what they read is mapped afterwards.

        q (W t + b) is (W' q) t plus a number that is the same for all tokens of a query, which the softmax removes; the
        mean of the values is the value of the mean token, since weights sum to 1. Two to three times as fast as
        `reference`, forwards and back, where heads times queries are well below the width and tokens are many.
        """
        to_key, to_value = (part.unflatten(0, (self.num_heads, -1)) for part in self.key_value.weight.chunk(2))
        asked = (query @ to_key).flatten(1, 2)
        # bmm, because matmul chooses its products by whether a gradient is wanted, and so rounds differently
        weights = torch.bmm(asked.expand(len(context), -1, -1), context.mT).softmax(dim=-1)
        read = (weights.to(context.dtype) @ context).unflatten(1, (self.num_heads, -1))
        bias = self.key_value.bias.chunk(2)[1].unflatten(0, (self.num_heads, 1, -1))
        # one product per head over the whole batch
        return torch.einsum("bhqc,hdc->bhqd", read, to_value) + bias, weights.unflatten(1, (self.num_heads, -1))


def mean_over_heads(weights: Float[Tensor, "batch heads queries tokens"]) -> Float[Tensor, "batch queries tokens"]:
    """One attention map per query."""
    return torch.mean(weights, dim=1)


class SelfCrossLayer(nn.Module):
    """Self-attention among queries, cross-attention to the context, and an MLP, each pre-norm with a residual.

    The layer of both the slot encoder (queries are slots, context is tokens) and the transformer decoder (queries are
    places in the image, context is slots).

    Source: SlotSSM, Eq 18-21 and 35-37; that the context is normalised too is our choice.

    Args:
        dim: width of a query.
        context_dim: width of a context element; `dim` if None.
        num_heads: heads of both attentions.
        mlp_ratio: hidden width of the MLP in units of `dim`.
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


class SlotAttentionMixer(nn.Module):
    """A slot mixer without its MLP: self-attention over a set of slots with a residual and a LayerNorm before it.

    Source: SlotSSM's public code, which has no MLP by default.

    Args:
        dim: width of a slot.
        num_heads: heads of the attention.
    """

    def __init__(self, dim: int, num_heads: int = 4):
        super().__init__()
        self.attention_norm = nn.LayerNorm(dim)
        self.attention = SelfAttention(dim, num_heads)

    def forward(self, slots: Float[Tensor, "batch slots dim"]) -> Float[Tensor, "batch slots dim"]:
        """Each set of slots on its own."""
        return slots + self.attention(self.attention_norm(slots))


class SlotMixer(SlotAttentionMixer):
    """Self-attention over a set of slots, then an MLP on each, both with a residual and a LayerNorm before it.

    There is neither mask nor position, so permuting the slots permutes the output.

    Source: SlotSSM, Eq 9-10; the width of the MLP is not given there.

    Args:
        dim: width of a slot.
        num_heads: heads of the attention.
        mlp_ratio: hidden width of the MLP in units of `dim`.
    """

    def __init__(self, dim: int, num_heads: int = 4, mlp_ratio: int = 4):
        super().__init__(dim, num_heads)
        self.mlp_norm = nn.LayerNorm(dim)
        self.mlp = MLP(dim, mlp_ratio * dim)

    def forward(self, slots: Float[Tensor, "batch slots dim"]) -> Float[Tensor, "batch slots dim"]:
        """Each set of slots on its own."""
        slots = super().forward(slots)
        return slots + self.mlp(self.mlp_norm(slots))
