"""Causal depthwise convolution compiled for the CPU, bias and SiLU included, with a backward that recomputes.

It reads the inputs where they lie, in rows that may be parts of wider ones, and what came before them from the state:
no window is put together.

Type hints are left off the compiled functions: numba infers the types of each from its arguments.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable

from slotbench.ops._numba_math import LOG2_E, NoAliasCompiler, exp2
from slotbench.ops._rows import row, rows_of
from slotbench.ops._threads import run_in_threads

# samples are summed within a group first, so that the filters' gradient needs no partial sum per sample
_MAX_GROUPS = 32

_in_step = njit(pipeline_class=NoAliasCompiler, error_model="numpy", fastmath={"contract"})
_plain = njit(error_model="numpy")
_driver: Any = njit(nogil=True, cache=True, error_model="numpy")


@_in_step
def _four_taps(out, x0, x1, x2, x3, filters, bias):
    f0, f1, f2, f3 = filters[0], filters[1], filters[2], filters[3]
    for j in range(len(out)):
        out[j] = bias[j] + f0[j] * x0[j] + f1[j] * x1[j] + f2[j] * x2[j] + f3[j] * x3[j]


@_in_step
def _add_tap(out, x, weights):
    for j in range(len(out)):
        out[j] += weights[j] * x[j]


@_in_step
def _silu(out):
    one, log2_e = out.dtype.type(1), out.dtype.type(LOG2_E)
    for j in range(len(out)):
        out[j] /= one + exp2(-out[j] * log2_e)


@_in_step
def _reverse_silu(grad, grad_out):
    """`grad` holds the value before the activation, and then the gradient there."""
    one, log2_e = grad.dtype.type(1), grad.dtype.type(LOG2_E)
    for j in range(len(grad)):
        sigmoid = one / (one + exp2(-grad[j] * log2_e))
        grad[j] = grad_out[j] * sigmoid * (one + grad[j] * (one - sigmoid))


@_in_step
def _four_sums(grad, x0, x1, x2, x3, sum0, sum1, sum2, sum3, sum_bias):
    for j in range(len(grad)):
        g = grad[j]
        sum_bias[j] += g
        sum0[j] += g * x0[j]
        sum1[j] += g * x1[j]
        sum2[j] += g * x2[j]
        sum3[j] += g * x3[j]


@_plain
def _seen(x, state, sample, t, dim):
    """The input of step t; of a step before the first, from the state."""
    if t < 0:
        return state[sample, state.shape[1] + t]
    return row(x, sample, t, 0, dim)


@_plain
def _filter(out, x, state, sample, t, filters, bias):
    """The row `out` "dim" of the convolution at step t, before the activation."""
    width, dim = filters.shape
    if width == 4 and t >= 3:
        _four_taps(
            out, row(x, sample, t - 3, 0, dim), row(x, sample, t - 2, 0, dim), row(x, sample, t - 1, 0, dim),
            row(x, sample, t, 0, dim), filters, bias,
        )  # fmt: skip
        return
    out[:] = bias
    for k in range(width):
        _add_tap(out, _seen(x, state, sample, t - width + 1 + k, dim), filters[k])


@_driver
def _forward(first, last, x, filters, bias, state, with_silu, y, end):
    width, dim = filters.shape
    for sample in range(first, last):
        for t in range(y.shape[1]):
            out = y[sample, t]
            _filter(out, x, state, sample, t, filters, bias)
            if with_silu:
                _silu(out)
        for k in range(width - 1):
            end[sample, k] = _seen(x, state, sample, y.shape[1] - width + 1 + k, dim)


@_driver
def _backward(
    first, last, batch, time, x, filters, bias, state, with_silu, grad_y, grad_end,
    grad_x, grad_state, grad_filters, grad_bias,
):  # fmt: skip
    width, dim = filters.shape
    # gradients before the activation of the last `width` steps, that of step t in row t % width
    grads = np.zeros((width, dim), filters.dtype)
    zeros = np.zeros(dim, filters.dtype)
    num_groups = len(grad_bias)
    for group in range(first, last):
        sums = grad_filters[group]
        for sample in range(batch * group // num_groups, batch * (group + 1) // num_groups):
            grads[:] = 0
            # beyond the last step come those whose gradients are zero: they let the last inputs get theirs
            for t in range(time + width - 1):
                grad = grads[t % width]
                if t < time:
                    _reverse_filter(
                        grad, x, state, sample, t, filters, bias, with_silu, row(grad_y, sample, t, 0, dim),
                        sums, grad_bias[group],
                    )  # fmt: skip
                else:
                    grad[:] = 0
                # nothing later sees this input
                seen = t - width + 1
                if width == 4 and 0 <= seen < time - 3:
                    _four_taps(
                        row(grad_x, sample, seen, 0, dim), grad, grads[(t + 3) % 4], grads[(t + 2) % 4],
                        grads[(t + 1) % 4], filters, zeros,
                    )  # fmt: skip
                    continue
                out = _seen(grad_x, grad_state, sample, seen, dim)
                out[:] = 0
                if seen > time - width:
                    out[:] = grad_end[sample, seen - time + width - 1]
                for k in range(width):
                    _add_tap(out, grads[(t - k) % width], filters[k])


@_plain
def _reverse_filter(grad, x, state, sample, t, filters, bias, with_silu, grad_out, sums, sum_bias):
    """Sets `grad` "dim" to the gradient before the activation at step t, and adds those of filters and bias."""
    width, dim = filters.shape
    if with_silu:
        _filter(grad, x, state, sample, t, filters, bias)
        _reverse_silu(grad, grad_out)
    else:
        grad[:] = grad_out
    if width == 4 and t >= 3:
        _four_sums(
            grad, row(x, sample, t - 3, 0, dim), row(x, sample, t - 2, 0, dim), row(x, sample, t - 1, 0, dim),
            row(x, sample, t, 0, dim), sums[0], sums[1], sums[2], sums[3], sum_bias,
        )  # fmt: skip
        return
    sum_bias += grad
    for k in range(width):
        _add_tap(sums[k], grad, _seen(x, state, sample, t - width + 1 + k, dim))


class CausalConv1d(torch.autograd.Function):
    """(inputs, filters "dim width", bias, the width - 1 inputs before, whether SiLU follows) -> (y, last inputs)."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor, with_silu: bool
    ) -> tuple[Tensor, Tensor]:
        filters, state = weight.t().contiguous(), state.contiguous()
        offset = weight.new_zeros(len(weight)) if bias is None else bias.contiguous()
        y, end = x.new_empty(x.shape), state.new_empty(state.shape)
        arrays = [value.detach().numpy() for value in (filters, offset, state)]
        outputs = y.numpy(), end.numpy()
        rows = rows_of(x)
        run_in_threads(
            lambda first, last: _forward(first, last, rows, *arrays, with_silu, *outputs),
            len(x),
            parallel=_is_worth_threads(x),
        )
        ctx.save_for_backward(x, filters, offset, state)
        ctx.has_bias, ctx.with_silu = bias is not None, with_silu
        return y, end

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_y: Tensor, grad_end: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, filters, offset, state = ctx.saved_tensors
        num_groups = min(len(x), _MAX_GROUPS)
        grad_x, grad_state = x.new_empty(x.shape), torch.empty_like(state)
        grad_filters, grad_bias = (value.new_zeros(num_groups, *value.shape) for value in (filters, offset))
        arrays = [value.detach().numpy() for value in (filters, offset, state)]
        inputs = rows_of(x), *arrays, ctx.with_silu, rows_of(grad_y), grad_end.contiguous().numpy()
        outputs = rows_of(grad_x), *(value.numpy() for value in (grad_state, grad_filters, grad_bias))
        run_in_threads(
            lambda first, last: _backward(first, last, *x.shape[:2], *inputs, *outputs),
            num_groups,
            parallel=_is_worth_threads(x),
        )
        grad_of_bias = grad_bias.sum(0) if ctx.has_bias else None
        return grad_x, grad_filters.sum(0).t(), grad_of_bias, grad_state, None


def _is_worth_threads(x: Tensor) -> bool:
    return x.numel() > 100_000  # about 0.1 ms of work
