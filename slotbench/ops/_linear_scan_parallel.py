"""The linear scan as a parallel associative scan: logarithmically many operations over all steps at once, for CUDA.

A stretch of steps takes h to A h + x, and so does a stretch after another one, with (A2 A1, A2 x1 + x2). An upward
sweep combines neighbours into ever longer stretches, a downward sweep completes the others (Brent and Kung, 1982).
Both work in the buffer of the result, whose numbers they touch about six times in all, whatever the length; the
doubling of Hillis and Steele touches them three times per level, in two buffers. No power of a decay is ever divided
by another: where decays are small, long stretches just forget.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from slotbench.ops._memory import empty_clip_like

_PIECES = 16  # of the time axis, one at a time, for the gradient of the decay: its temporaries are two such pieces


class LinearScan(torch.autograd.Function):
    """(drive "batch time pixels state", decay "batch|1 time|1 state", state "batch pixels state") -> (states, last)."""

    @staticmethod
    def forward(ctx: Any, drive: Tensor, decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        states = empty_clip_like(drive).copy_(drive)
        states[:, 0].addcmul_(decay[:, :1], state)
        _scan_(states, decay, reverse=False)
        ctx.save_for_backward(decay, state, states)
        return states, states[:, -1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_states: Tensor, grad_last: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        decay, state, states = ctx.saved_tensors
        adjoint = decay.conj().resolve_conj()
        grads = empty_clip_like(states).copy_(grad_states)
        grads[:, -1] += grad_last
        # the gradient reaches step t from t + 1, through the decay of t + 1; the last one has none to come from
        _scan_(grads, adjoint.roll(-1, 1), reverse=True)
        grad_decay = _decay_gradient(decay, state, states, grads) if ctx.needs_input_grad[1] else None
        grad_state = adjoint[:, :1] * grads[:, 0] if ctx.needs_input_grad[2] else None
        return grads, grad_decay, grad_state


def _scan_(values: Tensor, decay: Tensor, *, reverse: bool) -> None:
    """Turns x_t into A_t h_{t-1} + x_t, for the axis 1 of `values` "batch time pixels state", in place.

    `decay` is "batch|1 time|1 state", and that of the step where the scan begins is not used.
    """
    time = values.shape[1]
    spans = [2**level for level in range((time // 2).bit_length())]
    # over the stretch of steps that ends at each step; a uniform decay has one for all stretches of a span
    stretches = decay[:, :, None].clone()
    uniform = decay.shape[1] == 1
    powers = {}
    for span in spans:
        late, early = _pairs(2 * span - 1, span, time, reverse)
        if uniform:
            powers[span] = stretches
            values[:, late].addcmul_(stretches, values[:, early])
            stretches = stretches * stretches
        else:
            values[:, late].addcmul_(stretches[:, late], values[:, early])
            stretches[:, late].mul_(stretches[:, early])
    for span in reversed(spans):
        if 3 * span <= time:
            late, early = _pairs(3 * span - 1, span, time, reverse)
            values[:, late].addcmul_(powers[span] if uniform else stretches[:, late], values[:, early])


def _pairs(first: int, span: int, time: int, reverse: bool) -> tuple[slice, slice]:
    """The steps `first`, `first + 2 span`, ... and those `span` before each, counted from the end if `reverse`."""
    if not reverse:
        return slice(first, time, 2 * span), slice(first - span, time - span, 2 * span)
    lowest = (time - 1 - first) % (2 * span)
    return slice(lowest, time - first, 2 * span), slice(lowest + span, time - first + span, 2 * span)


def _decay_gradient(decay: Tensor, state: Tensor, states: Tensor, grads: Tensor) -> Tensor:
    """Sums conj(h_{t-1}) g_t over all that the decay is broadcast over."""
    time = states.shape[1]
    gradient = torch.zeros_like(decay)
    piece = -(-time // _PIECES)
    for begin in range(0, time, piece):
        end = min(begin + piece, time)
        befores = states[:, begin - 1 : end - 1] if begin else torch.cat((state[:, None], states[:, : end - 1]), dim=1)
        products = torch.conj_physical(befores).mul_(grads[:, begin:end]).sum(2)
        if decay.shape[0] == 1:
            products = products.sum(0, keepdim=True)
        if decay.shape[1] == 1:
            gradient += products.sum(1, keepdim=True)
        else:
            gradient[:, begin:end] = products
    return gradient
