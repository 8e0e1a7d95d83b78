"""The scan of Mamba-2 compiled for the CPU, skip included, on inputs that may be parts of wider rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from slotbench.ops._memory import parts_of_rows
from slotbench.ops._rows import rows_of
from slotbench.ops._ssd_numba.kernels import CHUNK, LANES, backward, forward
from slotbench.ops._threads import run_in_threads

_MAX_LANES = 128  # channels per task, at most
_MAX_GROUPS = 32  # grad_D is summed within groups of samples first: one partial sum per group, not per sample


class _Blocks(NamedTuple):
    """How the channels of a group of heads are cut into tasks."""

    total: int  # of all groups
    parts: int  # of a group
    heads: int  # of a part, at most
    pieces: int  # of a part: 1 unless its one head is wider than a task
    lanes: int  # channels of a piece, at most
    width: int  # the same with padding


class SSD(torch.autograd.Function):
    """The whole op: (x, gain, exponent, B, C, D, state) -> (y, last state), as in `slotbench.ops.ssd`."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        x: Tensor,
        gain: Tensor,
        exponent: Tensor,
        B: Tensor,
        C: Tensor,
        D: Tensor | None,
        state: Tensor,
    ) -> tuple[Tensor, Tensor]:
        batch, time, heads, head_dim = x.shape
        groups, num_states = B.shape[2:]
        blocks = _blocks(heads // groups, head_dim, groups)
        skip = x.new_zeros(heads * head_dim) if D is None else D.repeat_interleave(head_dim)
        saved_chunks = -(-time // CHUNK) if any(ctx.needs_input_grad) else 0
        starts = x.new_empty(batch if saved_chunks else 0, blocks.total, saved_chunks, num_states, blocks.width)
        y, end = x.new_empty(x.shape), x.new_empty(state.shape)
        inputs = [rows_of(value) for value in (x, gain, exponent, B, C)]
        states = [value.flatten(1, 2).numpy() for value in (state.detach().contiguous(), end)]
        run_in_threads(
            lambda first, last: forward(
                first, last, (time, heads, head_dim, groups, num_states), tuple(blocks), *inputs, skip.detach().numpy(),
                states[0], rows_of(y), states[1], starts.numpy(),
            ),
            batch * blocks.total,
            parallel=_is_worth_threads(x, num_states),
        )  # fmt: skip
        ctx.save_for_backward(x, gain, exponent, B, C, skip, starts)
        ctx.has_skip = D is not None
        return y, end

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_y: Tensor, grad_end: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, gain, exponent, B, C, skip, starts = ctx.saved_tensors
        batch, time, heads, head_dim = x.shape
        groups, num_states = B.shape[2:]
        blocks = _blocks(heads // groups, head_dim, groups)
        # one buffer: where x, B and C are parts of one row, so are their gradients
        grad_x, grad_B, grad_C = parts_of_rows(x, (heads, head_dim), (groups, num_states), (groups, num_states))
        partial = blocks.parts * blocks.pieces
        sums = [grad_B, grad_C] if partial == 1 else [B.new_empty(partial, *B.shape) for _ in range(2)]
        of_heads = [x.new_empty(blocks.pieces, *gain.shape) for _ in range(2)]
        grad_skip = x.new_zeros(min(batch, _MAX_GROUPS), heads * head_dim)
        grad_state = x.new_empty(batch, heads * head_dim, num_states)
        inputs = [rows_of(value) for value in (x, gain, exponent, B, C)]
        outputs = [rows_of(value) for value in (grad_x, *(s.flatten(0, 1) for s in of_heads))]
        outputs += [rows_of(value.flatten(0, value.ndim - 4)) for value in sums]
        grad_in = rows_of(grad_y), grad_end.flatten(1, 2).contiguous().numpy()
        run_in_threads(
            lambda first, last: backward(
                first, last, (batch, time, heads, head_dim, groups, num_states), tuple(blocks), *inputs,
                skip.detach().numpy(), starts.numpy(), *grad_in, *outputs, grad_skip.numpy(), grad_state.numpy(),
            ),
            len(grad_skip) * blocks.total,
            parallel=_is_worth_threads(x, num_states),
        )  # fmt: skip
        if partial > 1:
            torch.sum(sums[0], 0, out=grad_B)
            torch.sum(sums[1], 0, out=grad_C)
        grad_D = grad_skip.view(-1, heads, head_dim).sum((0, 2)) if ctx.has_skip else None
        grad_gain, grad_exponent = (s[0] if blocks.pieces == 1 else s.sum(0) for s in of_heads)
        return grad_x, grad_gain, grad_exponent, grad_B, grad_C, grad_D, grad_state.view(batch, heads, head_dim, -1)


def _blocks(heads: int, head_dim: int, groups: int) -> _Blocks:
    """Blocks of at most `_MAX_LANES` channels, all about as wide, for groups of so many heads."""
    pieces = -(-head_dim // _MAX_LANES)
    parts = -(-heads // max(1, _MAX_LANES // head_dim))
    of_part = -(-heads // parts)
    parts = -(-heads // of_part)
    lanes = of_part * head_dim if pieces == 1 else -(-head_dim // pieces)
    return _Blocks(groups * parts * pieces, parts, of_part, pieces, lanes, LANES * -(-lanes // LANES))


def _is_worth_threads(x: Tensor, num_states: int) -> bool:
    return x.numel() * num_states > 500_000  # about 0.1 ms of work
