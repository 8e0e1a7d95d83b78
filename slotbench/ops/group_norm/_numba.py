"""GroupNorm and activation compiled for the CPU, forward and backward.

An image is looked at as rows of one length, in the order of its memory. Channels-last, a row is the channels of a
pixel, or of several where the channels are few, so that it fills a vector register; what belongs to channels is laid
out along the row. Channels first, a row is one channel of the image, and what belongs to channels is one number per
row. An image stays in the cache while it is read three times: for the mean, the variance and the result.

Sums run over blocks in the dtype of the arithmetic and are added up in float64. The gradients of weight and bias are
summed per task and then over the tasks, whose cut does not depend on the number of threads.

Type hints are left off the compiled functions: numba infers the types of each from its arguments.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable

from slotbench.ops._threads import run_in_threads
from slotbench.ops.group_norm._row_kernels import (
    SUMMED,
    activate_row,
    activate_rows,
    activation_constants,
    by_group,
    column_sums,
    gradient_row,
    gradient_rows,
    row_sum,
    slope_row,
    slope_rows,
    sum_products,
    sum_squares,
)

_MAX_TASKS = 32
"""Of the backward pass; each has sums of its own."""

_ROW = 64  # numbers that a row of few channels is filled up to: four registers of 512 bits in float32

_driver: Any = njit(nogil=True, cache=True, error_model="numpy")


@_driver
def _forward_last(first, last, x, weight, bias, eps, gelu, y, means, rstds):
    _, rows, width = x.shape
    channels, constants = weight.shape[0], activation_constants(weight)
    groups, per_group = means.shape[1], channels // means.shape[1]
    count = rows * width // groups
    sums, of_groups = np.empty(width), np.empty(groups)
    # by index: numba takes the rows of an array that is unpacked for strided ones
    of_columns = np.empty((4, width), weight.dtype)
    part, centre, scale, offset = of_columns[0], of_columns[1], of_columns[2], of_columns[3]
    for frame in range(first, last):
        column_sums(x[frame], centre, False, part, sums)
        by_group(sums, channels, of_groups)
        for g in range(groups):
            means[frame, g] = of_groups[g] / count
        for j in range(width):
            centre[j] = means[frame, j % channels // per_group]
        column_sums(x[frame], centre, True, part, sums)
        by_group(sums, channels, of_groups)
        for g in range(groups):
            rstds[frame, g] = 1 / np.sqrt(of_groups[g] / count + eps)
        for j in range(width):
            scale[j] = rstds[frame, j % channels // per_group] * weight[j % channels]
            offset[j] = bias[j % channels]
        activate_rows(x[frame], centre, scale, offset, gelu, constants, y[frame])


@_driver
def _backward_last(first, last, x, weight, bias, means, rstds, gelu, outer, grad, grad_weight, grad_bias):
    frames, rows, width = x.shape
    channels, constants = weight.shape[0], activation_constants(weight)
    groups, per_group, tasks = means.shape[1], channels // means.shape[1], grad_bias.shape[0]
    count = rows * width // groups
    inner = np.empty((rows, width), weight.dtype)
    of_columns = np.empty((8, width), weight.dtype)
    centre, rstd, scale, offset = of_columns[0], of_columns[1], of_columns[2], of_columns[3]
    slope, shift, part_bias, part_weight = of_columns[4], of_columns[5], of_columns[6], of_columns[7]
    sum_bias, sum_weight, from_bias, from_weight = np.empty(width), np.empty(width), np.empty(groups), np.empty(groups)
    for task in range(first, last):
        for frame in range(frames * task // tasks, frames * (task + 1) // tasks):
            for j in range(width):
                centre[j] = means[frame, j % channels // per_group]
                rstd[j] = rstds[frame, j % channels // per_group]
                scale[j], offset[j] = weight[j % channels], bias[j % channels]
            sum_bias[:] = 0
            sum_weight[:] = 0
            for begin in range(0, rows, SUMMED):
                end = min(begin + SUMMED, rows)
                part_bias[:] = 0
                part_weight[:] = 0
                slope_rows(
                    x[frame, begin:end],
                    outer[frame, begin:end],
                    centre,
                    rstd,
                    scale,
                    offset,
                    gelu,
                    constants,
                    inner[begin:end],
                    part_bias,
                    part_weight,
                )
                for j in range(width):
                    sum_bias[j] += part_bias[j]
                    sum_weight[j] += part_weight[j]
            for j in range(width):
                grad_bias[task, j % channels] += sum_bias[j]
                grad_weight[task, j % channels] += sum_weight[j]
                sum_bias[j] *= scale[j]
                sum_weight[j] *= scale[j]
            by_group(sum_bias, channels, from_bias)
            by_group(sum_weight, channels, from_weight)
            for j in range(width):
                g = j % channels // per_group
                slope[j] = rstd[j] * rstd[j] * from_weight[g] / count
                shift[j] = rstd[j] * from_bias[g] / count
                scale[j] *= rstd[j]
            gradient_rows(x[frame], inner, centre, scale, slope, shift, grad[frame])


@_driver
def _forward_first(first, last, x, weight, bias, eps, gelu, y, means, rstds):
    _, channels, pixels = x.shape
    per_group, constants = channels // means.shape[1], activation_constants(weight)
    zero = weight.dtype.type(0)
    for frame in range(first, last):
        for g in range(means.shape[1]):
            begin, end, total = g * per_group, (g + 1) * per_group, 0.0
            for c in range(begin, end):
                total += row_sum(x[frame, c], zero)
            means[frame, g] = total / (per_group * pixels)
            centre, total = means[frame, g], 0.0
            for c in range(begin, end):
                total += sum_squares(x[frame, c], centre)
            rstds[frame, g] = 1 / np.sqrt(total / (per_group * pixels) + eps)
            for c in range(begin, end):
                scale = rstds[frame, g] * weight[c]
                activate_row(x[frame, c], centre, scale, bias[c], gelu, constants, y[frame, c])


@_driver
def _backward_first(first, last, x, weight, bias, means, rstds, gelu, outer, grad, grad_weight, grad_bias):
    frames, channels, pixels = x.shape
    per_group, tasks, constants = channels // means.shape[1], grad_bias.shape[0], activation_constants(weight)
    zero = weight.dtype.type(0)
    inner = np.empty((per_group, pixels), weight.dtype)
    for task in range(first, last):
        for frame in range(frames * task // tasks, frames * (task + 1) // tasks):
            for g in range(means.shape[1]):
                centre, rstd = means[frame, g], rstds[frame, g]
                from_bias, from_weight = 0.0, 0.0
                for k in range(per_group):
                    c = g * per_group + k
                    row = x[frame, c]
                    slope_row(row, outer[frame, c], centre, rstd * weight[c], bias[c], gelu, constants, inner[k])
                    of_bias, of_weight = row_sum(inner[k], zero), rstd * sum_products(row, inner[k], centre, zero)
                    grad_bias[task, c] += of_bias
                    grad_weight[task, c] += of_weight
                    from_bias += weight[c] * of_bias
                    from_weight += weight[c] * of_weight
                for k in range(per_group):
                    c = g * per_group + k
                    slope = weight.dtype.type(rstd * rstd * from_weight / (per_group * pixels))
                    offset = weight.dtype.type(rstd * from_bias / (per_group * pixels))
                    gradient_row(x[frame, c], inner[k], centre, rstd * weight[c], slope, offset, grad[frame, c])


class GroupNormActivation(torch.autograd.Function):
    """(x "frames channels *space", groups, weight, bias, eps, activation) -> y."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, x: Tensor, num_groups: int, weight: Tensor, bias: Tensor, eps: float, activation: str
    ) -> Tensor:
        y, means, rstds = _run_forward(x, num_groups, weight, bias, eps, activation)
        ctx.save_for_backward(x, weight, bias)
        ctx.statistics, ctx.activation = (means, rstds), activation
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, weight, bias = ctx.saved_tensors
        (means, rstds), activation = ctx.statistics, ctx.activation
        last = _is_channels_last(x)
        x = x if last else x.contiguous()
        grad_x = torch.empty_like(x)
        numbers = _parameters(x, weight, bias)
        tasks = min(x.shape[0], _MAX_TASKS)
        grads = [np.zeros((tasks, x.shape[1])) for _ in range(2)]
        outer = _rows(_like(grad_y, last), last)
        images, grad = _rows(x, last), _rows(grad_x, last)
        kernel = _backward_last if last else _backward_first
        run_in_threads(
            lambda first, end: kernel(
                first, end, images, *numbers, means, rstds, activation != "elu", outer, grad, *grads
            ),
            tasks,
            parallel=_is_worth_threads(x),
        )
        of_weight, of_bias = (
            torch.from_numpy(sums.sum(0)).to(parameter.dtype)
            for sums, parameter in zip(grads, (weight, bias), strict=True)
        )
        return grad_x, None, of_weight, of_bias, None, None


