"""Kernels of the selective scan in Triton: a program runs through time for some channels of a sample.

The states of its channels are in registers. The forward keeps those at the start of every chunk of steps; the backward
goes through the chunks from the last to the first: it recomputes the states of a chunk into a scratch buffer, then
walks back through it.

Where a sample has several spans of time, each is a program of its own. `end_of_span` finds where each span but the last
would end if it began at zero, and how long its steps are together; as the recurrence is linear, a program then finds
where its own span begins from those that lie before (`_reach`). Going back in time it is the same with the gradient of
the states.

All arithmetic is in float32. Type hints are left off: Triton infers the types of each kernel from its arguments.

Source: scan in three passes (Blelloch, Prefix Sums and Their Applications, 1990, section 1.3) over the recurrence of
Mamba (Gu and Dao, 2023), Alg. 2, whose product of decays over a span is exp(A sum of delta).
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["backward", "end_of_span", "forward"]


@triton.jit
def _load(pointer, mask):
    return tl.load(pointer, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _advance(h, rate, u_t, delta_t, B_t):
    return tl.exp(delta_t[:, None] * rate) * h + (delta_t * u_t)[:, None] * B_t[None, :]


@triton.jit
def _reach(h, rate, ends, lengths, spans, dim, N, channel, cell, is_channel, is_cell):
    """The states behind `spans` spans, `h` being those before the first; the ends of the first span are at `ends`."""
    for _ in range(spans):
        length = _load(lengths + channel, is_channel)
        h = tl.exp(length[:, None] * rate) * h + _load(ends + cell, is_cell)
        ends += dim * N
        lengths += dim
    return h


@triton.jit
def end_of_span(
    x,
    delta,
    A,
    W,
    z,
    ends,
    lengths,
    x_row,
    delta_row,
    W_row,
    z_row,
    time,
    span,
    dim,
    N: tl.constexpr,
    LANES: tl.constexpr,
    CHANNELS: tl.constexpr,
    BACK: tl.constexpr,
):
    """Writes the states at the end of each span that began at zero, and the sum of its step sizes.

    Going forward x is the input and W its map B, and the last span is left out. Going back (BACK) spans are counted
    from the last, x is the gradient of the output and W its map C, the states are the gradient of those before a span,
    and the first span is left out.
    """
    spans = tl.cdiv(time, span)
    program = tl.program_id(0).to(tl.int64)
    sample, index = program // (spans - 1), tl.program_id(0) % (spans - 1)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    lane = tl.arange(0, LANES)
    is_channel, is_lane = channel < dim, lane < N
    is_cell = is_channel[:, None] & is_lane[None, :]
    cell = channel[:, None].to(tl.int64) * N + lane[None, :]
    rate = _load(A + cell, is_cell)
    h = tl.zeros([CHANNELS, LANES], tl.float32)
    length = tl.zeros([CHANNELS], tl.float32)
    if BACK:
        index = spans - 1 - index
    steps = tl.minimum(time - index * span, span)
    for i in range(steps):
        step = steps - 1 - i if BACK else i
        row = sample * time + index * span + step
        x_t = _load(x + row * x_row + channel, is_channel)
        delta_t = _load(delta + row * delta_row + channel, is_channel)
        W_t = _load(W + row * W_row + lane, is_lane)
        if BACK:
            if z is not None:
                z_t = _load(z + row * z_row + channel, is_channel)
                x_t *= z_t / (1.0 + tl.exp(-z_t))
            h = tl.exp(delta_t[:, None] * rate) * (h + x_t[:, None] * W_t[None, :])
        else:
            h = _advance(h, rate, x_t, delta_t, W_t)
        length += delta_t
    tl.store(ends + program * dim * N + cell, h, mask=is_cell)
    tl.store(lengths + program * dim + channel, length, mask=is_channel)


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
def forward(
    u,
    delta,
    A,
    B,
    C,
    D,
    z,
    state,
    ends,
    lengths,
    y,
    last,
    starts,
    u_row,
    delta_row,
    B_row,
    C_row,
    z_row,
    time,
    span,
    dim,
    N: tl.constexpr,
    LANES: tl.constexpr,
    CHANNELS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Writes the outputs of a span, its states at the start of every chunk, and the last state of a sample."""
    spans = tl.cdiv(time, span)
    sample, index = tl.program_id(0).to(tl.int64) // spans, tl.program_id(0) % spans
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    lane = tl.arange(0, LANES)
    is_channel, is_lane = channel < dim, lane < N
    is_cell = is_channel[:, None] & is_lane[None, :]
    cell = channel[:, None].to(tl.int64) * N + lane[None, :]
    rate = _load(A + cell, is_cell)
    h = tl.zeros([CHANNELS, LANES], tl.float32)
    if state is not None:
        h = _load(state + sample * dim * N + cell, is_cell)
    if ends is not None:
        ends += sample * (spans - 1) * dim * N
        lengths += sample * (spans - 1) * dim
        h = _reach(h, rate, ends, lengths, index, dim, N, channel, cell, is_channel, is_cell)
    skip = tl.zeros([CHANNELS], tl.float32)
    if D is not None:
        skip = _load(D + channel, is_channel)
    for t in range(index * span, tl.minimum((index + 1) * span, time)):
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
    tl.store(last + sample * dim * N + cell, h, mask=is_cell & (index == spans - 1))


