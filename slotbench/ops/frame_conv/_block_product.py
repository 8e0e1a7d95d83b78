"""A matrix product of a few rows with a panel of columns, summed in registers: the part that numba cannot be told."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

__all__ = ["BLOCK", "VECTOR_BYTES", "multiply_block"]

VECTOR_BYTES = 64 if llvm.get_host_cpu_features().get("avx512f") else 32
"""Of a register, and so the width of a panel."""

BLOCK = 8
"""Rows whose sums are in registers at once."""


@intrinsic
def multiply_block(typing_context: Any, rows: Any, row: Any, panel: Any, out: Any, column: Any) -> Any:
    """out[row : row + BLOCK, column : column + lanes] = rows[row : row + BLOCK] @ panel.

    Args:
        rows: "many depth" with depth of at least 1, contiguous as the others.
        row: the first of the block.
        panel: "depth lanes", where lanes are the numbers of a register.
        out: "many columns".
        column: the first that is written.
    """
    lanes = VECTOR_BYTES * 8 // rows.dtype.bitwidth

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, weights, target = (
            context.make_array(signature.args[at])(context, builder, arguments[at]) for at in (0, 2, 3)
        )
        integer, number = arguments[1].type, context.get_value_type(rows.dtype)
        vector = ir.VectorType(number, lanes)
        depth, width = (builder.extract_value(array.shape, 1) for array in (source, target))
        lines = [builder.add(arguments[1], ir.Constant(integer, line)) for line in range(BLOCK)]
        starts = [builder.mul(line, depth) for line in lines]
        before, loop, end = builder.block, builder.append_basic_block("sum"), builder.append_basic_block("store")
        builder.branch(loop)

        builder.position_at_end(loop)
        at, totals = builder.phi(integer), [builder.phi(vector) for _ in lines]
        of_panel = _load(builder, weights.data, builder.mul(at, ir.Constant(integer, lanes)), vector)
        for total, start in zip(totals, starts, strict=True):
            value = builder.load(builder.gep(source.data, [builder.add(start, at)]))
            product = builder.fmul(_spread(builder, value, vector), of_panel, flags=("contract",))
            total.add_incoming(ir.Constant(vector, [0.0] * lanes), before)
            total.add_incoming(builder.fadd(total, product, flags=("contract",)), loop)
        following = builder.add(at, ir.Constant(integer, 1))
        at.add_incoming(ir.Constant(integer, 0), before)
        at.add_incoming(following, loop)
        builder.cbranch(builder.icmp_signed("<", following, depth), loop, end)

        builder.position_at_end(end)
        for total, line in zip(totals, lines, strict=True):
            place = builder.gep(target.data, [builder.add(builder.mul(line, width), arguments[4])])
            summed = total.incomings[1][0]
            builder.store(summed, builder.bitcast(place, vector.as_pointer()), align=_bytes(vector))
        return context.get_dummy_value()

    return types.void(rows, row, panel, out, column), generate


def _load(builder: Any, data: Any, index: Any, vector: Any) -> Any:
    place = builder.bitcast(builder.gep(data, [index]), vector.as_pointer())
    return builder.load(place, align=_bytes(vector))


def _spread(builder: Any, value: Any, vector: Any) -> Any:
    """The number in every lane."""
    word = ir.IntType(32)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(word, 0))
    lanes = ir.Constant(ir.VectorType(word, vector.count), [0] * vector.count)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), lanes)


def _bytes(vector: Any) -> int:
    """Alignment that may be relied on: that of a number."""
    return 8 if isinstance(vector.element, ir.DoubleType) else 4
