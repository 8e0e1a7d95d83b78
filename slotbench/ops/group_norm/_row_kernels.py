"""What the compiled GroupNorm does to the rows of an image: sums, activation, gradients.

bfloat16 is the upper half of a float32: it is read and rounded (to nearest, ties to even) element by element.

numba's cache on disk notices a change of the file that a cached kernel stands in (`_numba.py`), not of this one: after
an edit here, delete `slotbench/ops/group_norm/__pycache__`.

Type hints are left off the compiled functions: numba infers the types of each from its arguments.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from slotbench.ops._numba_math import LOG2_E, NoAliasCompiler, exp2

SUMMED = 32  # rows that are summed in the dtype of the arithmetic

# GELU: z / (1 + e^(-z (a + b z^2))), a and b from 2 sqrt(2 / pi) (z + 0.044715 z^3)
_GELU, _GELU_CUBE = 2 * math.sqrt(2 / math.pi), 2 * math.sqrt(2 / math.pi) * 0.044715

_in_rows: Any = njit(pipeline_class=NoAliasCompiler, error_model="numpy", fastmath={"contract"})
_in_sums: Any = njit(pipeline_class=NoAliasCompiler, error_model="numpy", fastmath={"contract", "reassoc"})


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
def activation_constants(weight):
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
    """The activation at z: GELU, or else ELU."""
    one, minus_log2_e, linear, cubic, _ = constants
    if gelu:
        return z / (one + exp2(minus_log2_e * z * (linear + cubic * z * z)))
    return z if z > 0 else exp2(-minus_log2_e * z) - one


@_in_rows
def add_rows(x, sums):
    """Adds the rows of x "rows columns" to `sums` "columns"."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            sums[j] += _read(x[i, j])


@_in_rows
def add_squares(x, centre, sums):
    """Adds the squares of the differences of x "rows columns" from `centre` "columns" to `sums` "columns"."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            difference = _read(x[i, j]) - centre[j]
            sums[j] += difference * difference


@_in_rows
def activate_rows(x, centre, scale, bias, gelu, constants, y):
    """Sets y "rows columns" to the activation of (x - centre) scale + bias, each of these three "columns"."""
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
def slope_rows(x, outer, centre, rstd, weight, bias, gelu, constants, inner, sum_bias, sum_weight):
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
def gradient_rows(x, inner, centre, scale, slope, offset, grad):
    """Sets grad "rows columns", the gradient of x, from `inner` "rows columns"; the other four are "columns"."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            value = inner[i, j] * scale[j] - (_read(x[i, j]) - centre[j]) * slope[j] - offset[j]
            grad[i, j] = _stored(value, x[i, j])


@_in_sums
def row_sum(row, zero):
    """Sum of row "columns", begun at `zero`, which has the dtype of the arithmetic."""
    total = zero
    for j in range(row.shape[0]):
        total += _read(row[j])
    return total


@_in_sums
def sum_squares(row, centre):
    """Sum of the squares of the differences of row "columns" from `centre`, one number."""
    total = centre - centre
    for j in range(row.shape[0]):
        total += (_read(row[j]) - centre) * (_read(row[j]) - centre)
    return total


@_in_sums
def sum_products(row, inner, centre, zero):
    """Sum of the products of `inner` "columns" with the differences of row "columns" from `centre`, one number."""
    total = zero
    for j in range(row.shape[0]):
        total += inner[j] * (_read(row[j]) - centre)
    return total


@njit(error_model="numpy")
def column_sums(x, centre, squares, part, sums):
    """Sums over the rows, of the numbers or of the squares of their differences from the centre."""
    sums[:] = 0
    for begin in range(0, x.shape[0], SUMMED):
        part[:] = 0
        if squares:
            add_squares(x[begin : begin + SUMMED], centre, part)
        else:
            add_rows(x[begin : begin + SUMMED], part)
        for j in range(sums.shape[0]):
            sums[j] += part[j]


@njit(error_model="numpy")
def by_group(columns, channels, groups):
    """Adds up the columns of each group; a row holds its channels once or several times."""
    per_group = channels // groups.shape[0]
    groups[:] = 0
    for j in range(columns.shape[0]):
        groups[j % channels // per_group] += columns[j]


@_in_rows
def activate_row(x, centre, scale, bias, gelu, constants, y):
    """`activate_rows` for x "columns" of one channel, whose centre, scale and bias are numbers."""
    if gelu:
        for j in range(x.shape[0]):
            z = (_read(x[j]) - centre) * scale + bias
            y[j] = _stored(_activated(z, True, constants), x[j])
    else:
        for j in range(x.shape[0]):
            z = (_read(x[j]) - centre) * scale + bias
            y[j] = _stored(_activated(z, False, constants), x[j])


@_in_rows
def slope_row(x, outer, centre, scale, bias, gelu, constants, inner):
    """Sets `inner` "columns", the gradients before the activation, from those after it, `outer` "columns"."""
    if gelu:
        for j in range(x.shape[0]):
            z = (_read(x[j]) - centre) * scale + bias
            inner[j] = _read(outer[j]) * _slope(z, True, constants)
    else:
        for j in range(x.shape[0]):
            z = (_read(x[j]) - centre) * scale + bias
            inner[j] = _read(outer[j]) * _slope(z, False, constants)


@_in_rows
def gradient_row(x, inner, centre, scale, slope, offset, grad):
    """`gradient_rows` for x "columns" of one channel, whose four coefficients are numbers."""
    for j in range(x.shape[0]):
        value = inner[j] * scale - (_read(x[j]) - centre) * slope - offset
        grad[j] = _stored(value, x[j])
