"""Both paths of CrossAttention over tokens that a few shared queries read, forward plus backward."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from slotbench.bench.contest import Contest, Way
from slotbench.bench.subjects import Subject
from slotbench.nn.attention import CrossAttention, split_heads

__all__ = ["SUBJECT"]

SHAPES = [(1000, 5, 6, 64), (240, 64, 6, 64), (64, 256, 7, 128), (16, 1024, 11, 192)]
QUICK_SHAPES = [(8, 64, 6, 64), (2, 256, 7, 128)]
HEADS = 4
WITH_KEYS, WITHOUT = "keys and values", "without"


def contests(quick: bool) -> Iterator[Contest]:
    """One contest per (frames, tokens, slots, width)."""
    for shape in QUICK_SHAPES if quick else SHAPES:
        yield Contest.of_shape(shape, (2, 16, *shape[2:]), _ways, WITH_KEYS, memory=(WITH_KEYS, WITHOUT))


def _ways(shape: tuple[int, ...]) -> dict[str, Way]:
    frames, tokens, slots, width = shape
    torch.manual_seed(0)
    attention = CrossAttention(width, num_heads=HEADS)
    queries = torch.randn(1, slots, width, requires_grad=True)
    context = torch.randn(frames, tokens, width, requires_grad=True)
    gradient = torch.randn(frames, HEADS, slots, width // HEADS)

    def run(path: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> tuple[Tensor, ...]:
        read, _ = path(split_heads(queries, HEADS), context)
        inputs = [queries, context, attention.key_value.weight, attention.key_value.bias]
        *gradients, bias = torch.autograd.grad(read, inputs, gradient)
        # the half that belongs to the keys moves nothing
        return read, *gradients, bias.chunk(2)[1]

    return {WITH_KEYS: lambda: run(attention.reference), WITHOUT: lambda: run(attention.few_queries)}


SUBJECT = Subject(
    f"cross-attention of a few shared queries, forward + backward, float32, {HEADS} heads",
    "frames, tokens, slots, width",
    contests,
)
