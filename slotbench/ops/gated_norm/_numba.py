"""Gate and RMSNorm compiled for the CPU, forward and backward.

Some rows at a time: the gate, whose exponential is the expensive part, runs over all of their channels at once, and the
sums over a row read what is still in the cache. The gradient of the weight is summed per task and then over the tasks,
whose cut does not depend on the number of threads.

numba's cache on disk notices a change of this file alone: after an edit of one that it takes functions from, delete
`slotbench/ops/gated_norm/__pycache__`. Type hints are left off the compiled functions: numba infers the types of each
from its arguments.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable

from slotbench.ops._numba_math import LOG2_E, NoAliasCompiler, exp2, sum_products
from slotbench.ops._rows import Rows, row, rows_of
from slotbench.ops._threads import run_in_threads

_AT_ONCE = 16  # rows
_MAX_TASKS = 32

_driver: Any = njit(nogil=True, cache=True, error_model="numpy")
_inner: Any = njit(pipeline_class=NoAliasCompiler, error_model="numpy", fastmath={"contract"})


@_inner
def _gather(rows, first, last, time, dim, out):
    for index in range(first, last):
        source = row(rows, index // time, index % time, 0, dim)
        target = out[(index - first) * dim : (index - first + 1) * dim]
        for j in range(dim):
            target[j] = source[j]


@_inner
def _gate(x, gate, minus_log2_e, one, shares, gated):
    for j in range(gated.shape[0]):
        share = one / (one + exp2(minus_log2_e * gate[j]))
        shares[j] = share
        gated[j] = x[j] * gate[j] * share


@_inner
def _scale(gated, weight, rstd, y):
    for j in range(y.shape[0]):
        y[j] = gated[j] * rstd * weight[j]


@_inner
def _weigh(outer, weight, gated, rstd, weighed, sums):
    for j in range(outer.shape[0]):
        weighed[j] = outer[j] * weight[j]
        sums[j] += outer[j] * gated[j] * rstd


@_inner
def _through_norm(weighed, gated, rstd, slope):
    for j in range(weighed.shape[0]):
        weighed[j] = rstd * weighed[j] - slope * gated[j]


@_inner
def _through_gate(inner, x, gate, shares, one, grad_x, grad_gate):
    for j in range(inner.shape[0]):
        grad_x[j] = inner[j] * gate[j] * shares[j]
        grad_gate[j] = inner[j] * x[j] * shares[j] * (one + gate[j] * (one - shares[j]))


@_driver
def _forward(first, last, time, x, gate, weight, eps, y, rstds):
    dim, groups = weight.shape[0], rstds.shape[1]
    size, one, minus_log2_e = dim // groups, weight.dtype.type(1), weight.dtype.type(-LOG2_E)
    scratch = np.empty((4, _AT_ONCE * dim), weight.dtype)
    for begin in range(first, last, _AT_ONCE):
        end = min(begin + _AT_ONCE, last)
        count = (end - begin) * dim
        values, gates, shares, gated = scratch[0], scratch[1], scratch[2], scratch[3][:count]
        _gather(x, begin, end, time, dim, values)
        _gather(gate, begin, end, time, dim, gates)
        _gate(values, gates, minus_log2_e, one, shares, gated)
        for index in range(begin, end):
            for g in range(groups):
                start = (index - begin) * dim + g * size
                part = gated[start : start + size]
                mean = sum_products(part, part, one - one) / size
                rstds[index, g] = 1 / np.sqrt(mean + eps)
                target = y[index][g * size : (g + 1) * size]
                _scale(part, weight[g * size : (g + 1) * size], rstds[index, g], target)


@_driver
def _backward(first, last, tasks, time, x, gate, weight, rstds, outer, grad_x, grad_gate, grad_weight):
    rows, dim, groups = rstds.shape[0], weight.shape[0], rstds.shape[1]
    size, one, minus_log2_e = dim // groups, weight.dtype.type(1), weight.dtype.type(-LOG2_E)
    scratch, sums = np.empty((6, _AT_ONCE * dim), weight.dtype), np.empty(dim, weight.dtype)
    for task in range(first, last):
        stop = rows * (task + 1) // tasks
        for begin in range(rows * task // tasks, stop, _AT_ONCE):
            end = min(begin + _AT_ONCE, stop)
            count = (end - begin) * dim
            values, gates, shares, gated = scratch[0], scratch[1], scratch[2], scratch[3][:count]
            above, inner = scratch[4], scratch[5][:count]
            _gather(x, begin, end, time, dim, values)
            _gather(gate, begin, end, time, dim, gates)
            _gather(outer, begin, end, time, dim, above)
            _gate(values, gates, minus_log2_e, one, shares, gated)
            sums[:] = 0
            for index in range(begin, end):
                for g in range(groups):
                    start, rstd = (index - begin) * dim + g * size, rstds[index, g]
                    part, weighed = gated[start : start + size], inner[start : start + size]
                    own, total = weight[g * size : (g + 1) * size], sums[g * size : (g + 1) * size]
                    _weigh(above[start : start + size], own, part, rstd, weighed, total)
                    slope = sum_products(weighed, part, one - one) / size * rstd * rstd * rstd
                    _through_norm(weighed, part, rstd, weight.dtype.type(slope))
            to_x, to_gate = grad_x.reshape(-1), grad_gate.reshape(-1)
            place = slice(begin * dim, begin * dim + count)
            _through_gate(inner, values, gates, shares, one, to_x[place], to_gate[place])
            for j in range(dim):
                grad_weight[task, j] += sums[j]


class GatedRMSNorm(torch.autograd.Function):
    """The whole op: (x, gate, weight, num_groups, eps) -> y, as in `slotbench.ops.gated_norm`."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, x: Tensor, gate: Tensor, weight: Tensor, num_groups: int, eps: float
    ) -> Tensor:
        y = torch.empty(x.shape, dtype=x.dtype)
        rows, dim = x.numel() // x.shape[-1], x.shape[-1]
        rstds = x.new_empty(rows, num_groups)
        (values, time), (gates, _) = _rows(x), _rows(gate)
        numbers = weight.detach().contiguous().numpy()
        out, scales = y.view(rows, dim).numpy(), rstds.numpy()
        run_in_threads(
            lambda first, last: _forward(first, last, time, values, gates, numbers, eps, out, scales),
            rows,
            parallel=_is_worth_threads(x),
        )
        ctx.save_for_backward(x, gate, weight, rstds)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, gate, weight, rstds = ctx.saved_tensors
        grad_x, grad_gate = (torch.empty(x.shape, dtype=x.dtype) for _ in range(2))
        rows, dim = x.numel() // x.shape[-1], x.shape[-1]
        tasks = min(_MAX_TASKS, rows)
        grad_weight = np.zeros((tasks, dim))
        (values, time), (gates, _), (outer, _) = _rows(x), _rows(gate), _rows(grad_y)
        numbers = weight.detach().contiguous().numpy()
        to_x, to_gate = (grad.view(rows, dim).numpy() for grad in (grad_x, grad_gate))
        run_in_threads(
            lambda first, last: _backward(
                first, last, tasks, time, values, gates, numbers, rstds.numpy(), outer, to_x, to_gate, grad_weight
            ),
            tasks,
            parallel=_is_worth_threads(x),
        )
        return grad_x, grad_gate, torch.from_numpy(grad_weight.sum(0)).to(weight.dtype), None, None


def _rows(x: Tensor) -> tuple[Rows, int]:
    """The rows of x, and how many of them have one stride; other than three axes are made one."""
    x = x if x.ndim == 3 else x.reshape(1, -1, x.shape[-1])
    return rows_of(x), x.shape[1]


def _is_worth_threads(x: Tensor) -> bool:
    return x.numel() > 50_000
