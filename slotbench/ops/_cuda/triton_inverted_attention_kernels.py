"""Kernels of inverted attention in Triton: one pass over tokens in blocks, with all slots of a step in registers.

The softmax runs over the slots, so that a block of tokens needs no other: its weights are made, summed and forgotten.
The backward makes them again. Tokens are keys and values at once, and are read once in each direction; where several
steps of slots read the same tokens, the gradient of the tokens takes a pass of its own.

Sums and softmax are in float32, whatever the dtype of the tokens.

Rows are slots, head after head, each head filled up to a power of two. Type hints are left off: Triton infers the types
of each kernel from its arguments.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["backward_of_slots", "backward_of_tokens", "forward"]


@triton.jit
def _rows_of(SLOTS: tl.constexpr, HEADS: tl.constexpr, slots, heads):
    """(row in memory, slot, head, whether there is one) of every row."""
    row = tl.arange(0, HEADS * SLOTS)
    slot, head = row % SLOTS, row // SLOTS
    return head * slots + slot, slot, head, (slot < slots) & (head < heads)


@triton.jit
def _load_rows(pointer, row, is_row, d, dim):
    return tl.load(pointer + row[:, None] * dim + d[None, :], mask=is_row[:, None] & (d < dim)[None, :], other=0.0)


@triton.jit
def _load_tokens(pointer, n, token_row, num_tokens, d, dim):
    mask = (n < num_tokens)[:, None] & (d < dim)[None, :]
    return tl.load(pointer + n[:, None].to(tl.int64) * token_row + d[None, :], mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _compete(
    logits,
    is_row,
    inside,
    SLOTS: tl.constexpr,
    HEADS: tl.constexpr,
    BLOCK: tl.constexpr,
    ACROSS: tl.constexpr,
):
    """Softmax over the slots of "rows tokens": of all heads, or of each; zero where there is no slot or no token."""
    logits = tl.where(is_row[:, None], logits, float("-inf"))
    if ACROSS:
        share = tl.exp(logits - tl.max(logits, axis=0)[None, :])
        share = share / tl.sum(share, axis=0)[None, :]
    else:
        of_heads = tl.reshape(logits, [HEADS, SLOTS, BLOCK])
        top = tl.max(of_heads, axis=1)
        # a head that only fills up has no slot to subtract or to divide by
        share = tl.exp(of_heads - tl.where(top == float("-inf"), 0.0, top)[:, None, :])
        total = tl.sum(share, axis=1)
        share = tl.reshape(share / tl.where(total == 0.0, 1.0, total)[:, None, :], [HEADS * SLOTS, BLOCK])
    return tl.where(inside[None, :], share, 0.0)


@triton.jit
def _less_mean(weights, grad, SLOTS: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr, ACROSS: tl.constexpr):
    """The gradient of the logits from that of their softmax."""
    product = weights * grad
    if ACROSS:
        return product - weights * tl.sum(product, axis=0)[None, :]
    of_heads = tl.reshape(weights, [HEADS, SLOTS, BLOCK])
    mean = tl.sum(tl.reshape(product, [HEADS, SLOTS, BLOCK]), axis=1)
    return product - tl.reshape(of_heads * mean[:, None, :], [HEADS * SLOTS, BLOCK])


@triton.jit
def _products(
    rows,
    tokens,
    row,
    is_row,
    n,
    token_row,
    num_tokens,
    dim,
    ROWS: tl.constexpr,
    DIMS: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Rows times tokens, some dimensions at a time: all of them would fill the registers of every warp."""
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for begin in range(0, DIMS, CHUNK):
        d = begin + tl.arange(0, CHUNK)
        keys = _load_tokens(tokens, n, token_row, num_tokens, d, dim)
        total = tl.dot(_load_rows(rows, row, is_row, d, dim), tl.trans(keys), total, input_precision=PRECISION)
    return total


