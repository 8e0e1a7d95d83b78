"""Causal depthwise convolution compiled for the CPU, bias and SiLU included, with a backward that recomputes.

Type hints are left off the compiled functions: numba infers the types of each from its arguments.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable

from slotbench.ops._numba_math import LOG2_E, exp2
from slotbench.ops._threads import run_in_threads

# samples are summed within a group first, so that the filters' gradient needs no partial sum per sample
_MAX_GROUPS = 32


@njit(error_model="numpy", fastmath={"contract"})
def _filter(window, filters, bias, t, out):
    """The row `out` "dim" of the convolution at step t, before the activation."""
    out[:] = bias
    for k in range(filters.shape[0]):
        row = window[t + k]
        for j in range(out.shape[0]):
            out[j] += filters[k, j] * row[j]


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def _forward(first, last, window, filters, bias, with_silu, y):
    one, log2_e = window.dtype.type(1), window.dtype.type(LOG2_E)
    for sample in range(first, last):
        for t in range(y.shape[1]):
            out = y[sample, t]
            _filter(window[sample], filters, bias, t, out)
            if with_silu:
                for j in range(out.shape[0]):
                    out[j] /= one + exp2(-out[j] * log2_e)


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def _backward(first, last, window, filters, bias, with_silu, grad_y, grad_window, grad_filters, grad_bias):
    batch, time, dim = grad_y.shape
    one, log2_e = window.dtype.type(1), window.dtype.type(LOG2_E)
    grad = np.empty(dim, window.dtype)
    num_groups = grad_filters.shape[0]
    for group in range(first, last):
        sum_bias = grad_bias[group]
        for sample in range(batch * group // num_groups, batch * (group + 1) // num_groups):
            for t in range(time):
                grad_out = grad_y[sample, t]
                if with_silu:
                    _filter(window[sample], filters, bias, t, grad)
                    for j in range(dim):
                        sigmoid = one / (one + exp2(-grad[j] * log2_e))
                        grad[j] = grad_out[j] * sigmoid * (one + grad[j] * (one - sigmoid))
                else:
                    grad[:] = grad_out
                for j in range(dim):
                    sum_bias[j] += grad[j]
                for k in range(filters.shape[0]):
                    row, grad_row, sum_row = window[sample, t + k], grad_window[sample, t + k], grad_filters[group, k]
                    for j in range(dim):
                        grad_row[j] += grad[j] * filters[k, j]
                        sum_row[j] += grad[j] * row[j]


class CausalConv1d(torch.autograd.Function):
    """(inputs with their width - 1 predecessors in front, filters "dim width", bias, whether SiLU follows) -> y."""

    @staticmethod
    def forward(ctx: Any, window: Tensor, weight: Tensor, bias: Tensor | None, with_silu: bool) -> Tensor:  # type: ignore[override]
        dim, width = weight.shape
        window, filters = window.contiguous(), weight.t().contiguous()
        offset = window.new_zeros(dim) if bias is None else bias.contiguous()
        y = window.new_empty(window.shape[0], window.shape[1] - width + 1, dim)
        arrays = [x.detach().numpy() for x in (window, filters, offset)]
        run_in_threads(
            lambda first, last: _forward(first, last, *arrays, with_silu, y.numpy()),  # type: ignore[call-arg]
            len(window),
            parallel=_is_worth_threads(window),
        )
        ctx.save_for_backward(window, filters, offset)
        ctx.has_bias, ctx.with_silu = bias is not None, with_silu
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        window, filters, offset = ctx.saved_tensors
        num_groups = min(len(window), _MAX_GROUPS)
        grad_window = torch.zeros_like(window)
        grad_filters, grad_bias = (x.new_zeros(num_groups, *x.shape) for x in (filters, offset))
        arrays = [x.detach().numpy() for x in (window, filters, offset)]
        outputs = [x.numpy() for x in (grad_window, grad_filters, grad_bias)]
        grad_y = grad_y.contiguous()
        run_in_threads(
            lambda first, last: _backward(first, last, *arrays, ctx.with_silu, grad_y.numpy(), *outputs),  # type: ignore[call-arg]
            num_groups,
            parallel=_is_worth_threads(window),
        )
        return grad_window, grad_filters.sum(0).t(), grad_bias.sum(0) if ctx.has_bias else None, None


def _is_worth_threads(window: Tensor) -> bool:
    return window.numel() > 100_000  # about 0.1 ms of work
