"""Causal depthwise convolution in Triton, bias and SiLU included: one program per block of steps and channels.

The inputs before the clip are read from the state where they lie, so no window is put together. The backward computes
the outputs of a block again, and gradients of what samples share as one part per program: the same bits every time.

All arithmetic is in float32. Type hints are left off the kernels: Triton infers the types of each from its arguments.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from slotbench.ops._cuda.launching import OPTIONS, blocks, in_rows, on_device_of, power_of_two


@triton.jit
def _load(pointer, row, channel, is_row, dim):
    return tl.load(
        pointer + row[:, None] + channel[None, :], mask=is_row[:, None] & (channel < dim)[None, :], other=0.0
    )


@triton.jit
def _inputs(x, state, x_row, sample, step, channel, time, dim, WIDTH: tl.constexpr):
    """The inputs "step channel" of some steps, of which those before 0 are in the state."""
    inputs = _load(x, (sample * time + step) * x_row, channel, (step >= 0) & (step < time), dim).to(tl.float32)
    if state is not None:
        row = sample * (WIDTH - 1) + step + WIDTH - 1
        inputs += _load(state, row * dim, channel, (step < 0) & (step > -WIDTH), dim).to(tl.float32)
    return inputs


@triton.jit
def _tap(weight, k, channel, dim, WIDTH: tl.constexpr):
    return tl.load(weight + channel * WIDTH + k, mask=channel < dim, other=0.0).to(tl.float32)[None, :]


@triton.jit
def _filter(x, state, weight, bias, x_row, sample, step, channel, time, dim, WIDTH: tl.constexpr):
    """The outputs "step channel" of some steps before the activation."""
    first = _inputs(x, state, x_row, sample, step - WIDTH + 1, channel, time, dim, WIDTH)
    outputs = first * _tap(weight, 0, channel, dim, WIDTH)
    for k in tl.static_range(1, WIDTH):
        inputs = _inputs(x, state, x_row, sample, step - WIDTH + 1 + k, channel, time, dim, WIDTH)
        outputs += inputs * _tap(weight, k, channel, dim, WIDTH)
    if bias is not None:
        outputs += tl.load(bias + channel, mask=channel < dim, other=0.0).to(tl.float32)[None, :]
    return outputs


@triton.jit
def _forward(
    x,
    weight,
    bias,
    state,
    y,
    x_row,
    time,
    dim,
    WIDTH: tl.constexpr,
    STEPS: tl.constexpr,
    CHANNELS: tl.constexpr,
    SILU: tl.constexpr,
):
    num_blocks = tl.cdiv(time, STEPS)
    sample = tl.program_id(0).to(tl.int64) // num_blocks
    step = (tl.program_id(0) % num_blocks) * STEPS + tl.arange(0, STEPS)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    outputs = _filter(x, state, weight, bias, x_row, sample, step, channel, time, dim, WIDTH)
    if SILU:
        outputs = outputs / (1.0 + tl.exp(-outputs))
    mask = (step < time)[:, None] & (channel < dim)[None, :]
    tl.store(y + ((sample * time + step) * dim)[:, None] + channel[None, :], outputs, mask=mask)


@triton.jit
def _backward(
    x,
    weight,
    bias,
    state,
    grad_y,
    grad_x,
    grad_weight,
    grad_bias,
    grad_state,
    x_row,
    grad_y_row,
    time,
    dim,
    WIDTH: tl.constexpr,
    STEPS: tl.constexpr,
    CHANNELS: tl.constexpr,
    SILU: tl.constexpr,
):
    # the steps of the state count too: they are those from 1 - WIDTH to -1
    num_blocks = tl.cdiv(time + WIDTH - 1, STEPS)
    sample = tl.program_id(0).to(tl.int64) // num_blocks
    step = (tl.program_id(0) % num_blocks) * STEPS + tl.arange(0, STEPS) - (WIDTH - 1)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    is_channel = channel < dim
    grad_inputs = tl.zeros([STEPS, CHANNELS], tl.float32)
    for later in tl.static_range(WIDTH):
        output = step + later  # the outputs that these inputs reached through the tap WIDTH - 1 - later
        row = (sample * time + output) * grad_y_row
        grad = _load(grad_y, row, channel, (output >= 0) & (output < time), dim).to(tl.float32)
        if SILU:
            before = _filter(x, state, weight, bias, x_row, sample, output, channel, time, dim, WIDTH)
            sigmoid = 1.0 / (1.0 + tl.exp(-before))
            grad *= sigmoid * (1.0 + before * (1.0 - sigmoid))
        grad_inputs += grad * _tap(weight, WIDTH - 1 - later, channel, dim, WIDTH)
        if later == 0:
            # one part per program: "part width dim" and "part dim"
            part = tl.program_id(0).to(tl.int64)
            for k in tl.static_range(WIDTH):
                inputs = _inputs(x, state, x_row, sample, step - WIDTH + 1 + k, channel, time, dim, WIDTH)
                total = tl.sum(grad * inputs, axis=0)
                tl.store(grad_weight + (part * WIDTH + k) * dim + channel, total, mask=is_channel)
            if bias is not None:
                tl.store(grad_bias + part * dim + channel, tl.sum(grad, axis=0), mask=is_channel)
    inside = (step >= 0) & (step < time)
    at = ((sample * time + step) * dim)[:, None] + channel[None, :]
    tl.store(grad_x + at, grad_inputs, mask=inside[:, None] & is_channel[None, :])
    if state is not None:
        at = ((sample * (WIDTH - 1) + step + WIDTH - 1) * dim)[:, None] + channel[None, :]
        tl.store(grad_state + at, grad_inputs, mask=(step < 0)[:, None] & is_channel[None, :])


def _cut(steps: int, dim: int, width: int, with_silu: bool) -> tuple[dict[str, Any], int, int]:
    """The sizes that a kernel is compiled for, and how many blocks of steps and of channels there are."""
    sizes = {"WIDTH": width, "STEPS": min(16, power_of_two(steps)), "CHANNELS": min(64, power_of_two(dim))}
    warps = max(1, sizes["STEPS"] * sizes["CHANNELS"] // 256)
    counts = blocks(steps, sizes["STEPS"]), blocks(dim, sizes["CHANNELS"])
    return sizes | OPTIONS | {"SILU": with_silu, "num_warps": warps}, *counts


@torch.library.custom_op(
    "slotbench::triton_causal_conv1d",
    mutates_args=(),
    schema="(Tensor x, Tensor weight, Tensor? bias, Tensor? state, bool with_silu) -> Tensor",
)
def _convolve(x: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor | None, with_silu: bool) -> Tensor:
    batch, time, dim = x.shape
    y = x.new_empty(x.shape)
    x, x_row = in_rows(x)
    bias, state = (None if value is None else value.contiguous() for value in (bias, state))
    sizes, of_steps, of_channels = _cut(time, dim, weight.shape[1], with_silu)
    with on_device_of(x):
        _forward[(batch * of_steps, of_channels)](
            *(x, weight.contiguous(), bias, state, y, x_row, time, dim),
            **sizes,
        )
    return y


@_convolve.register_fake
def _output_shape(x: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor | None, with_silu: bool) -> Tensor:
    return x.new_empty(x.shape)


@torch.library.custom_op(
    "slotbench::triton_causal_conv1d_backward",
    mutates_args=(),
    schema="(Tensor x, Tensor weight, Tensor? bias, Tensor? state, bool with_silu, Tensor grad_y) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
)
def _gradients(
    x: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor | None, with_silu: bool, grad_y: Tensor
) -> tuple[Tensor, ...]:
    """Gradients of x, weight, bias and state; empty without a bias or a state."""
    batch, time, dim = x.shape
    width = weight.shape[1]
    grad_x, _, grad_bias, grad_state = _gradient_shapes(x, weight, bias, state, with_silu, grad_y)
    sizes, of_steps, of_channels = _cut(time + width - 1, dim, width, with_silu)
    grad_weight = grad_bias.new_empty(batch * of_steps, width, dim, dtype=torch.float32)
    if bias is not None:
        grad_bias = grad_weight.new_empty(batch * of_steps, dim)
    x, x_row = in_rows(x)
    grad_y, grad_y_row = in_rows(grad_y)
    bias_, state = (None if value is None else value.contiguous() for value in (bias, state))
    with on_device_of(x):
        _backward[(batch * of_steps, of_channels)](
            *(x, weight.contiguous(), bias_, state, grad_y, grad_x, grad_weight, grad_bias, grad_state),
            *(x_row, grad_y_row, time, dim),
            **sizes,
        )
    if bias is not None:
        grad_bias = grad_bias.sum(0).to(bias.dtype)
    return grad_x, grad_weight.sum(0).t().to(weight.dtype).contiguous(), grad_bias, grad_state


@_gradients.register_fake
def _gradient_shapes(
    x: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor | None, with_silu: bool, grad_y: Tensor
) -> tuple[Tensor, ...]:
    return (
        x.new_empty(x.shape),
        weight.new_empty(weight.shape),
        weight.new_empty(0) if bias is None else bias.new_empty(bias.shape),
        x.new_empty(0) if state is None else state.new_empty(state.shape),
    )


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, bias, state, ctx.with_silu = inputs
    ctx.save_for_backward(x, weight, bias, state)


def _differentiate(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, bias, state = ctx.saved_tensors
    grad_x, grad_weight, grad_bias, grad_state = _gradients(x, weight, bias, state, ctx.with_silu, grad_y)
    return grad_x, grad_weight, None if bias is None else grad_bias, None if state is None else grad_state, None


_convolve.register_autograd(_differentiate, setup_context=_remember)


def causal_conv1d_triton(
    x: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor | None, activation: str | None
) -> Tensor:
    """The outputs of `slotbench.ops.causal_conv1d` in the dtype of x; `state` None stands for zeros."""
    y: Tensor = _convolve(x, weight, bias, state, activation == "silu")
    return y
