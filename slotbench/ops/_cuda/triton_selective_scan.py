"""Selective scan in Triton: its kernels as ops of torch, in value and gradient.

Few sequences of many steps are cut into spans of time that run side by side. Gradients of what channels, samples or
spans share are sums of parts, one part per program, so the result is the same bits every time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from slotbench.ops._cuda.launching import (
    OPTIONS,
    blocks,
    in_rows,
    multiprocessors,
    num_spans,
    on_device_of,
    power_of_two,
)
from slotbench.ops._cuda.triton_selective_scan_kernels import backward, end_of_span, forward

_CHUNK = 16  # steps
_VALUES_PER_WARP = 256  # of the states: 8 per thread, for each of which the backward holds about a dozen registers


def _cut(time: int, dim: int, num_states: int) -> tuple[dict[str, int], int]:
    """The sizes that a kernel is compiled for, and how many blocks of channels there are."""
    lanes = max(4, power_of_two(num_states))
    channels = min(power_of_two(dim), max(4, min(64, _VALUES_PER_WARP // lanes)))
    warps = max(1, min(8, channels * lanes // _VALUES_PER_WARP))
    sizes = {"N": num_states, "LANES": lanes, "CHANNELS": channels, "CHUNK": min(_CHUNK, power_of_two(time))}
    return sizes | OPTIONS | {"num_warps": warps}, blocks(dim, channels)


def _span(u: Tensor, sizes: dict[str, int], num_blocks: int, spans: int) -> tuple[int, int]:
    """Steps of a span, which are whole chunks, and how many spans there are: about `spans`, or as many as are best."""
    batch, time, _ = u.shape
    spans = spans or num_spans(time, batch * num_blocks * sizes["num_warps"], multiprocessors(u.device))
    span = blocks(time, sizes["CHUNK"] * spans) * sizes["CHUNK"]
    return span, blocks(time, span)


def _ends(
    x: Tensor, delta: Tensor, A: Tensor, W: Tensor, z: Tensor | None, span: int, back: bool
) -> tuple[Tensor | None, Tensor | None]:
    """What `end_of_span` writes, states "batch span dim state" and sums of step sizes; None and None of one span."""
    batch, time, dim = x.shape
    others = blocks(time, span) - 1
    if others == 0:
        return None, None
    sizes, num_blocks = _cut(time, dim, A.shape[1])
    del sizes["CHUNK"]
    ends = A.new_empty(batch, others, *A.shape, dtype=torch.float32)
    lengths = ends.new_empty(batch, others, dim)
    x, x_row = in_rows(x)
    delta, delta_row = in_rows(delta)
    W, W_row = in_rows(W)
    z, z_row = (None, 0) if z is None else in_rows(z)
    end_of_span[(batch * others, num_blocks)](
        *(x, delta, A, W, z, ends, lengths, x_row, delta_row, W_row, z_row, time, span, dim),
        **(sizes | {"BACK": back}),
    )
    return ends, lengths


@torch.library.custom_op(
    "slotbench::triton_selective_scan",
    mutates_args=(),
    schema="(Tensor u, Tensor delta, Tensor A, Tensor B, Tensor C, Tensor? D, Tensor? z, Tensor? state, bool keep, "
    "int spans) -> (Tensor, Tensor, Tensor)",
)
def _scan(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    z: Tensor | None,
    state: Tensor | None,
    keep: bool,
    spans: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gives y, the last state, and the states at the start of each chunk, none unless asked for.

    Time is cut into about `spans` spans; into as many as are best where that is 0.
    """
    batch, time, dim = u.shape
    y, last, starts = _scan_shapes(u, delta, A, B, C, D, z, state, keep, spans)
    sizes, num_blocks = _cut(time, dim, A.shape[1])
    span, spans = _span(u, sizes, num_blocks, spans)
    u, u_row = in_rows(u)
    delta, delta_row = in_rows(delta)
    B, B_row = in_rows(B)
    C, C_row = in_rows(C)
    z, z_row = (None, 0) if z is None else in_rows(z)
    A = A.contiguous()
    D, state = (None if x is None else x.contiguous() for x in (D, state))
    rows = (u_row, delta_row, B_row, C_row, z_row)
    with on_device_of(u):
        ends = _ends(u, delta, A, B, None, span, back=False)
        forward[(batch * spans, num_blocks)](
            *(u, delta, A, B, C, D, z, state, *ends, y, last, starts if keep else None),
            *(*rows, time, span, dim),
            **sizes,
        )
    return y, last, starts


