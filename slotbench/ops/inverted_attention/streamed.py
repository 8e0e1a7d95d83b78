"""What slots win of tokens, summed chunk by chunk: no weight outlives its chunk, in either pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from slotbench.interfaces import SummedAggregation, TokenSums
from slotbench.ops.inverted_attention.competition import Competition
from slotbench.ops.inverted_attention.memory import AttentionMaps, StepSums, TokenMemory

__all__ = ["streamed_attention", "streamed_steps", "streamed_sums"]

WEIGHTS_AT_ONCE = {"cpu": 2**17, "cuda": 2**24}
"""Attention weights of a chunk by kind of device: on a CPU they and their tokens fit into its cache."""

FEWEST_TOKENS = 64
"""Tokens that a chunk has at least, however many slots read them: fewer make a matrix product slow."""


class _Chunk(NamedTuple):
    """Tokens `low` to `high` of some steps, and the steps of slots that read them."""

    steps: slice
    tokens: slice
    readers: slice

    @property
    def width(self) -> int:
        """Tokens of a step."""
        return int(self.tokens.stop - self.tokens.start)

    def of_tokens(self, x: Tensor) -> Tensor:
        """Of "batch steps tokens dim", in a row."""
        return x[:, self.steps, self.tokens].flatten(1, 2)


def streamed_attention(
    query: Float[Tensor, "batch heads time slots dim"],
    memory: TokenMemory,
    maps: AttentionMaps,
    aggregation: SummedAggregation,
    time_bias: Float[Tensor, "heads time steps"] | None,
    competition: Competition,
    shares: bool,
) -> tuple[Float[Tensor, "batch heads time slots dim"], Float[Tensor, "batch time slots tokens"] | None]:
    """(what the aggregation gathers, share of each slot in each token of its own step), without keys and values."""
    folded, query_bias = _fold(query, memory, maps)
    with torch.autocast(query.device.type, enabled=False):
        values, mass, own = streamed_sums(
            folded, query_bias, memory.tokens, time_bias, competition, aggregation.share_offset, shares
        )
    count = competition.num_visible(slice(0, query.shape[2]), memory.size, mass)
    return aggregation.from_sums(_unfold(values, mass, count, memory, maps)), own


def streamed_steps(
    query: Float[Tensor, "batch heads 1 slots dim"],
    memory: TokenMemory,
    maps: AttentionMaps,
    aggregation: SummedAggregation,
    earlier: StepSums | None,
    window: int | None,
    shares: bool,
) -> tuple[Float[Tensor, "batch heads time slots dim"], Float[Tensor, "batch time slots tokens"] | None, StepSums]:
    """The same for queries that all steps share, each step read once; and what the next call needs of these steps."""
    batch, (steps, num_tokens) = query.shape[0], memory.size
    folded, query_bias = (
        x.expand(-1, steps, -1, -1, -1).reshape(batch * steps, 1, *x.shape[2:]) for x in _fold(query, memory, maps)
    )
    competition, frames = Competition(maps.across_heads), memory.tokens.flatten(0, 1)[:, None]
    with torch.autocast(query.device.type, enabled=False):
        values, mass, own = streamed_sums(
            folded, query_bias, frames, None, competition, aggregation.share_offset, shares
        )
    values, mass = (x.unflatten(0, (batch, steps))[:, :, 0] for x in (values, mass))
    count = mass.new_full((batch, steps, 1, 1, 1), num_tokens)
    seen, kept = StepSums(values, mass, count).so_far(earlier, window)
    gathered = aggregation.from_sums(_unfold(seen.values, seen.mass, seen.num_tokens.transpose(1, 2), memory, maps))
    return gathered, None if own is None else own.view(batch, steps, *own.shape[2:]), kept


def _maps_of_heads(
    maps: AttentionMaps, dtype: torch.dtype
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor | None, Tensor | None]]:
    """Weights "heads head_dim token_dim" and biases "heads head_dim" of keys and of values."""
    key, value = maps.key_value.weight.to(dtype).view(2, maps.num_heads, -1, maps.key_value.in_features)
    if maps.key_value.bias is None:
        return (key, value), (None, None)
    key_bias, value_bias = maps.key_value.bias.to(dtype).view(2, maps.num_heads, -1)
    return (key, value), (key_bias, value_bias)


def _fold(query: Tensor, memory: TokenMemory, maps: AttentionMaps) -> tuple[Tensor, Tensor]:
    """What tokens are multiplied with, and what is added, to be the logits; both "batch time heads slots dim".

    What the bias of the keys adds is the same for all tokens, but not for all slots, which compete.
    """
    dtype = torch.promote_types(memory.tokens.dtype, torch.float32)
    with torch.autocast(query.device.type, enabled=False):
        query = query.to(dtype)
        (weight, _), (bias, _) = _maps_of_heads(maps, dtype)
        folded = torch.einsum("bhtnd,hde->bthne", query, weight)
        added = None if bias is None else torch.einsum("bhtnd,hd->bthn", query, bias)[..., None]
        if memory.norm is not None:
            shift = folded @ memory.norm.bias.to(dtype)[:, None]
            added = shift if added is None else added + shift
            folded = folded * memory.norm.weight.to(dtype)
        return folded, folded.new_zeros(*folded.shape[:-1], 1) if added is None else added


def _unfold(values: Tensor, mass: Tensor, count: Tensor, memory: TokenMemory, maps: AttentionMaps) -> TokenSums:
    """Sums of values from sums of tokens "batch time heads slots token_dim"."""
    with torch.autocast(values.device.type, enabled=False):
        (_, weight), (_, bias) = _maps_of_heads(maps, values.dtype)
        if memory.norm is not None:
            values = values * memory.norm.weight.to(values.dtype) + mass * memory.norm.bias.to(values.dtype)
        values = torch.einsum("bthne,hde->bhtnd", values, weight)
        mass = mass.transpose(1, 2)
        if bias is not None:
            values = values + mass * bias[:, None, None]
        return TokenSums(values, mass, count)


def streamed_sums(
    query: Float[Tensor, "batch time heads slots dim"],
    query_bias: Float[Tensor, "batch time heads slots 1"],
    tokens: Float[Tensor, "batch steps tokens dim"],
    time_bias: Float[Tensor, "heads time steps"] | None,
    competition: Competition,
    share_offset: float = 0.0,
    shares: bool = True,
) -> tuple[
    Float[Tensor, "batch time heads slots dim"],
    Float[Tensor, "batch time heads slots 1"],
    Float[Tensor, "batch time slots tokens"] | None,
]:
    """(sum of the tokens by share, sum of the shares, share of each slot in each token of its own step).

    The softmax runs over the slots, so that it needs the logits of a token and of no other: tokens go in chunks. The
    backward pass computes the weights of a chunk anew, which costs one matrix product more than keeping them. It has no
    derivative of its own.

    Args:
        query: what the tokens are multiplied with, scaled.
        query_bias: added to all logits of a query.
        tokens: keys and values at once, of all heads; may be of half precision, where the sums are of single.
        time_bias: added to the logits of a head by steps of slots and of tokens; None for nothing.
        competition: who competes for what.
        share_offset: added to the share of each visible token.
        shares: whether to return the shares.
    """
    return _StreamedSums.apply(query, query_bias, tokens, time_bias, competition, share_offset, shares)


def _chunks(query: Tensor, tokens: Tensor, competition: Competition) -> Iterator[_Chunk]:
    batch, time, heads, slots, _ = query.shape
    steps, num_tokens = tokens.shape[1:3]
    at_once = WEIGHTS_AT_ONCE["cpu" if query.device.type == "cpu" else "cuda"]
    begin = competition.unseen
    while batch and begin < steps:
        first, last = competition.readers(begin, begin + 1, time)
        rows = batch * heads * slots * (last - first)
        end = min(steps, begin + max(1, at_once // (rows * num_tokens)))
        readers = slice(*competition.readers(begin, end, time))
        width = num_tokens if end - begin > 1 else max(FEWEST_TOKENS, at_once // rows)
        for low in range(0, num_tokens, width):
            yield _Chunk(slice(begin, end), slice(low, min(low + width, num_tokens)), readers)
        begin = end


class _StreamedSums(torch.autograd.Function):
    """`streamed_sums`; tensors of slots and heads are rows "batch time (heads slots) dim" in here."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        query_bias: Tensor,
        tokens: Tensor,
        time_bias: Tensor | None,
        competition: Competition,
        share_offset: float,
        shares: bool,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        ctx.set_materialize_grads(False)
        query, query_bias = query.contiguous(), query_bias.contiguous()
        ctx.save_for_backward(query, query_bias, tokens, time_bias)
        ctx.settings = competition, share_offset
        batch, time, heads, slots, _ = query.shape
        rows, bias = query.flatten(2, 3), query_bias.flatten(2, 3)
        values, mass = torch.zeros_like(rows), torch.zeros_like(bias)
        own = query.new_empty(batch, time, slots, tokens.shape[2]) if shares else None
        for chunk in _chunks(query, tokens, competition):
            keys = chunk.of_tokens(tokens).to(query.dtype)
            logits = torch.baddbmm(
                bias[:, chunk.readers].flatten(1, 2), rows[:, chunk.readers].flatten(1, 2), keys.mT
            ).view(batch, -1, 1, heads, slots, keys.shape[1])
            weights = _shares(logits, time_bias, chunk, competition)
            hidden = competition.hidden(chunk.steps, chunk.readers, query.device)
            _hide(weights, hidden, chunk)
            if own is not None:
                steps, share = _own(weights, chunk, competition)
                over_heads = share.sum(dim=1) if competition.across_heads else share.mean(dim=1)
                own[:, steps, :, chunk.tokens] = over_heads.permute(0, 3, 1, 2)
            if share_offset:
                weights += share_offset
                _hide(weights, hidden, chunk)
            weights = weights.view(batch, -1, keys.shape[1])
            values[:, chunk.readers].flatten(1, 2).baddbmm_(weights, keys)
            mass[:, chunk.readers].flatten(1, 2).add_(weights.sum(dim=-1, keepdim=True))
        return values.view_as(query), mass.view_as(query_bias), own

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_values: Tensor | None, d_mass: Tensor | None, d_own: Tensor | None) -> Any:
        saved = ctx.saved_tensors  # which checkpointing hands out only once
        # as the forward pass does, where someone calls `backward` inside of autocast
        with torch.autocast(saved[0].device.type, enabled=False):
            return _StreamedSums._gradients(ctx, saved, d_values, d_mass, d_own)

    @staticmethod
    def _gradients(
        ctx: Any, saved: Sequence[Any], d_values: Tensor | None, d_mass: Tensor | None, d_own: Tensor | None
    ) -> Any:
        query, query_bias, tokens, time_bias = saved
        competition, share_offset = ctx.settings
        batch, _, heads, slots, _ = query.shape
        d_values = torch.zeros_like(query) if d_values is None else d_values
        d_mass = torch.zeros_like(query_bias) if d_mass is None else d_mass
        # what multiplies the tokens in the two passes, side by side, so that each takes one matrix product
        pairs = torch.stack([query.flatten(2, 3), d_values.flatten(2, 3)], dim=2)
        pair_bias = torch.stack([query_bias.flatten(2, 3), d_mass.flatten(2, 3)], dim=2)
        d_query, d_bias = torch.zeros_like(query).flatten(2, 3), torch.zeros_like(query_bias).flatten(2, 3)
        d_tokens = torch.empty_like(tokens) if ctx.needs_input_grad[2] else None
        d_time_bias = None if time_bias is None else torch.zeros_like(time_bias)
        if d_tokens is not None:
            d_tokens[:, : competition.unseen] = 0
        for chunk in _chunks(query, tokens, competition):
            keys = chunk.of_tokens(tokens).to(query.dtype)
            multiplied = pairs[:, chunk.readers].flatten(1, 3)
            both = torch.baddbmm(pair_bias[:, chunk.readers].flatten(1, 3), multiplied, keys.mT)
            both = both.view(batch, -1, 2, heads, slots, keys.shape[1])
            weights, d_weights = _shares(both[:, :, :1], time_bias, chunk, competition), both[:, :, 1:]
            if d_own is not None:
                steps, share = _own(d_weights, chunk, competition)
                over_heads = d_own[:, steps, :, chunk.tokens].permute(0, 2, 3, 1)[:, None]
                share.add_(over_heads, alpha=1 if competition.across_heads else 1 / heads)
            hidden = competition.hidden(chunk.steps, chunk.readers, query.device)
            _hide(weights, hidden, chunk)
            d_logits = weights * d_weights
            among = (3, 4) if competition.across_heads else 4
            d_logits.addcmul_(weights, d_logits.sum(dim=among, keepdim=True), value=-1)
            both[:, :, :1] = d_logits
            if share_offset:
                weights += share_offset
                _hide(weights, hidden, chunk)
            both[:, :, 1:] = weights
            if d_tokens is not None:
                of_chunk = both.view(batch, -1, keys.shape[1]).mT @ multiplied
                target = d_tokens[:, chunk.steps, chunk.tokens]
                target.copy_(of_chunk.view(target.shape))
            d_logits = d_logits.view(batch, -1, keys.shape[1])
            d_query[:, chunk.readers].flatten(1, 2).baddbmm_(d_logits, keys)
            d_bias[:, chunk.readers].flatten(1, 2).add_(d_logits.sum(dim=-1, keepdim=True))
            if d_time_bias is not None:
                per_step = d_logits.view(batch, -1, heads, slots, d_time_bias[:, :, chunk.steps].shape[2], chunk.width)
                d_time_bias[:, chunk.readers, chunk.steps] += per_step.sum(dim=(0, 3, 5)).transpose(0, 1)
        return d_query.view_as(query), d_bias.view_as(query_bias), d_tokens, d_time_bias, None, None, None


