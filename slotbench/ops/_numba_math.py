"""What the compiled kernels share: an exponential that the compiler can vectorise, a sum of products, and arguments
that do not overlap.

numba's cache on disk notices a change of the file that a kernel stands in, not of this one: after an edit here, delete
`slotbench/ops/__pycache__`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.extending import intrinsic

LOG2_E = float(np.log2(np.e))


def _exp2_constants(bits: int) -> tuple[int, list[float]]:
    """(bits of the mantissa, coefficients of 2^x on [-1/2, 1/2] in ascending order)."""
    mantissa, degree = (23, 6) if bits == 32 else (52, 11)
    fit = np.polynomial.Chebyshev.interpolate(np.exp2, degree, domain=[-0.5, 0.5])
    return mantissa, fit.convert(kind=np.polynomial.Polynomial).coef.tolist()


class NoAliasCompiler(CompilerBase):
    """numba's usual pipeline, told that arrays do not overlap, so that inner loops are vectorised unchecked."""

    def __init__(
        self,
        typing_context: Any,
        target_context: Any,
        library: Any,
        arguments: Any,
        return_type: Any,
        flags: Any,
        local_types: Any,
    ) -> None:
        flags.noalias = True
        super().__init__(typing_context, target_context, library, arguments, return_type, flags, local_types)

    def define_pipelines(self) -> list[Any]:
        return [DefaultPassBuilder.define_nopython_pipeline(self.state)]


@intrinsic
def _exp2(typing_context: Any, x: Any) -> Any:
    """2^x: 0 below the normal range, inf above it, NaN for NaN. The system's own exponential is not vectorised."""
    bits = x.bitwidth
    mantissa, coefficients = _exp2_constants(bits)
    # adding it leaves x, rounded to an integer, in the lowest bits of the mantissa
    rounder = 1.5 * 2.0**mantissa
    top = 2.0 ** (bits - mantissa - 2)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (x,) = arguments
        real, integer = x.type, ir.IntType(bits)
        contract = ("contract",)

        def constant(value: float) -> ir.Constant:
            return ir.Constant(real, value)

        too_small = builder.fcmp_ordered("<", x, constant(3.0 - top))
        x = builder.select(builder.fcmp_ordered(">", x, constant(top)), constant(top), x)
        rounded = builder.fadd(x, constant(rounder))
        rest = builder.fsub(x, builder.fsub(rounded, constant(rounder)))
        power = constant(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            power = builder.fadd(builder.fmul(power, rest, flags=contract), constant(coefficient), flags=contract)
        exponent = builder.shl(builder.bitcast(rounded, integer), ir.Constant(integer, mantissa))
        power = builder.bitcast(builder.add(builder.bitcast(power, integer), exponent), real)
        return builder.select(too_small, constant(0.0), power)

    return x(x), codegen


@njit
def exp2(x):
    """2^x; a function of its own, so that the callers' freedom to reorder sums does not reach into it."""
    return _exp2(x)


@njit(error_model="numpy", fastmath={"contract", "reassoc"})
def sum_products(a, b, zero):
    """The inner product of two rows, in any order; `zero` is of the type of their numbers."""
    total = zero
    for j in range(a.shape[0]):
        total += a[j] * b[j]
    return total