@_scan.register_fake
def _scan_shapes(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    z: Tensor | None,
    state: Tensor | None,
    keep: bool,
    spans: int,
) -> tuple[Tensor, Tensor, Tensor]:
    batch, time, _ = u.shape
    chunks = -(-time // _CHUNK) if keep else 0  # not `blocks`: torch.compile counts with numbers that are no int
    last = u.new_empty(batch, *A.shape, dtype=torch.float32)
    return u.new_empty(u.shape), last, last.new_empty(batch, chunks, *A.shape)


@torch.library.custom_op(
    "slotbench::triton_selective_scan_backward",
    mutates_args=(),
    schema="(Tensor u, Tensor delta, Tensor A, Tensor B, Tensor C, Tensor? D, Tensor? z, Tensor starts, Tensor grad_y, "
    "Tensor grad_last, int spans) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def _gradients(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    z: Tensor | None,
    starts: Tensor,
    grad_y: Tensor,
    grad_last: Tensor,
    spans: int,
) -> tuple[Tensor, ...]:
    """Gradients of u, delta, A, B, C, D, z and the first state; empty without D or z."""
    batch, time, dim = u.shape
    num_states = A.shape[1]
    sizes, num_blocks = _cut(time, dim, num_states)
    span, spans = _span(u, sizes, num_blocks, spans)
    grad_u, grad_delta, _, _, _, grad_D, grad_z, grad_state = _gradient_shapes(
        u, delta, A, B, C, D, z, starts, grad_y, grad_last, spans
    )
    grad_A = starts.new_empty(batch * spans, dim, num_states)
    grad_B, grad_C = (starts.new_empty(batch, num_blocks, time, num_states) for _ in range(2))
    if D is not None:
        grad_D = starts.new_empty(batch * spans, dim)
    scratch = starts.new_empty(batch * spans, num_blocks, sizes["CHUNK"], sizes["CHANNELS"], sizes["LANES"])
    u, u_row = in_rows(u)
    delta, delta_row = in_rows(delta)
    B, B_row = in_rows(B)
    C, C_row = in_rows(C)
    z, z_row = (None, 0) if z is None else in_rows(z)
    grad_y, grad_y_row = in_rows(grad_y)
    A = A.contiguous()
    with on_device_of(u):
        ends = _ends(grad_y, delta, A, C, z, span, back=True)
        backward[(batch * spans, num_blocks)](
            *(u, delta, A, B, C, None if D is None else D.contiguous(), z, starts, scratch),
            *(grad_y, grad_last.contiguous(), *ends),
            *(grad_u, grad_delta, grad_A, grad_B, grad_C, grad_D, grad_z, grad_state),
            *(u_row, delta_row, B_row, C_row, z_row, grad_y_row, time, span, dim),
            **sizes,
        )
    if D is not None:
        grad_D = grad_D.sum(0)
    return grad_u, grad_delta, grad_A.sum(0), grad_B.sum(1), grad_C.sum(1), grad_D, grad_z, grad_state


@_gradients.register_fake
def _gradient_shapes(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    z: Tensor | None,
    starts: Tensor,
    grad_y: Tensor,
    grad_last: Tensor,
    spans: int,
) -> tuple[Tensor, ...]:
    return (
        u.new_empty(u.shape),
        delta.new_empty(delta.shape),
        *(starts.new_empty(x.shape) for x in (A, B, C)),
        starts.new_empty(0 if D is None else D.shape),
        u.new_empty(0) if z is None else z.new_empty(z.shape),
        starts.new_empty(u.shape[0], *A.shape),
    )


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    u, delta, A, B, C, D, z, state, _, ctx.spans = inputs
    ctx.save_for_backward(u, delta, A, B, C, D, z, output[2])
    ctx.dtypes = [None if x is None else x.dtype for x in (u, delta, A, B, C, D, z, state)]
    ctx.set_materialize_grads(False)


def _differentiate(
    ctx: Any, grad_y: Tensor | None, grad_last: Tensor | None, grad_starts: Tensor | None
) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors  # which checkpointing hands out only once
    u, _, A, *_ = saved
    if grad_y is None:
        grad_y = torch.zeros_like(u)
    if grad_last is None:
        grad_last = A.new_zeros(u.shape[0], *A.shape, dtype=torch.float32)
    gradients = _gradients(*saved, grad_y, grad_last, ctx.spans)
    pairs = zip(gradients, ctx.dtypes, strict=True)
    return *(None if dtype is None else gradient.to(dtype) for gradient, dtype in pairs), None, None


_scan.register_autograd(_differentiate, setup_context=_remember)


def selective_scan_triton(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None,
    z: Tensor | None,
    state: Tensor | None,
    *,
    spans: int = 0,
) -> tuple[Tensor, Tensor]:
    """As `slotbench.ops.selective_scan`, skip and gate included: y in the dtype of u, the last state in float32.

    Time is cut into about `spans` spans that run side by side; into as many as `num_spans` says where that is 0.
    """
    inputs = (u, delta, A, B, C, D, z, state)
    keep = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)
    y, last, _ = _scan(*inputs, keep, spans)
    return y, last