@triton.jit
def backward(
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
    ends,
    lengths,
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
    span,
    dim,
    N: tl.constexpr,
    LANES: tl.constexpr,
    CHANNELS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Writes the gradients in a span; of A, B, C and D in parts, per span or per block of channels, to be added."""
    spans = tl.cdiv(time, span)
    program, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    sample, index = program // spans, tl.program_id(0) % spans
    channel = block * CHANNELS + tl.arange(0, CHANNELS)
    lane = tl.arange(0, LANES)
    is_channel, is_lane = channel < dim, lane < N
    is_cell = is_channel[:, None] & is_lane[None, :]
    cell = channel[:, None].to(tl.int64) * N + lane[None, :]
    SIZE: tl.constexpr = CHANNELS * LANES
    scratch += (program * tl.num_programs(1) + block) * CHUNK * SIZE
    scratch_cell = scratch + tl.arange(0, CHANNELS)[:, None] * LANES + lane[None, :]
    rate = _load(A + cell, is_cell)
    skip = tl.zeros([CHANNELS], tl.float32)
    if D is not None:
        skip = _load(D + channel, is_channel)
    grad_h = _load(grad_last + sample * dim * N + cell, is_cell)
    if ends is not None:
        ends += sample * (spans - 1) * dim * N
        lengths += sample * (spans - 1) * dim
        later = spans - 1 - index
        grad_h = _reach(grad_h, rate, ends, lengths, later, dim, N, channel, cell, is_channel, is_cell)
    grad_rate = tl.zeros([CHANNELS, LANES], tl.float32)
    grad_skip = tl.zeros([CHANNELS], tl.float32)
    num_chunks = tl.cdiv(time, CHUNK)
    first_chunk = index * (span // CHUNK)
    last_chunk = tl.minimum(first_chunk + span // CHUNK, num_chunks) - 1
    for back in range(last_chunk + 1 - first_chunk):
        chunk = last_chunk - back
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
            shared = ((sample * tl.num_programs(1) + block) * time + chunk * CHUNK + step) * N + lane
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
    tl.store(grad_state + sample * dim * N + cell, grad_h, mask=is_cell & (index == 0))
    # one part per span of a sample
    tl.store(grad_A + program * dim * N + cell, grad_rate, mask=is_cell)
    if D is not None:
        tl.store(grad_D + program * dim + channel, grad_skip, mask=is_channel)
