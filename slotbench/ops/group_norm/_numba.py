"""GroupNorm and activation compiled for the CPU, forward and backward.

An image is looked at as rows of one length, in the order of its memory. Channels-last, a row is the channels of a
pixel, or of several where the channels are few, so that it fills a vector register; what belongs to channels is laid
out along the row. Channels first, a row is one channel of the image, and what belongs to channels is one number per
row. An image stays in the cache while it is read three times: for the mean, the variance and the result.

bfloat16 is the upper half of a float32: it is read and rounded (to nearest, ties to even) element by element.

Sums run over blocks in the dtype of the arithmetic and are added up in float64. The gradients of weight and bias are
summed per task and then over the tasks, whose cut does not depend on the number of threads.

Type hints are left off the compiled functions: numba infers the types of each from its arguments.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from torch import Tensor
from torch.autograd.function import once_differentiable

from slotbench.ops._numba_math import LOG2_E, NoAliasCompiler, exp2
from slotbench.ops._threads import run_in_threads

_MAX_TASKS = 32
"""Of the backward pass; each has sums of its own."""

_ROW = 64  # numbers that a row of few channels is filled up to: four registers of 512 bits in float32
_SUMMED = 32  # rows that are summed in the dtype of the arithmetic

# GELU: z / (1 + 2^(z (a + b z^2))), a and b from 2 sqrt(2 / pi) (z + 0.044715 z^3)
_GELU, _GELU_CUBE = 2 * math.sqrt(2 / math.pi), 2 * math.sqrt(2 / math.pi) * 0.044715

_in_rows: Any = njit(pipeline_class=NoAliasCompiler, error_model="numpy", fastmath={"contract"})
_in_sums: Any = njit(pipeline_class=NoAliasCompiler, error_model="numpy", fastmath={"contract", "reassoc"})
_driver: Any = njit(nogil=True, cache=True, error_model="numpy")


@intrinsic
def _read(typing_context: Any, value: Any) -> Any:
    """A stored number as one to compute with: bfloat16, which numba knows as uint16, as float32."""
    if value != types.uint16:
        return value(value), lambda context, builder, signature, arguments: arguments[0]

    def widen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(32)
        bits = builder.shl(builder.zext(arguments[0], word), ir.Constant(word, 16))
        return builder.bitcast(bits, ir.FloatType())

    return types.float32(value), widen


@intrinsic
def _stored(typing_context: Any, value: Any, like: Any) -> Any:
    """The inverse of `_read`, for an array whose elements are like the second argument."""
    if like != types.uint16:
        return like(value, like), lambda context, builder, signature, arguments: arguments[0]

    def narrow(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, half = ir.IntType(32), ir.IntType(16)
        bits = builder.bitcast(arguments[0], word)
        odd = builder.and_(builder.lshr(bits, ir.Constant(word, 16)), ir.Constant(word, 1))
        rounded = builder.add(builder.add(bits, odd), ir.Constant(word, 0x7FFF))
        upper = builder.trunc(builder.lshr(rounded, ir.Constant(word, 16)), half)
        nan = builder.fcmp_unordered("uno", arguments[0], arguments[0])
        return builder.select(nan, ir.Constant(half, 0x7FC0), upper)

    return types.uint16(value, like), narrow


@njit
def _constants(weight):
    """What an activation needs, in the dtype of the arithmetic: a Python float would be float64."""
    one, minus_log2_e, three = weight.dtype.type(1), weight.dtype.type(-LOG2_E), weight.dtype.type(3)
    return one, minus_log2_e, weight.dtype.type(_GELU), weight.dtype.type(_GELU_CUBE), three


@njit(error_model="numpy", fastmath={"contract"})
def _slope(z, gelu, constants):
    """Derivative of the activation at z."""
    one, minus_log2_e, linear, cubic, three = constants
    if gelu:
        share = one / (one + exp2(minus_log2_e * z * (linear + cubic * z * z)))
        return share + z * share * (one - share) * (linear + three * cubic * z * z)
    return one if z > 0 else exp2(-minus_log2_e * z)


@njit(error_model="numpy", fastmath={"contract"})
def _activated(z, gelu, constants):
    one, minus_log2_e, linear, cubic, _ = constants
    if gelu:
        return z / (one + exp2(minus_log2_e * z * (linear + cubic * z * z)))
    return z if z > 0 else exp2(-minus_log2_e * z) - one


@_in_rows
def _add_rows(x, sums):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            sums[j] += _read(x[i, j])


@_in_rows
def _add_squares(x, centre, sums):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            difference = _read(x[i, j]) - centre[j]
            sums[j] += difference * difference


@_in_rows
def _activate_rows(x, centre, scale, bias, gelu, constants, y):
    if gelu:
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                z = (_read(x[i, j]) - centre[j]) * scale[j] + bias[j]
                y[i, j] = _stored(_activated(z, True, constants), x[i, j])
    else:
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                z = (_read(x[i, j]) - centre[j]) * scale[j] + bias[j]
                y[i, j] = _stored(_activated(z, False, constants), x[i, j])


@_in_rows
def _slope_rows(x, outer, centre, rstd, weight, bias, gelu, constants, inner, sum_bias, sum_weight):
    """Gradients `inner` before the activation, and what the rows add to those of bias and weight."""
    for i in range(x.shape[0]):
        if gelu:
            for j in range(x.shape[1]):
                normal = (_read(x[i, j]) - centre[j]) * rstd[j]
                inner[i, j] = _read(outer[i, j]) * _slope(normal * weight[j] + bias[j], True, constants)
        else:
            for j in range(x.shape[1]):
                normal = (_read(x[i, j]) - centre[j]) * rstd[j]
                inner[i, j] = _read(outer[i, j]) * _slope(normal * weight[j] + bias[j], False, constants)
        for j in range(x.shape[1]):
            sum_bias[j] += inner[i, j]
            sum_weight[j] += inner[i, j] * ((_read(x[i, j]) - centre[j]) * rstd[j])


@_in_rows
def _gradient_rows(x, inner, centre, scale, slope, offset, grad):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            value = inner[i, j] * scale[j] - (_read(x[i, j]) - centre[j]) * slope[j] - offset[j]
            grad[i, j] = _stored(value, x[i, j])


@_in_sums
def _sum(row, zero):
    total = zero
    for j in range(row.shape[0]):
        total += _read(row[j])
    return total


@_in_sums
def _sum_squares(row, centre):
    total = centre - centre
    for j in range(row.shape[0]):
        total += (_read(row[j]) - centre) * (_read(row[j]) - centre)
    return total


@_in_sums
def _sum_products(row, inner, centre, zero):
    total = zero
    for j in range(row.shape[0]):
        total += inner[j] * (_read(row[j]) - centre)
    return total


@njit(error_model="numpy")
def _column_sums(x, centre, squares, part, sums):
    """Sums over the rows, of the numbers or of the squares of their differences from the centre."""
    sums[:] = 0
    for begin in range(0, x.shape[0], _SUMMED):
        part[:] = 0
        if squares:
            _add_squares(x[begin : begin + _SUMMED], centre, part)
        else:
            _add_rows(x[begin : begin + _SUMMED], part)
        for j in range(sums.shape[0]):
            sums[j] += part[j]


@njit(error_model="numpy")
def _by_group(columns, channels, groups):
    """Adds up the columns of each group; a row holds its channels once or several times."""
    per_group = channels // groups.shape[0]
    groups[:] = 0
    for j in range(columns.shape[0]):
        groups[j % channels // per_group] += columns[j]


@_driver
def _forward_last(first, last, x, weight, bias, eps, gelu, y, means, rstds):
    _, rows, width = x.shape
    channels, constants = weight.shape[0], _constants(weight)
    groups, per_group = means.shape[1], channels // means.shape[1]
    count = rows * width // groups
    sums, of_groups = np.empty(width), np.empty(groups)
    # by index: numba takes the rows of an array that is unpacked for strided ones
    of_columns = np.empty((4, width), weight.dtype)
    part, centre, scale, offset = of_columns[0], of_columns[1], of_columns[2], of_columns[3]
    for frame in range(first, last):
        _column_sums(x[frame], centre, False, part, sums)
        _by_group(sums, channels, of_groups)
        for g in range(groups):
            means[frame, g] = of_groups[g] / count
        for j in range(width):
            centre[j] = means[frame, j % channels // per_group]
        _column_sums(x[frame], centre, True, part, sums)
        _by_group(sums, channels, of_groups)
        for g in range(groups):
            rstds[frame, g] = 1 / np.sqrt(of_groups[g] / count + eps)
        for j in range(width):
            scale[j] = rstds[frame, j % channels // per_group] * weight[j % channels]
            offset[j] = bias[j % channels]
        _activate_rows(x[frame], centre, scale, offset, gelu, constants, y[frame])


@_driver
def _backward_last(first, last, x, weight, bias, means, rstds, gelu, outer, grad, grad_weight, grad_bias):
    frames, rows, width = x.shape
    channels, constants = weight.shape[0], _constants(weight)
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
            for begin in range(0, rows, _SUMMED):
                end = min(begin + _SUMMED, rows)
                part_bias[:] = 0
                part_weight[:] = 0
                _slope_rows(
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
            _by_group(sum_bias, channels, from_bias)
            _by_group(sum_weight, channels, from_weight)
            for j in range(width):
                g = j % channels // per_group
                slope[j] = rstd[j] * rstd[j] * from_weight[g] / count
                shift[j] = rstd[j] * from_bias[g] / count
                scale[j] *= rstd[j]
            _gradient_rows(x[frame], inner, centre, scale, slope, shift, grad[frame])


@_in_rows
def _activate_row(x, centre, scale, bias, gelu, constants, y):
    if gelu:
        for j in range(x.shape[0]):
            z = (_read(x[j]) - centre) * scale + bias
            y[j] = _stored(_activated(z, True, constants), x[j])
    else:
        for j in range(x.shape[0]):
            z = (_read(x[j]) - centre) * scale + bias
            y[j] = _stored(_activated(z, False, constants), x[j])


@_in_rows
def _slope_row(x, outer, centre, scale, bias, gelu, constants, inner):
    if gelu:
        for j in range(x.shape[0]):
            z = (_read(x[j]) - centre) * scale + bias
            inner[j] = _read(outer[j]) * _slope(z, True, constants)
    else:
        for j in range(x.shape[0]):
            z = (_read(x[j]) - centre) * scale + bias
            inner[j] = _read(outer[j]) * _slope(z, False, constants)


@_in_rows
def _gradient_row(x, inner, centre, scale, slope, offset, grad):
    for j in range(x.shape[0]):
        value = inner[j] * scale - (_read(x[j]) - centre) * slope - offset
        grad[j] = _stored(value, x[j])


@_driver
def _forward_first(first, last, x, weight, bias, eps, gelu, y, means, rstds):
    _, channels, pixels = x.shape
    per_group, constants = channels // means.shape[1], _constants(weight)
    zero = weight.dtype.type(0)
    for frame in range(first, last):
        for g in range(means.shape[1]):
            begin, end, total = g * per_group, (g + 1) * per_group, 0.0
            for c in range(begin, end):
                total += _sum(x[frame, c], zero)
            means[frame, g] = total / (per_group * pixels)
            centre, total = means[frame, g], 0.0
            for c in range(begin, end):
                total += _sum_squares(x[frame, c], centre)
            rstds[frame, g] = 1 / np.sqrt(total / (per_group * pixels) + eps)
            for c in range(begin, end):
                scale = rstds[frame, g] * weight[c]
                _activate_row(x[frame, c], centre, scale, bias[c], gelu, constants, y[frame, c])


@_driver
def _backward_first(first, last, x, weight, bias, means, rstds, gelu, outer, grad, grad_weight, grad_bias):
    frames, channels, pixels = x.shape
    per_group, tasks, constants = channels // means.shape[1], grad_bias.shape[0], _constants(weight)
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
                    _slope_row(row, outer[frame, c], centre, rstd * weight[c], bias[c], gelu, constants, inner[k])
                    of_bias, of_weight = _sum(inner[k], zero), rstd * _sum_products(row, inner[k], centre, zero)
                    grad_bias[task, c] += of_bias
                    grad_weight[task, c] += of_weight
                    from_bias += weight[c] * of_bias
                    from_weight += weight[c] * of_weight
                for k in range(per_group):
                    c = g * per_group + k
                    slope = weight.dtype.type(rstd * rstd * from_weight / (per_group * pixels))
                    offset = weight.dtype.type(rstd * from_bias / (per_group * pixels))
                    _gradient_row(x[frame, c], inner[k], centre, rstd * weight[c], slope, offset, grad[frame, c])


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