def norm_and_activate(x: Tensor, num_groups: int, weight: Tensor, bias: Tensor, eps: float, activation: str) -> Tensor:
    """`group_norm_activation`, compiled."""
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad or bias.requires_grad):
        return GroupNormActivation.apply(x, num_groups, weight, bias, eps, activation)
    return _run_forward(x, num_groups, weight, bias, eps, activation)[0]


def _run_forward(
    x: Tensor, num_groups: int, weight: Tensor, bias: Tensor, eps: float, activation: str
) -> tuple[Tensor, np.ndarray, np.ndarray]:
    last = _is_channels_last(x)
    x = x if last else x.contiguous()
    y = torch.empty_like(x)
    numbers = _parameters(x, weight, bias)
    means, rstds = np.empty((2, x.shape[0], num_groups), numbers[0].dtype)
    images, out = _rows(x, last), _rows(y, last)
    kernel = _forward_last if last else _forward_first
    run_in_threads(
        lambda first, end: kernel(first, end, images, *numbers, eps, activation != "elu", out, means, rstds),
        x.shape[0],
        parallel=_is_worth_threads(x),
    )
    return y, means, rstds


def _is_channels_last(x: Tensor) -> bool:
    if x.ndim == 4:  # the quicker way to ask
        return x.is_contiguous(memory_format=torch.channels_last)
    return x.movedim(1, -1).is_contiguous()


