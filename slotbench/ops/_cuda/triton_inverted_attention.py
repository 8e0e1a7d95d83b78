"""Inverted attention in Triton: its kernels as ops of torch, in value and gradient.

Sums over tokens are sums of parts, one part per program, so the result is the same bits every time. Products are of the
precision that torch has for its own of float32, but never of bfloat16.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from slotbench.ops._cuda.attention_rows import padded_rows
from slotbench.ops._cuda.launching import OPTIONS, blocks, on_device_of, power_of_two
from slotbench.ops._cuda.triton_inverted_attention_kernels import (
    backward_of_slots,
    backward_of_tokens,
    forward,
)

# at most, of a block: tokens, numbers of them, and weights; then numbers of rows that are multiplied at a time
_BLOCK, _BLOCK_NUMBERS, _WEIGHTS, _CHUNK_NUMBERS = 64, 2**13, 2**10, 2**10
_PROGRAMS = 512  # about four for each multiprocessor of an H100
_FEWEST_BLOCKS = 4  # of a program that is not the only one of its step of slots


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
        forward[(batch * time, splits)](
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
        backward_of_slots[(batch * time, splits)](
            *(*given, query_parts, bias_parts, grad_tokens if at_once else None, time_parts, *counts), **sizes
        )
        if wants_tokens and not at_once:
            backward_of_tokens[(batch * steps * of_tokens, 1)](*given, grad_tokens, *counts, **sizes)
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
