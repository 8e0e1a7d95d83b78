"""Inverted attention in Triton: one pass over tokens in blocks, with all slots of a step in registers.

The softmax runs over the slots, so that a block of tokens needs no other: its weights are made, summed and forgotten.
The backward makes them again. Tokens are keys and values at once, and are read once in each direction; where several
steps of slots read the same tokens, the gradient of the tokens takes a pass of its own. Sums over tokens are sums of
parts, one part per program, so the result is the same bits every time.

Sums and softmax are in float32, whatever the dtype of the tokens; products are of the precision that torch has for its
own of float32, but never of bfloat16.

Rows are slots, head after head, each head filled up to a power of two. Type hints are left off the kernels: Triton
infers the types of each from its arguments.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from slotbench.ops._cuda.attention_rows import padded_rows
from slotbench.ops._cuda.launching import OPTIONS, blocks, on_device_of, power_of_two

# at most, of a block: tokens, numbers of them, and weights; then numbers of rows that are multiplied at a time
_BLOCK, _BLOCK_NUMBERS, _WEIGHTS, _CHUNK_NUMBERS = 64, 2**13, 2**10, 2**10
_PROGRAMS = 512  # about four for each multiprocessor of an H100
_FEWEST_BLOCKS = 4  # of a program that is not the only one of its step of slots


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
def _forward(
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
def _backward_of_slots(
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
def _backward_of_tokens(
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


def _cut(query: Tensor, tokens: Tensor, *settings: Any) -> tuple[dict[str, Any], int, int]:
    """The sizes that a kernel is compiled for, blocks of tokens of a step, and programs per step of slots."""
    across_heads, causal, reach, share_offset, tf32 = settings
    batch, time, heads, slots, dim = query.shape
    steps, num_tokens = tokens.shape[1:3]
    of_heads, of_slots, dims = padded_rows(heads, slots, dim)
    rows = of_heads * of_slots
    block = max(16, min(_BLOCK, power_of_two(num_tokens), _BLOCK_NUMBERS // dims, _WEIGHTS // rows))
    of_tokens = blocks(num_tokens, block)
    most = (min(steps, reach) if causal else steps) * of_tokens
    splits = max(1, min(blocks(_PROGRAMS, max(1, batch * time)), most // _FEWEST_BLOCKS))
    chunk = max(16, min(dims // 2, _CHUNK_NUMBERS // rows))
    sizes: dict[str, Any] = {"SLOTS": of_slots, "HEADS": of_heads, "DIMS": dims, "CHUNK": chunk, "BLOCK": block}
    sizes |= {"ACROSS": across_heads or heads == 1, "CAUSAL": causal, "OFFSET": share_offset}
    sizes |= {"PRECISION": "tf32" if tf32 else "tf32x3"}
    warps = 8 if max(rows, block) * dims >= 2**12 else 4
    return sizes | OPTIONS | {"num_warps": warps}, of_tokens, splits


def _read(tokens: Tensor) -> tuple[Tensor, tuple[int, int, int]]:
    """Tokens whose numbers lie side by side, and how far apart their samples, steps and tokens lie; seldom a copy."""
    if tokens.stride(3) != 1 and tokens.shape[3] > 1:
        tokens = tokens.contiguous()
    return tokens, (tokens.stride(0), tokens.stride(1), tokens.stride(2))


def _parts_of(result: Tensor, splits: int) -> Tensor:
    """Where programs write their parts of a result: into itself if there is one."""
    return result[None] if splits == 1 else result.new_empty(splits, *result.shape)


_SETTINGS = "bool across_heads, bool causal, int reach, float share_offset, bool tf32"


@torch.library.custom_op(
    "slotbench::triton_inverted_attention",
    mutates_args=(),
    schema=f"(Tensor query, Tensor bias, Tensor tokens, Tensor? time_bias, bool shares, {_SETTINGS}) "
    "-> (Tensor, Tensor, Tensor)",
)
def _attend(
    query: Tensor, bias: Tensor, tokens: Tensor, time_bias: Tensor | None, shares: bool, *settings: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Gives the sums of the tokens, those of the weights, and the shares of each step's own tokens; none unless asked.

    The settings are those of the schema.
    """
    batch, time, heads, slots, dim = query.shape
    steps, num_tokens = tokens.shape[1:3]
    values, mass, own = _result_shapes(query, bias, tokens, time_bias, shares, *settings)
    sizes, _, splits = _cut(query, tokens, *settings)
    value_parts, mass_parts = _parts_of(values, splits), _parts_of(mass, splits)
    tokens, strides = _read(tokens)
    with on_device_of(query):
        _forward[(batch * time, splits)](
            *(query.contiguous(), bias.contiguous(), tokens, None if time_bias is None else time_bias.contiguous()),
            *(value_parts, mass_parts, own if shares else None),
            *(*strides, time, steps, settings[2], num_tokens, slots, heads, dim),
            **sizes,
        )
    if splits > 1:
        torch.sum(value_parts, 0, out=values)
        torch.sum(mass_parts, 0, out=mass)
    return values, mass, own


@_attend.register_fake
def _result_shapes(
    query: Tensor, bias: Tensor, tokens: Tensor, time_bias: Tensor | None, shares: bool, *settings: Any
) -> tuple[Tensor, Tensor, Tensor]:
    batch, time, _, slots, _ = query.shape
    own = query.new_empty(batch, time, slots, tokens.shape[2]) if shares else query.new_empty(0)
    return query.new_empty(query.shape), bias.new_empty(bias.shape), own


