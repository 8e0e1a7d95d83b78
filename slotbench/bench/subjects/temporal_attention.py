"""TemporalAttention against the same attention with its weights written out, forward plus backward."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from einops import rearrange
from torch import Tensor

from slotbench.bench.contest import Contest, Way
from slotbench.bench.subjects import Subject
from slotbench.nn.temporal_attention import TemporalAttention

__all__ = ["SUBJECT"]

SHAPES = [(6, 80, 6), (6, 320, 6)]
QUICK_SHAPES = [(2, 20, 6), (2, 80, 6)]
DIM, HEADS = 64, 4
WRITTEN_OUT, OURS = "written out", "TemporalAttention"


def contests(quick: bool) -> Iterator[Contest]:
    """One contest per (batch, steps, slots)."""
    for shape in QUICK_SHAPES if quick else SHAPES:
        yield Contest.of_shape(shape, (2, 4, shape[2]), _ways, WRITTEN_OUT, memory=(WRITTEN_OUT, OURS))


def _ways(shape: tuple[int, ...]) -> dict[str, Way]:
    torch.manual_seed(0)
    attention = TemporalAttention(DIM, HEADS)
    x, gradient = torch.randn(*shape, DIM, requires_grad=True), torch.randn(*shape, DIM)

    def run(attended: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(attended, [x, *attention.parameters()], gradient)

    return {WRITTEN_OUT: lambda: run(_written_out(attention, x)), OURS: lambda: run(attention(x)[0])}


def _written_out(attention: TemporalAttention, x: Tensor) -> Tensor:
    """The weights of all pairs of tokens, under one mask of (steps * slots)^2."""
    steps, slots = x.shape[1:3]
    pattern = "batch time slots (part heads dim) -> part batch heads (time slots) dim"
    query, key, value = rearrange(attention.query_key_value(x), pattern, part=3, heads=HEADS)
    step = torch.arange(steps).repeat_interleave(slots)
    logits = (query * query.shape[-1] ** -0.5 @ key.mT).masked_fill(step[None, :] > step[:, None], -torch.inf)
    attended = logits.softmax(dim=-1) @ value
    pattern = "batch heads (time slots) dim -> batch time slots (heads dim)"
    joined: Tensor = attention.output(rearrange(attended, pattern, slots=slots))
    return joined


SUBJECT = Subject(
    f"block-causal attention, forward + backward, float32, width {DIM}, {HEADS} heads", "batch, steps, slots", contests
)