def _shares(logits: Tensor, time_bias: Tensor | None, chunk: _Chunk, competition: Competition) -> Tensor:
    """Softmax over the slots of "batch time 1 heads slots tokens"; the tokens are those of all steps in a row."""
    if time_bias is not None:
        bias = time_bias[:, chunk.readers, chunk.steps].transpose(0, 1)
        logits = logits + bias.repeat_interleave(chunk.width, dim=-1)[:, None, :, None]
    if competition.across_heads:
        return logits.flatten(3, 4).softmax(dim=3).view_as(logits)
    return logits.softmax(dim=4)


def _hide(weights: Tensor, hidden: Tensor | None, chunk: _Chunk) -> None:
    """Sets what a step does not read to zero, in place."""
    if hidden is not None:
        weights.masked_fill_(hidden.repeat_interleave(chunk.width, dim=-1)[:, None, None, None], 0.0)


def _own(weights: Tensor, chunk: _Chunk, competition: Competition) -> tuple[slice, Tensor]:
    """(steps of slots, view of what they have of the tokens of that very step, "batch heads slots tokens steps")."""
    offset = chunk.readers.start + competition.past - chunk.steps.start
    by_step = weights[:, :, 0].unflatten(-1, (chunk.steps.stop - chunk.steps.start, -1))
    share = torch.diagonal(by_step, offset, dim1=1, dim2=4)
    first = chunk.readers.start + max(0, -offset)
    return slice(first, first + share.shape[-1]), share