@triton.jit
def _bias_of(bias, time_bias, row, head, is_row, frame, t, step, time, steps, slots, heads):
    """What is added to the logits of each row: of the query, and of the head by the two steps."""
    added = tl.load(bias + frame * heads * slots + row, mask=is_row, other=0.0)
    if time_bias is not None:
        added += tl.load(time_bias + (head * time + t) * steps + step, mask=is_row, other=0.0)
    return added


@triton.jit
def _seen(t, time, steps, reach, num_blocks, CAUSAL: tl.constexpr):
    """The blocks, from and to, of the tokens that a step of slots reads."""
    last = steps
    first = 0
    if CAUSAL:
        last = steps - time + t + 1
        first = tl.maximum(0, last - reach)
    return first * num_blocks, last * num_blocks


@triton.jit
def forward(
    query,
    bias,
    tokens,
    time_bias,
    values,
    mass,
    own,
    token_batch,
    token_step,
    token_row,
    time,
    steps,
    reach,
    num_tokens,
    slots,
    heads,
    dim,
    SLOTS: tl.constexpr,
    HEADS: tl.constexpr,
    DIMS: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
    ACROSS: tl.constexpr,
    CAUSAL: tl.constexpr,
    OFFSET: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Writes the sums of weighted tokens and of weights of each slot, over a part of the blocks of tokens."""
    frame, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
    sample, t = frame // time, tl.program_id(0) % time
    row, slot, head, is_row = _rows_of(SLOTS, HEADS, slots, heads)
    d = tl.arange(0, DIMS)
    size = heads * slots
    num_blocks = tl.cdiv(num_tokens, BLOCK)
    first, last = _seen(t, time, steps, reach, num_blocks, CAUSAL)
    each = tl.cdiv(last - first, tl.num_programs(1))
    total = tl.zeros([HEADS * SLOTS, DIMS], tl.float32)
    total_mass = tl.zeros([HEADS * SLOTS], tl.float32)
    for i in range(first + split * each, tl.minimum(first + (split + 1) * each, last)):
        step = i // num_blocks
        n = (i % num_blocks) * BLOCK + tl.arange(0, BLOCK)
        inside = n < num_tokens
        at = tokens + sample * token_batch + step.to(tl.int64) * token_step
        logits = _products(
            *(query + frame * size * dim, at, row, is_row, n, token_row, num_tokens, dim),
            *(HEADS * SLOTS, DIMS, CHUNK, BLOCK, PRECISION),
        )
        logits += _bias_of(bias, time_bias, row, head, is_row, frame, t, step, time, steps, slots, heads)[:, None]
        weights = _compete(logits, is_row, inside, SLOTS, HEADS, BLOCK, ACROSS)
        if own is not None:  # noqa: SIM102 -- decided while Triton compiles, the other while it runs
            if step == steps - time + t:
                if HEADS == 1:
                    place = own + (frame * slots + slot[:, None]) * num_tokens + n[None, :]
                    tl.store(place, weights, mask=is_row[:, None] & inside[None, :])
                else:
                    share = tl.sum(tl.reshape(weights, [HEADS, SLOTS, BLOCK]), axis=0)
                    if not ACROSS:
                        share = share / heads
                    one = tl.arange(0, SLOTS)
                    place = own + (frame * slots + one[:, None]) * num_tokens + n[None, :]
                    tl.store(place, share, mask=(one < slots)[:, None] & inside[None, :])
        if OFFSET != 0.0:
            weights = tl.where(is_row[:, None] & inside[None, :], weights + OFFSET, 0.0)
        keys = _load_tokens(at, n, token_row, num_tokens, d, dim)
        total = tl.dot(weights, keys, total, input_precision=PRECISION)
        total_mass += tl.sum(weights, axis=1)
    # one part per split
    part = (split * tl.num_programs(0).to(tl.int64) + frame) * size
    place = values + part * dim + row[:, None] * dim + d[None, :]
    tl.store(place, total, mask=is_row[:, None] & (d < dim)[None, :])
    tl.store(mass + part + row, total_mass, mask=is_row)


@triton.jit
def _gradients_of_block(
    query,
    grad_values,
    tokens,
    added,
    grad_mass,
    grad_own,
    row,
    own_row,
    is_row,
    n,
    token_row,
    num_tokens,
    heads,
    dim,
    own_step,
    SLOTS: tl.constexpr,
    HEADS: tl.constexpr,
    DIMS: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
    ACROSS: tl.constexpr,
    OFFSET: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """(weights of the values, gradient of the logits) of "rows tokens"."""
    inside = n < num_tokens
    logits = _products(
        *(query, tokens, row, is_row, n, token_row, num_tokens, dim),
        *(HEADS * SLOTS, DIMS, CHUNK, BLOCK, PRECISION),
    )
    weights = _compete(logits + added[:, None], is_row, inside, SLOTS, HEADS, BLOCK, ACROSS)
    grad = _products(
        *(grad_values, tokens, row, is_row, n, token_row, num_tokens, dim),
        *(HEADS * SLOTS, DIMS, CHUNK, BLOCK, PRECISION),
    )
    grad += grad_mass[:, None]
    if grad_own is not None:
        mask = is_row[:, None] & inside[None, :] & own_step
        of_share = tl.load(grad_own + own_row[:, None] * num_tokens + n[None, :], mask=mask, other=0.0)
        if not ACROSS:
            of_share = of_share / heads
        grad += of_share
    grad_logits = _less_mean(weights, grad, SLOTS, HEADS, BLOCK, ACROSS)
    if OFFSET != 0.0:
        weights = tl.where(is_row[:, None] & inside[None, :], weights + OFFSET, 0.0)
    return weights, grad_logits


@triton.jit
def _store_tokens(pointer, n, num_tokens, d, dim, value):
    mask = (n < num_tokens)[:, None] & (d < dim)[None, :]
    tl.store(pointer + n[:, None].to(tl.int64) * dim + d[None, :], value, mask=mask)


@triton.jit
def backward_of_slots(
    query,
    bias,
    tokens,
    time_bias,
    grad_values,
    grad_mass,
    grad_own,
    grad_query,
    grad_bias,
    grad_tokens,
    grad_time_bias,
    token_batch,
    token_step,
    token_row,
    time,
    steps,
    reach,
    num_tokens,
    slots,
    heads,
    dim,
    SLOTS: tl.constexpr,
    HEADS: tl.constexpr,
    DIMS: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
    ACROSS: tl.constexpr,
    CAUSAL: tl.constexpr,
    OFFSET: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Writes the gradients of queries and biases over a part of the blocks, and of tokens read by one step alone."""
    frame, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
    sample, t = frame // time, tl.program_id(0) % time
    row, slot, head, is_row = _rows_of(SLOTS, HEADS, slots, heads)
    d = tl.arange(0, DIMS)
    size = heads * slots
    asked = query + frame * size * dim
    of_values = grad_values + frame * size * dim
    of_mass = tl.load(grad_mass + frame * size + row, mask=is_row, other=0.0)
    num_blocks = tl.cdiv(num_tokens, BLOCK)
    first, last = _seen(t, time, steps, reach, num_blocks, CAUSAL)
    each = tl.cdiv(last - first, tl.num_programs(1))
    total = tl.zeros([HEADS * SLOTS, DIMS], tl.float32)
    total_bias = tl.zeros([HEADS * SLOTS], tl.float32)
    for i in range(first + split * each, tl.minimum(first + (split + 1) * each, last)):
        step = i // num_blocks
        n = (i % num_blocks) * BLOCK + tl.arange(0, BLOCK)
        at = tokens + sample * token_batch + step.to(tl.int64) * token_step
        added = _bias_of(bias, time_bias, row, head, is_row, frame, t, step, time, steps, slots, heads)
        weights, grad_logits = _gradients_of_block(
            *(asked, of_values, at, added, of_mass, grad_own, row, frame * slots + slot, is_row),
            *(n, token_row, num_tokens, heads, dim, step == steps - time + t),
            *(SLOTS, HEADS, DIMS, CHUNK, BLOCK, ACROSS, OFFSET, PRECISION),
        )
        keys = _load_tokens(at, n, token_row, num_tokens, d, dim)
        total = tl.dot(grad_logits, keys, total, input_precision=PRECISION)
        of_rows = tl.sum(grad_logits, axis=1)
        total_bias += of_rows
        if grad_time_bias is not None:
            # one part per block; "batch time steps blocks heads slots"
            part = (frame * steps * num_blocks + i) * size
            tl.store(grad_time_bias + part + row, of_rows, mask=is_row)
        if grad_tokens is not None:  # no other step of slots reads them
            for begin in range(0, DIMS, CHUNK):
                part = begin + tl.arange(0, CHUNK)
                of_tokens = tl.dot(
                    tl.trans(grad_logits), _load_rows(asked, row, is_row, part, dim), input_precision=PRECISION
                )
                of_tokens = tl.dot(
                    tl.trans(weights),
                    _load_rows(of_values, row, is_row, part, dim),
                    of_tokens,
                    input_precision=PRECISION,
                )
                at = grad_tokens + (sample * steps + step) * num_tokens * dim
                _store_tokens(at, n, num_tokens, part, dim, of_tokens)
    part = (split * tl.num_programs(0).to(tl.int64) + frame) * size
    place = grad_query + part * dim + row[:, None] * dim + d[None, :]
    tl.store(place, total, mask=is_row[:, None] & (d < dim)[None, :])
    tl.store(grad_bias + part + row, total_bias, mask=is_row)


@triton.jit
def backward_of_tokens(
    query,
    bias,
    tokens,
    time_bias,
    grad_values,
    grad_mass,
    grad_own,
    grad_tokens,
    token_batch,
    token_step,
    token_row,
    time,
    steps,
    reach,
    num_tokens,
    slots,
    heads,
    dim,
    SLOTS: tl.constexpr,
    HEADS: tl.constexpr,
    DIMS: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
    ACROSS: tl.constexpr,
    CAUSAL: tl.constexpr,
    OFFSET: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Writes the gradient of a block of tokens that several steps of slots read: the sum over these steps."""
    num_blocks = tl.cdiv(num_tokens, BLOCK)
    sample = (tl.program_id(0) // (steps * num_blocks)).to(tl.int64)
    i = tl.program_id(0) % (steps * num_blocks)
    step = i // num_blocks
    n = (i % num_blocks) * BLOCK + tl.arange(0, BLOCK)
    row, slot, head, is_row = _rows_of(SLOTS, HEADS, slots, heads)
    d = tl.arange(0, DIMS)
    size = heads * slots
    at = tokens + sample * token_batch + step.to(tl.int64) * token_step
    begin, end = 0, time
    past = steps - time
    if CAUSAL:
        begin = tl.maximum(0, step - past)
        end = tl.minimum(time, step - past + reach)
    total = tl.zeros([BLOCK, DIMS], tl.float32)
    for t in range(begin, end):
        frame = sample * time + t
        asked = query + frame * size * dim
        of_values = grad_values + frame * size * dim
        of_mass = tl.load(grad_mass + frame * size + row, mask=is_row, other=0.0)
        added = _bias_of(bias, time_bias, row, head, is_row, frame, t, step, time, steps, slots, heads)
        weights, grad_logits = _gradients_of_block(
            *(asked, of_values, at, added, of_mass, grad_own, row, frame * slots + slot, is_row),
            *(n, token_row, num_tokens, heads, dim, step == past + t),
            *(SLOTS, HEADS, DIMS, CHUNK, BLOCK, ACROSS, OFFSET, PRECISION),
        )
        rows = _load_rows(asked, row, is_row, d, dim)
        total = tl.dot(tl.trans(grad_logits), rows, total, input_precision=PRECISION)
        rows = _load_rows(of_values, row, is_row, d, dim)
        total = tl.dot(tl.trans(weights), rows, total, input_precision=PRECISION)
    _store_tokens(grad_tokens + (sample * steps + step) * num_tokens * dim, n, num_tokens, d, dim, total)