def _like(grad: Tensor, last: bool) -> Tensor:
    """The gradient in the layout of the images."""
    return grad.movedim(1, -1).contiguous().movedim(-1, 1) if last else grad.contiguous()


def _rows(x: Tensor, last: bool) -> np.ndarray:
    """Images as "frames rows width" in the order of their memory."""
    if x.requires_grad:
        x = x.detach()
    array = x.view(torch.int16).numpy().view(np.uint16) if x.dtype == torch.bfloat16 else x.numpy()
    frames, channels = array.shape[:2]
    if not last:
        return array.reshape(frames, channels, -1)
    pixels, together = math.prod(array.shape[2:]), 1
    while channels * together < _ROW and pixels % (2 * together) == 0:
        together *= 2
    array = array.transpose(0, *range(2, array.ndim), 1)
    return array.reshape(frames, pixels // together, channels * together)


def _parameters(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[np.ndarray, np.ndarray]:
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    if weight.dtype != dtype or bias.dtype != dtype:
        weight, bias = weight.to(dtype), bias.to(dtype)
    return np.ascontiguousarray(weight.detach().numpy()), np.ascontiguousarray(bias.detach().numpy())


def _is_worth_threads(x: Tensor) -> bool:
    return x.numel() > 50_000  # about 0.1 ms of work
