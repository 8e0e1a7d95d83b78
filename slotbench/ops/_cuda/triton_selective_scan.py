"""Selective scan in Triton: one program runs through time for some channels of a sample, their states in registers.

The forward keeps the states at the start of every chunk of steps. The backward goes through the chunks from the last to
the first: it recomputes the states of a chunk into a scratch buffer, then walks back through it. Gradients of what
channels or samples share are sums of parts, one part per program, so the result is the same bits every time.

All arithmetic is in float32, whatever the dtypes of the inputs. Nothing here is parallel over time: that suits clips,
of which there are batch x slots, and not one sequence of many thousand steps.

Type hints are left off the kernels: Triton infers the types of each from its arguments.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from slotbench.ops._cuda.launching import OPTIONS, blocks, in_rows, on_device_of, power_of_two

_CHUNK = 16  # steps
_VALUES_PER_WARP = 256  # of the states: 8 per thread, for each of which the backward holds about a dozen registers


@triton.jit
def _load(pointer, mask):
    return tl.load(pointer, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _advance(h, rate, u_t, delta_t, B_t):
    return tl.exp(delta_t[:, None] * rate) * h + (delta_t * u_t)[:, None] * B_t[None, :]


@triton.jit
def _refill(u, delta, B, h, rate, scratch, row, steps, u_row, delta_row, B_row, channel, lane, dim, N, SIZE):
    """Writes the states before each of `steps` steps to `scratch`, `h` being those before the first."""
    for i in range(steps):
        tl.store(scratch + i * SIZE, h)
        u_t = _load(u + (row + i) * u_row + channel, channel < dim)
        delta_t = _load(delta + (row + i) * delta_row + channel, channel < dim)
        B_t = _load(B + (row + i) * B_row + lane, lane < N)
        h = _advance(h, rate, u_t, delta_t, B_t)


@triton.jit
def _forward(
    u,
    delta,
    A,
    B,
    C,
    D,
    z,
    state,
    y,
    last,
    starts,
    u_row,
    delta_row,
    B_row,
    C_row,
    z_row,
    time,
    dim,
    N: tl.constexpr,
    LANES: tl.constexpr,
    CHANNELS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    sample = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    lane = tl.arange(0, LANES)
    is_channel, is_lane = channel < dim, lane < N
    is_cell = is_channel[:, None] & is_lane[None, :]
    cell = channel[:, None].to(tl.int64) * N + lane[None, :]
    rate = _load(A + cell, is_cell)
    h = tl.zeros([CHANNELS, LANES], tl.float32)
    if state is not None:
        h = _load(state + sample * dim * N + cell, is_cell)
    skip = tl.zeros([CHANNELS], tl.float32)
    if D is not None:
        skip = _load(D + channel, is_channel)
    for t in range(time):
        if starts is not None:  # noqa: SIM102 -- decided while Triton compiles, the other while it runs
            if t % CHUNK == 0:
                at = sample * tl.cdiv(time, CHUNK) + t // CHUNK
                tl.store(starts + at * dim * N + cell, h, mask=is_cell)
        row = sample * time + t
        u_t = _load(u + row * u_row + channel, is_channel)
        delta_t = _load(delta + row * delta_row + channel, is_channel)
        h = _advance(h, rate, u_t, delta_t, _load(B + row * B_row + lane, is_lane))
        y_t = tl.sum(h * _load(C + row * C_row + lane, is_lane)[None, :], axis=1) + skip * u_t
        if z is not None:
            z_t = _load(z + row * z_row + channel, is_channel)
            y_t *= z_t / (1.0 + tl.exp(-z_t))
        tl.store(y + row * dim + channel, y_t, mask=is_channel)
    tl.store(last + sample * dim * N + cell, h, mask=is_cell)


@triton.jit
def _backward(
    u,
    delta,
    A,
    B,
    C,
    D,
    z,
    starts,
    scratch,
    grad_y,
    grad_last,
    grad_u,
    grad_delta,
    grad_A,
    grad_B,
    grad_C,
    grad_D,
    grad_z,
    grad_state,
    u_row,
    delta_row,
    B_row,
    C_row,
    z_row,
    grad_y_row,
    time,
    dim,
    N: tl.constexpr,
    LANES: tl.constexpr,
    CHANNELS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    sample, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    channel = block * CHANNELS + tl.arange(0, CHANNELS)
    lane = tl.arange(0, LANES)
    is_channel, is_lane = channel < dim, lane < N
    is_cell = is_channel[:, None] & is_lane[None, :]
    cell = channel[:, None].to(tl.int64) * N + lane[None, :]
    part = sample * tl.num_programs(1) + block
    SIZE: tl.constexpr = CHANNELS * LANES
    scratch_cell = scratch + part * CHUNK * SIZE + tl.arange(0, CHANNELS)[:, None] * LANES + lane[None, :]
    rate = _load(A + cell, is_cell)
    skip = tl.zeros([CHANNELS], tl.float32)
    if D is not None:
        skip = _load(D + channel, is_channel)
    grad_h = _load(grad_last + sample * dim * N + cell, is_cell)
    grad_rate = tl.zeros([CHANNELS, LANES], tl.float32)
    grad_skip = tl.zeros([CHANNELS], tl.float32)
    num_chunks = tl.cdiv(time, CHUNK)
    for index in range(num_chunks):
        chunk = num_chunks - 1 - index
        steps = tl.minimum(time - chunk * CHUNK, CHUNK)
        first = sample * time + chunk * CHUNK
        h = _load(starts + (sample * num_chunks + chunk) * dim * N + cell, is_cell)
        _refill(u, delta, B, h, rate, scratch_cell, first, steps, u_row, delta_row, B_row, channel, lane, dim, N, SIZE)
        # the thread that reads a number of the scratch buffer need not be the one that wrote it
        tl.debug_barrier()
        for i in range(steps):
            step = steps - 1 - i
            row = first + step
            u_t = _load(u + row * u_row + channel, is_channel)
            delta_t = _load(delta + row * delta_row + channel, is_channel)
            B_t = _load(B + row * B_row + lane, is_lane)
            C_t = _load(C + row * C_row + lane, is_lane)
            grad_t = _load(grad_y + row * grad_y_row + channel, is_channel)
            before = tl.load(scratch_cell + step * SIZE)
            after = _advance(before, rate, u_t, delta_t, B_t)
            if z is not None:
                z_t = _load(z + row * z_row + channel, is_channel)
                sigmoid = 1.0 / (1.0 + tl.exp(-z_t))
                ungated = tl.sum(after * C_t[None, :], axis=1) + skip * u_t
                slope = sigmoid * (1.0 + z_t * (1.0 - sigmoid))
                tl.store(grad_z + row * dim + channel, grad_t * ungated * slope, mask=is_channel)
                grad_t *= z_t * sigmoid
            grad_skip += grad_t * u_t
            grad_h += grad_t[:, None] * C_t[None, :]
            # one part per block of channels; "batch block time state"
            shared = (part * time + chunk * CHUNK + step) * N + lane
            tl.store(grad_C + shared, tl.sum(grad_t[:, None] * after, axis=0), mask=is_lane)
            tl.store(grad_B + shared, tl.sum(grad_h * (delta_t * u_t)[:, None], axis=0), mask=is_lane)
            grad_drive = tl.sum(grad_h * B_t[None, :], axis=1)
            grad_h *= tl.exp(delta_t[:, None] * rate)
            grad_exponent = grad_h * before
            grad_delta_t = grad_drive * u_t + tl.sum(grad_exponent * rate, axis=1)
            tl.store(grad_u + row * dim + channel, grad_drive * delta_t + skip * grad_t, mask=is_channel)
            tl.store(grad_delta + row * dim + channel, grad_delta_t, mask=is_channel)
            grad_rate += grad_exponent * delta_t[:, None]
        # nor may the next chunk overwrite what a slower thread has yet to read
        tl.debug_barrier()
    tl.store(grad_state + sample * dim * N + cell, grad_h, mask=is_cell)
    # one part per sample
    tl.store(grad_A + sample * dim * N + cell, grad_rate, mask=is_cell)
    if D is not None:
        tl.store(grad_D + sample * dim + channel, grad_skip, mask=is_channel)


def _cut(time: int, dim: int, num_states: int) -> tuple[dict[str, int], int]:
    """The sizes that a kernel is compiled for, and how many blocks of channels there are."""
    lanes = max(4, power_of_two(num_states))
    channels = min(power_of_two(dim), max(4, min(64, _VALUES_PER_WARP // lanes)))
    warps = max(1, min(8, channels * lanes // _VALUES_PER_WARP))
    sizes = {"N": num_states, "LANES": lanes, "CHANNELS": channels, "CHUNK": min(_CHUNK, power_of_two(time))}
    return sizes | OPTIONS | {"num_warps": warps}, blocks(dim, channels)


@torch.library.custom_op(
    "slotbench::triton_selective_scan",
    mutates_args=(),
    schema="(Tensor u, Tensor delta, Tensor A, Tensor B, Tensor C, Tensor? D, Tensor? z, Tensor? state, bool keep) "
    "-> (Tensor, Tensor, Tensor)",
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
) -> tuple[Tensor, Tensor, Tensor]:
    """Gives y, the last state, and the states at the start of each chunk, none unless asked for."""
    batch, time, dim = u.shape
    y, last, starts = _scan_shapes(u, delta, A, B, C, D, z, state, keep)
    sizes, num_blocks = _cut(time, dim, A.shape[1])
    u, u_row = in_rows(u)
    delta, delta_row = in_rows(delta)
    B, B_row = in_rows(B)
    C, C_row = in_rows(C)
    z, z_row = (None, 0) if z is None else in_rows(z)
    D, state = (None if x is None else x.contiguous() for x in (D, state))
    rows = (u_row, delta_row, B_row, C_row, z_row)
    with on_device_of(u):
        _forward[(batch, num_blocks)](
            *(u, delta, A.contiguous(), B, C, D, z, state, y, last, starts if keep else None),
            *(*rows, time, dim),
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
) -> tuple[Tensor, Tensor, Tensor]:
    batch, time, _ = u.shape
    chunks = -(-time // _CHUNK) if keep else 0  # not `blocks`: torch.compile counts with numbers that are no int
    last = u.new_empty(batch, *A.shape, dtype=torch.float32)
    return u.new_empty(u.shape), last, last.new_empty(batch, chunks, *A.shape)


@torch.library.custom_op(
    "slotbench::triton_selective_scan_backward",
    mutates_args=(),
    schema="(Tensor u, Tensor delta, Tensor A, Tensor B, Tensor C, Tensor? D, Tensor? z, Tensor starts, Tensor grad_y, "
    "Tensor grad_last) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
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
) -> tuple[Tensor, ...]:
    """Gradients of u, delta, A, B, C, D, z and the first state; empty without D or z."""
    batch, time, dim = u.shape
    num_states = A.shape[1]
    sizes, num_blocks = _cut(time, dim, num_states)
    grad_u, grad_delta, _, _, _, grad_D, grad_z, grad_state = _gradient_shapes(
        u, delta, A, B, C, D, z, starts, grad_y, grad_last
    )
    grad_A = starts.new_empty(batch, dim, num_states)
    grad_B, grad_C = (starts.new_empty(batch, num_blocks, time, num_states) for _ in range(2))
    if D is not None:
        grad_D = starts.new_empty(batch, dim)
    scratch = starts.new_empty(batch, num_blocks, sizes["CHUNK"], sizes["CHANNELS"], sizes["LANES"])
    u, u_row = in_rows(u)
    delta, delta_row = in_rows(delta)
    B, B_row = in_rows(B)
    C, C_row = in_rows(C)
    z, z_row = (None, 0) if z is None else in_rows(z)
    grad_y, grad_y_row = in_rows(grad_y)
    with on_device_of(u):
        _backward[(batch, num_blocks)](
            *(u, delta, A.contiguous(), B, C, None if D is None else D.contiguous(), z, starts, scratch),
            *(grad_y, grad_last.contiguous()),
            *(grad_u, grad_delta, grad_A, grad_B, grad_C, grad_D, grad_z, grad_state),
            *(u_row, delta_row, B_row, C_row, z_row, grad_y_row, time, dim),
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
    u, delta, A, B, C, D, z, _, _ = inputs
    ctx.save_for_backward(u, delta, A, B, C, D, z, output[2])
    ctx.dtypes = [None if x is None else x.dtype for x in inputs[:-1]]
    ctx.set_materialize_grads(False)


def _differentiate(
    ctx: Any, grad_y: Tensor | None, grad_last: Tensor | None, grad_starts: Tensor | None
) -> tuple[Tensor | None, ...]:
    u, _, A, *_ = ctx.saved_tensors
    if grad_y is None:
        grad_y = torch.zeros_like(u)
    if grad_last is None:
        grad_last = A.new_zeros(u.shape[0], *A.shape, dtype=torch.float32)
    gradients = _gradients(*ctx.saved_tensors, grad_y, grad_last)
    pairs = zip(gradients, ctx.dtypes, strict=True)
    return *(None if dtype is None else gradient.to(dtype) for gradient, dtype in pairs), None


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
) -> tuple[Tensor, Tensor]:
    """As `slotbench.ops.selective_scan`, skip and gate included: y in the dtype of u, the last state in float32."""
    inputs = (u, delta, A, B, C, D, z, state)
    keep = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)
    y, last, _ = _scan(*inputs, keep)
    return y, last
