"""The reference of inverted attention, for every aggregation: keys, values and all weights."""

from __future__ import annotations

from functools import partial

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from slotbench.interfaces import Aggregation, StagedAggregation, sums_suffice
from slotbench.ops.inverted_attention.competition import Competition
from slotbench.ops.inverted_attention.memory import KeyValueMemory

__all__ = ["inverted_attention_reference"]

WEIGHTS_AT_ONCE = 2**22
"""Attention weights that are held at a time (16 MiB in single precision); steps that need more go in chunks."""


def inverted_attention_reference(
    query: Float[Tensor, "batch heads time slots dim"],
    memory: KeyValueMemory,
    aggregation: Aggregation,
    time_bias: Float[Tensor, "heads time steps"] | None,
    competition: Competition,
) -> tuple[Float[Tensor, "batch heads time slots dim"], Float[Tensor, "batch time slots tokens"]]:
    """(what the aggregation gathers, share of each slot in each token of its own step).

    Steps of slots go in chunks that hold at most `WEIGHTS_AT_ONCE` weights. The backward pass computes the weights of a
    chunk again where there is more than one; the result is the same.

    Args:
        query: scaled.
        memory: keys and values.
        aggregation: turns (assignment, values) into updates; only `gather` is called of a `StagedAggregation`.
        time_bias: added to the logits of a head by steps of slots and of tokens; None for nothing.
        competition: who competes for what.
    """
    batch, heads, time, num_slots, _ = query.shape
    steps, num_tokens = memory.size
    reach = steps if competition.window is None else min(steps, competition.window)
    at_once = max(1, WEIGHTS_AT_ONCE // max(1, batch * heads * num_slots * reach * num_tokens))
    recompute = at_once < time and torch.is_grad_enabled()
    parts, own = [], []
    for begin in range(0, time, at_once):
        readers = slice(begin, min(begin + at_once, time))
        first = max(0, competition.past + begin - reach + 1) if competition.causal else 0
        seen = slice(first, competition.past + readers.stop if competition.causal else steps)
        attend = partial(_attend, aggregation, competition, readers, seen)
        arguments = (
            _steps_of(query, readers),
            _steps_of(memory.key, seen),
            _steps_of(memory.value, seen),
            None if time_bias is None else time_bias[:, readers, seen],
            competition.num_visible(readers, memory.size, query),
        )
        if recompute:
            gathered, shares = checkpoint(attend, *arguments, use_reentrant=False, preserve_rng_state=False)
        else:
            gathered, shares = attend(*arguments)
        parts.append(gathered)
        own.append(shares)
    if len(parts) == 1:
        return parts[0], own[0]
    return torch.cat(parts, dim=2), torch.cat(own, dim=1)


def _attend(
    aggregation: Aggregation,
    competition: Competition,
    readers: slice,
    seen: slice,
    query: Float[Tensor, "batch heads time slots dim"],
    key: Float[Tensor, "batch heads steps tokens dim"],
    value: Float[Tensor, "batch heads steps tokens dim"],
    time_bias: Float[Tensor, "heads time steps"] | None,
    count: Float[Tensor, "1 1 #time 1 1"],
) -> tuple[Tensor, Tensor]:
    """The equation, for the steps `readers` of slots and the steps `seen` of tokens that they may read."""
    heads, time, num_slots = query.shape[1:4]
    steps, num_tokens = key.shape[2:4]
    logits = query.flatten(2, 3) @ key.flatten(2, 3).mT
    logits = logits.unflatten(3, (steps, num_tokens)).unflatten(2, (time, num_slots))
    if time_bias is not None:
        logits = logits + rearrange(time_bias.to(logits.dtype), "heads time steps -> heads time 1 steps 1")
    if competition.across_heads and heads > 1:
        pattern = "batch time (heads slots) steps tokens"
        together = rearrange(logits, f"batch heads time slots steps tokens -> {pattern}").softmax(dim=2)
        assignment = rearrange(together, f"{pattern} -> batch heads time slots steps tokens", heads=heads)
    else:
        assignment = logits.softmax(dim=3)
    hidden = competition.hidden(seen, readers, query.device)
    if hidden is not None:
        assignment = assignment.masked_fill(hidden[:, None, :, None], 0.0)
    gathered = _gather(aggregation, assignment.flatten(-2), value.flatten(2, 3)[:, :, None], count)
    own = torch.diagonal(assignment, competition.past + readers.start - seen.start, dim1=2, dim2=4)
    own = own.sum(dim=1) if competition.across_heads else own.mean(dim=1)
    return gathered, rearrange(own, "batch slots tokens time -> batch time slots tokens")


def _gather(aggregation: Aggregation, assignment: Tensor, values: Tensor, count: Tensor) -> Tensor:
    if sums_suffice(aggregation):
        return aggregation.from_sums(aggregation.sums(assignment, values, count))
    if isinstance(aggregation, StagedAggregation):
        return aggregation.gather(assignment, values)
    return aggregation(assignment, values)


def _steps_of(x: Tensor, steps: slice) -> Tensor:
    """Steps of "batch heads time ..."; x itself, which has no gradient to be filled up, where they are all."""
    return x if steps.stop - steps.start == x.shape[2] else x[:, :, steps]
