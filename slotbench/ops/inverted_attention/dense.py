"""Inverted attention of one head to single frames, with all weights: a few matrix products per iteration."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from slotbench.interfaces import SummedAggregation, TokenSums
from slotbench.ops.inverted_attention.memory import AttentionMaps, FrameMemory

__all__ = ["dense_attention", "dense_frames"]

LAUNCH_OVERHEAD_MACS = 2**18
"""Multiply-adds that take as long as the calls of one more map per iteration, forward and backward."""


def dense_frames(
    tokens: Float[Tensor, "batch time tokens token_dim"], maps: AttentionMaps, num_slots: int, num_iterations: int
) -> Iterator[FrameMemory]:
    """One memory per frame: keys and values, or the tokens alone where these cost less."""
    batch, _, num_tokens, token_dim = tokens.shape
    query = maps.query.weight.mT
    query = query * query.shape[1] ** -0.5
    value_map: Tensor | None = None
    if _tokens_cost_less(batch, num_tokens, num_slots, num_iterations, query.shape[0], token_dim):
        of_keys, of_values = maps.key_value.weight.chunk(2)
        query, value_map = query @ of_keys, of_values.mT
        values = tokens.unbind(1)
        keys = values
    else:
        keys, values = (part.unbind(1) for part in maps.key_value(tokens).chunk(2, dim=-1))
    count = tokens.new_full((1, 1, 1), num_tokens)
    # transposed once per frame: the gradients of its iterations are summed before they are transposed back
    return (FrameMemory(key.mT, value, count, query, value_map) for key, value in zip(keys, values, strict=True))


def _tokens_cost_less(
    batch: int, num_tokens: int, num_slots: int, num_iterations: int, dim: int, token_dim: int
) -> bool:
    """Whether slots had better be compared with the tokens of a frame than with keys of them, by the multiply-adds.

    Keys and values are two maps of every token. Without them slots have the width of tokens, and every iteration maps
    its sums, which also costs calls: those count where all else is small.
    """
    queries = num_slots * num_iterations
    of_keys = 2 * num_tokens * dim * (token_dim + queries)
    of_tokens = 2 * num_tokens * token_dim * queries + queries * token_dim * dim
    return batch * of_tokens + num_iterations * LAUNCH_OVERHEAD_MACS < batch * of_keys


def dense_attention(
    slots: Float[Tensor, "batch slots dim"], frame: FrameMemory, aggregation: SummedAggregation
) -> tuple[Float[Tensor, "batch slots dim"], Float[Tensor, "batch slots tokens"]]:
    """(what the aggregation gathers, share of each slot in each token)."""
    # "rows dim", the slots of all clips in a row: products of two matrices take the fewest calls
    batch, num_slots, dim = slots.shape
    query = torch.mm(slots.reshape(-1, dim), frame.query_map).view(batch, num_slots, frame.query_map.shape[1])
    shares = torch.bmm(query, frame.key).softmax(dim=1)
    offset = aggregation.share_offset
    weights = shares + offset if offset else shares
    sums = torch.bmm(weights, frame.value)
    if frame.value_map is not None:
        sums = torch.mm(sums.flatten(0, 1), frame.value_map).view(batch, num_slots, -1)
    return aggregation.from_sums(TokenSums(sums, weights.sum(dim=-1, keepdim=True), frame.num_tokens)), shares
