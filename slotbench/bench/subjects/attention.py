"""Attention over time and of slots to tokens: the fast ways against those with every weight written out."""

from __future__ import annotations

from collections.abc import Callable

import torch
from einops import rearrange
from torch import Tensor

from slotbench.bench.subjects import Subject, by_shape
from slotbench.bench.timing import Contest, Way
from slotbench.nn.attention import CrossAttention, split_heads
from slotbench.nn.temporal_attention import TemporalAttention

__all__ = ["SUBJECTS"]

HEADS, TEMPORAL_DIM = 4, 64
WRITTEN_OUT, OURS = "written out", "TemporalAttention"
WITH_KEYS, WITHOUT = "keys and values", "without"


def _temporal(quick: bool) -> list[Contest]:
    """One contest per (batch, steps, slots)."""
    shapes = [(2, 20, 6), (2, 80, 6)] if quick else [(6, 80, 6), (6, 320, 6)]
    memory = (WRITTEN_OUT, OURS)
    return by_shape(shapes, _temporal_ways, WRITTEN_OUT, lambda shape: (2, 4, shape[2]), memory=memory)


def _temporal_ways(shape: tuple[int, ...]) -> dict[str, Way]:
    torch.manual_seed(0)
    attention = TemporalAttention(TEMPORAL_DIM, HEADS)
    x, gradient = torch.randn(*shape, TEMPORAL_DIM, requires_grad=True), torch.randn(*shape, TEMPORAL_DIM)

    def both_passes(attended: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(attended, [x, *attention.parameters()], gradient)

    return {
        WRITTEN_OUT: lambda: both_passes(_written_out(attention, x)),
        OURS: lambda: both_passes(attention(x)[0]),
    }


def _written_out(attention: TemporalAttention, x: Tensor) -> Tensor:
    """The weights of all pairs of tokens, under one mask of (steps * slots)^2."""
    steps, slots = x.shape[1:3]
    pattern = "batch time slots (part heads dim) -> part batch heads (time slots) dim"
    query, key, value = rearrange(attention.query_key_value(x), pattern, part=3, heads=HEADS)
    step = torch.arange(steps).repeat_interleave(slots)
    logits = (query * query.shape[-1] ** -0.5 @ key.mT).masked_fill(step[None, :] > step[:, None], -torch.inf)
    pattern = "batch heads (time slots) dim -> batch time slots (heads dim)"
    joined: Tensor = attention.output(rearrange(logits.softmax(dim=-1) @ value, pattern, slots=slots))
    return joined


def _cross(quick: bool) -> list[Contest]:
    """One contest per (frames, tokens, slots, width); a few shared queries read the tokens."""
    full = [(1000, 5, 6, 64), (240, 64, 6, 64), (64, 256, 7, 128), (16, 1024, 11, 192)]
    shapes, memory = [(8, 64, 6, 64), (2, 256, 7, 128)] if quick else full, (WITH_KEYS, WITHOUT)
    return by_shape(shapes, _cross_ways, WITH_KEYS, lambda shape: (2, 16, *shape[2:]), memory=memory)


def _cross_ways(shape: tuple[int, ...]) -> dict[str, Way]:
    frames, tokens, slots, width = shape
    torch.manual_seed(0)
    attention = CrossAttention(width, num_heads=HEADS)
    queries = torch.randn(1, slots, width, requires_grad=True)
    context = torch.randn(frames, tokens, width, requires_grad=True)
    gradient = torch.randn(frames, HEADS, slots, width // HEADS)

    def both_passes(path: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> tuple[Tensor, ...]:
        read, _ = path(split_heads(queries, HEADS), context)
        inputs = [queries, context, attention.key_value.weight, attention.key_value.bias]
        *gradients, bias = torch.autograd.grad(read, inputs, gradient)
        # the keys' half of the bias has no gradient
        return read, *gradients, bias.chunk(2)[1]

    return {
        WITH_KEYS: lambda: both_passes(attention.reference),
        WITHOUT: lambda: both_passes(attention.few_queries),
    }


SUBJECTS = {
    "temporal_attention": Subject(
        f"block-causal attention, forward + backward, float32, width {TEMPORAL_DIM}, {HEADS} heads",
        "batch, steps, slots",
        _temporal,
    ),
    "cross_attention": Subject(
        f"cross-attention of a few shared queries, forward + backward, float32, {HEADS} heads",
        "frames, tokens, slots, width",
        _cross,
    ),
}
