"""Attention over time, of slots to tokens and of slots that compete: the fast ways against the plain ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.autograd import grad

from slotbench.bench.contests import Contest, Way, by_shape
from slotbench.interfaces import TokenSpec
from slotbench.nn.attention import CrossAttention, split_heads
from slotbench.nn.inverted_attention import InvertedAttention
from slotbench.nn.slot_attention import SlotCorrector
from slotbench.nn.temporal_attention import TemporalAttention
from slotbench.ops.inverted_attention import TokenMemory
from slotbench.registry import load

HEADS = 4


def temporal_attention(quick: bool) -> list[Contest]:
    """TemporalAttention of width 64, 4 heads, forward and backward, against all weights under one mask."""
    shapes = [(2, 20, 6), (2, 80, 6)] if quick else [(6, 80, 6), (6, 320, 6)]
    ways = ("written out", "TemporalAttention")
    return by_shape(shapes, _temporal_ways, ways[0], lambda batch, steps, slots: (2, 4, slots), memory=ways)


def _temporal_ways(batch: int, steps: int, slots: int) -> dict[str, Way]:
    torch.manual_seed(0)
    attention = TemporalAttention(64, HEADS)
    x, outer = torch.randn(batch, steps, slots, 64, requires_grad=True), torch.randn(batch, steps, slots, 64)

    def both(attended: Tensor) -> tuple[Tensor, ...]:
        return grad(attended, [x, *attention.parameters()], outer)

    def written_out() -> Tensor:
        """The weights of all pairs of tokens, under one mask of (steps * slots)^2."""
        pattern = "batch time slots (part heads dim) -> part batch heads (time slots) dim"
        query, key, value = rearrange(attention.query_key_value(x), pattern, part=3, heads=HEADS)
        step = torch.arange(steps).repeat_interleave(slots)
        logits = (query * query.shape[-1] ** -0.5 @ key.mT).masked_fill(step[None, :] > step[:, None], -torch.inf)
        pattern = "batch heads (time slots) dim -> batch time slots (heads dim)"
        joined: Tensor = attention.output(rearrange(logits.softmax(dim=-1) @ value, pattern, slots=slots))
        return joined

    return {"written out": lambda: both(written_out()), "TemporalAttention": lambda: both(attention(x)[0])}


def cross_attention(quick: bool) -> list[Contest]:
    """A few shared queries read tokens with 4 heads, forward and backward."""
    full = [(1000, 5, 6, 64), (240, 64, 6, 64), (64, 256, 7, 128), (16, 1024, 11, 192)]
    shapes, ways = [(8, 64, 6, 64), (2, 256, 7, 128)] if quick else full, ("keys and values", "without")
    return by_shape(shapes, _cross_ways, ways[0], lambda *shape: (2, 16, *shape[2:]), memory=ways)


def _cross_ways(frames: int, tokens: int, slots: int, width: int) -> dict[str, Way]:
    torch.manual_seed(0)
    attention = CrossAttention(width, num_heads=HEADS)
    queries = torch.randn(1, slots, width, requires_grad=True)
    context = torch.randn(frames, tokens, width, requires_grad=True)
    outer = torch.randn(frames, HEADS, slots, width // HEADS)

    def both(path: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> tuple[Tensor, ...]:
        read, _ = path(split_heads(queries, HEADS), context)
        return grad(read, [queries, context, attention.key_value.weight, attention.key_value.bias], outer)

    return {"keys and values": partial(both, attention.reference), "without": partial(both, attention.few_queries)}


# --- inverted attention

DIM, SLOTS, LAYERS, ITERATIONS = 192, 11, 3, 3
KERNELS = ("reference", "auto", "streamed")


def inverted_attention(quick: bool) -> Iterator[Contest]:
    """One contest per work and (batch, steps, tokens), and one per length of what can be summed over time.

    The corrector has 3 iterations, PSB 3 layers. Except by `reference`, PSB's first layer is summed over time. The
    gradient of the tokens is part of every memory.
    """
    for shape in [(1, 3, 64)] if quick else [(4, 6, 1024), (1, 6, 16384)]:
        for name, ways in (("layer", _layer), ("corrector", _corrector), ("PSB", _psb)):
            label, small = f"{name}, {', '.join(map(str, shape))}", partial(ways, 1, 2, 8)
            yield Contest(label, partial(ways, *shape), "reference", KERNELS, small, group="ways")
    for length in [10, 20] if quick else [40, 80, 160, 320, 640]:
        ways, base = partial(_first_layer, length), "each step's own competition"
        yield Contest(f"first layer, 1, {length}, 64", ways, base, size=float(length), group="against length")


def _attention() -> InvertedAttention:
    return InvertedAttention(DIM, aggregation=load("aggregations", "WeightedMean")(DIM), bias=False)


def _inputs(*shape: int) -> Tensor:
    return torch.randn(*shape, requires_grad=True)


def _by_each_kernel(module: nn.Module, outcome: Way, kernels: tuple[str, ...] = KERNELS) -> dict[str, Way]:
    """The gradients of the parameters and whatever `outcome` depends on, by kernel."""
    attentions = [part for part in module.modules() if isinstance(part, InvertedAttention)]

    def run(kernel: str) -> None:
        for attention in attentions:
            attention.kernel = kernel
        outcome().square().mean().backward()
        module.zero_grad()

    return {kernel: partial(run, kernel) for kernel in kernels}


def _layer(batch: int, time: int, num_tokens: int) -> dict[str, Way]:
    torch.manual_seed(0)
    attention, slots = _attention(), _inputs(batch, time, SLOTS, DIM)
    tokens = _inputs(batch, time, num_tokens, DIM)
    return _by_each_kernel(attention, lambda: attention(slots, tokens, causal=True).updates)


def _corrector(batch: int, time: int, num_tokens: int) -> dict[str, Way]:
    torch.manual_seed(0)
    corrector = SlotCorrector(DIM, aggregation=load("aggregations", "WeightedMean")(DIM))
    slots, tokens = _inputs(batch * time, SLOTS, DIM), _inputs(batch * time, num_tokens, DIM)
    return _by_each_kernel(corrector, lambda: corrector(slots, tokens, ITERATIONS).slots)


def _psb(batch: int, time: int, num_tokens: int) -> dict[str, Way]:
    torch.manual_seed(0)
    core: Any = load("cores", "PSB")(TokenSpec(DIM, num_tokens), SLOTS, DIM, LAYERS)
    tokens = _inputs(batch, time, num_tokens, DIM)
    return _by_each_kernel(core, lambda: core(tokens).slots)


def _first_layer(time: int) -> dict[str, Way]:
    torch.manual_seed(0)
    attention, slots, tokens = _attention(), _inputs(1, SLOTS, DIM), _inputs(1, time, 64, DIM)
    attention.kernel = "streamed"

    def run(updates: Tensor) -> tuple[Tensor, ...]:
        return grad(updates.square().mean(), [slots, tokens, *attention.parameters()])

    every = slots[:, None].expand(-1, time, -1, -1)
    return {
        "each step's own competition": lambda: run(
            attention(every, TokenMemory(tokens), causal=True, shares=False).updates
        ),
        "summed over time": lambda: run(attention.cumulative(slots, TokenMemory(tokens), shares=False)[0]),
    }


def slot_attention(quick: bool) -> list[Contest]:
    """SAVi's step on 4 random clips of 6 frames, 3 iterations each, by the kernel that its size chooses and by others.

    The core alone: forward and backward of the mean square of the slots.
    """
    return by_shape([(16, 16, 4), (256, 64, 9), (1024, 192, 11)][: 1 if quick else None], _savi_ways, "reference")


def _savi_ways(num_tokens: int, dim: int, num_slots: int) -> dict[str, Way]:
    torch.manual_seed(0)
    core: Any = load("cores", "SAVi")(TokenSpec(dim, num_tokens), num_slots, dim, num_iterations=3)
    tokens = torch.randn(4, 6, num_tokens, dim)
    return _by_each_kernel(core, lambda: core(tokens).slots, ("reference", "streamed", "auto"))