@torch.library.custom_op(
    "slotbench::triton_inverted_attention_backward",
    mutates_args=(),
    schema="(Tensor query, Tensor bias, Tensor tokens, Tensor? time_bias, Tensor grad_values, Tensor grad_mass, "
    f"Tensor? grad_own, bool wants_tokens, {_SETTINGS}) -> (Tensor, Tensor, Tensor, Tensor)",
)
def _gradients(
    query: Tensor,
    bias: Tensor,
    tokens: Tensor,
    time_bias: Tensor | None,
    grad_values: Tensor,
    grad_mass: Tensor,
    grad_own: Tensor | None,
    wants_tokens: bool,
    *settings: Any,
) -> tuple[Tensor, ...]:
    """Gradients of query, bias, tokens and time_bias; empty where not wanted or not given."""
    batch, time, heads, slots, dim = query.shape
    steps, num_tokens = tokens.shape[1:3]
    grad_query, grad_bias, grad_tokens, grad_time_bias = _gradient_shapes(
        query, bias, tokens, time_bias, grad_values, grad_mass, grad_own, wants_tokens, *settings
    )
    sizes, of_tokens, splits = _cut(query, tokens, *settings)
    query_parts, bias_parts = _parts_of(grad_query, splits), _parts_of(grad_bias, splits)
    time_parts = None
    if time_bias is not None:
        time_parts = query.new_zeros(batch, time, steps, of_tokens, heads, slots)
    tokens, strides = _read(tokens)
    given = [
        None if x is None else x.contiguous() for x in (query, bias, None, time_bias, grad_values, grad_mass, grad_own)
    ]
    given[2] = tokens
    counts = (*strides, time, steps, settings[2], num_tokens, slots, heads, dim)
    at_once = wants_tokens and time == 1 and steps == 1
    with on_device_of(query):
        _backward_of_slots[(batch * time, splits)](
            *(*given, query_parts, bias_parts, grad_tokens if at_once else None, time_parts, *counts), **sizes
        )
        if wants_tokens and not at_once:
            _backward_of_tokens[(batch * steps * of_tokens, 1)](*given, grad_tokens, *counts, **sizes)
    if splits > 1:
        torch.sum(query_parts, 0, out=grad_query)
        torch.sum(bias_parts, 0, out=grad_bias)
    if time_parts is not None:
        grad_time_bias = time_parts.sum(dim=(0, 3, 5)).permute(2, 0, 1).contiguous()
    return grad_query, grad_bias, grad_tokens, grad_time_bias


@_gradients.register_fake
def _gradient_shapes(
    query: Tensor,
    bias: Tensor,
    tokens: Tensor,
    time_bias: Tensor | None,
    grad_values: Tensor,
    grad_mass: Tensor,
    grad_own: Tensor | None,
    wants_tokens: bool,
    *settings: Any,
) -> tuple[Tensor, ...]:
    return (
        query.new_empty(query.shape),
        bias.new_empty(bias.shape),
        tokens.new_empty(tokens.shape if wants_tokens else 0),
        query.new_empty(0 if time_bias is None else time_bias.shape),
    )


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    query, bias, tokens, time_bias, ctx.shares, *ctx.settings = inputs
    ctx.save_for_backward(query, bias, tokens, time_bias)
    ctx.set_materialize_grads(False)


def _differentiate(
    ctx: Any, grad_values: Tensor | None, grad_mass: Tensor | None, grad_own: Tensor | None
) -> tuple[Tensor | None, ...]:
    query, bias, tokens, time_bias = ctx.saved_tensors
    grad_values = torch.zeros_like(query) if grad_values is None else grad_values
    grad_mass = torch.zeros_like(bias) if grad_mass is None else grad_mass
    grad_own = grad_own if ctx.shares else None
    wants_tokens = ctx.needs_input_grad[2]
    gradients = _gradients(
        query, bias, tokens, time_bias, grad_values, grad_mass, grad_own, wants_tokens, *ctx.settings
    )
    of_query, of_bias, of_tokens, of_time_bias = gradients
    wanted = (of_tokens if wants_tokens else None, None if time_bias is None else of_time_bias)
    return of_query, of_bias, *wanted, *(None for _ in range(6))


_attend.register_autograd(_differentiate, setup_context=_remember)


def _may_use_tf32() -> bool:
    return torch.get_float32_matmul_precision() != "highest"


_may_use_tf32._dynamo_marked_constant = True  # type: ignore[attr-defined]  # as `choose_kernel`


def inverted_attention_triton(
    query: Tensor,
    bias: Tensor,
    tokens: Tensor,
    time_bias: Tensor | None = None,
    *,
    across_heads: bool = True,
    causal: bool = False,
    window: int | None = None,
    share_offset: float = 0.0,
    shares: bool = True,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The sums of `slotbench.ops.inverted_attention.streamed.streamed_sums`, by the same arguments.

    Query, bias and time_bias are of float32, tokens of float32 or half precision. There are as many steps before the
    first step of slots as there are more steps of tokens.
    """
    # any window that no step looks beyond will do for none
    reach = 2**30 if window is None else window
    settings = across_heads, causal, reach, share_offset, _may_use_tf32()
    values, mass, own = _attend(query, bias, tokens, time_bias, shares, *settings)
    return values, mass, own if shares else None
