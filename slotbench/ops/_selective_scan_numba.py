"""Selective scan compiled for the CPU.

One task is one block of `_LANES` channels of one group of samples. Within it the channels are the innermost axis: a vector
register holds neighbouring channels of one state, so the sum over states in y needs no reduction across the register,
and any number of states runs at full speed. The backward recomputes one chunk of steps at a time from the saved state before it.
Sums over the batch and over the channels are taken in an order that the number of threads does not change.

Type hints are left off the compiled functions: numba infers the types of each from its arguments.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import njit
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.extending import intrinsic
from torch import Tensor
from torch.autograd.function import once_differentiable

from slotbench.ops._threads import run_in_threads

_LANES = 64  # channels per task
_CHUNK = 8  # steps between two saved states
_MAX_GROUPS = 32  # samples are summed within a group first, so that grad_A needs one partial sum per group, not per sample


def _exp2_constants(bits: int) -> tuple[int, list[float]]:
    """(bits of the mantissa, coefficients of 2^x on [-1/2, 1/2] in ascending order)."""
    mantissa, degree = (23, 6) if bits == 32 else (52, 11)
    fit = np.polynomial.Chebyshev.interpolate(np.exp2, degree, domain=[-0.5, 0.5])
    return mantissa, fit.convert(kind=np.polynomial.Polynomial).coef.tolist()


class _NoAliasCompiler(CompilerBase):
    """numba's usual pipeline, told that array arguments do not overlap: otherwise half the time goes into checking it."""

    def __init__(self, typing_context, target_context, library, arguments, return_type, flags, local_types):
        flags.noalias = True
        super().__init__(typing_context, target_context, library, arguments, return_type, flags, local_types)

    def define_pipelines(self):
        return [DefaultPassBuilder.define_nopython_pipeline(self.state)]


@intrinsic
def _exp2(typing_context: Any, x: Any) -> Any:
    """2^x: 0 below the normal range, inf above it, NaN for NaN. The library's own exponential would not be vectorised."""
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


_LOG2_E = np.log2(np.e)


@njit(pipeline_class=_NoAliasCompiler, error_model="numpy", fastmath={"contract"})
def _replay_step(before, after, decay, rates, delta, drive, y, b, c):
    """One step of the block: the "state lanes" arrays `after` and `decay`, and y "lanes", from the state before it."""
    for j in range(_LANES):
        y[j] = 0
    for n in range(rates.shape[0]):
        for j in range(_LANES):
            factor = exp2(delta[j] * rates[n, j])
            value = factor * before[n, j] + b[n] * drive[j]
            decay[n, j] = factor
            after[n, j] = value
            y[j] += c[n] * value


@njit(pipeline_class=_NoAliasCompiler, error_model="numpy", fastmath={"contract"})
def _step(h, rates, delta, drive, y, b, c):
    """One step of the block in place, without keeping the decay."""
    for j in range(_LANES):
        y[j] = 0
    for n in range(rates.shape[0]):
        for j in range(_LANES):
            value = exp2(delta[j] * rates[n, j]) * h[n, j] + b[n] * drive[j]
            h[n, j] = value
            y[j] += c[n] * value


@njit(pipeline_class=_NoAliasCompiler, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})
def _reverse_step(
    grad_h, before, after, decay, rates, delta, drive, grad_y, b, c, grad_rates, grad_drive, grad_exponent, grad_b, grad_c
):
    """Takes grad_h from after the step to before it, and adds up or sets the gradients of all that the step used."""
    zero = rates.dtype.type(0)
    for j in range(_LANES):
        grad_drive[j] = zero
        grad_exponent[j] = zero
    for n in range(rates.shape[0]):
        sum_b = zero
        sum_c = zero
        for j in range(_LANES):
            grad = grad_h[n, j] + c[n] * grad_y[j]
            sum_c += grad_y[j] * after[n, j]
            sum_b += grad * drive[j]
            grad_drive[j] += grad * b[n]
            grad *= decay[n, j]
            grad_h[n, j] = grad
            grad *= before[n, j]
            grad_exponent[j] += grad * rates[n, j]
            grad_rates[n, j] += grad * delta[j]
        grad_b[n] = sum_b
        grad_c[n] = sum_c


@njit(nogil=True, cache=True, error_model="numpy")
def _forward(first, last, u, delta, rates, B, C, D, z, gated, state, y, end, starts):
    batch, time, dim = u.shape
    num_states = B.shape[2]
    num_blocks = rates.shape[0]
    dtype = u.dtype
    one, log2_e = dtype.type(1), dtype.type(_LOG2_E)
    h = np.zeros((num_states, _LANES), dtype)
    step_delta, step_drive, step_y = np.zeros(_LANES, dtype), np.zeros(_LANES, dtype), np.zeros(_LANES, dtype)
    for task in range(first, last):
        sample, block = divmod(task, num_blocks)
        offset = block * _LANES
        width = min(_LANES, dim - offset)
        h[:] = 0
        step_delta[:] = 0
        step_drive[:] = 0
        for j in range(width):
            for n in range(num_states):
                h[n, j] = state[sample, offset + j, n]
        for t in range(time):
            if starts.shape[0] > 0 and t % _CHUNK == 0:
                starts[sample, block, t // _CHUNK] = h
            for j in range(width):
                step_delta[j] = delta[sample, t, offset + j]
                step_drive[j] = step_delta[j] * u[sample, t, offset + j]
            _step(h, rates[block], step_delta, step_drive, step_y, B[sample, t], C[sample, t])
            for j in range(width):
                value = step_y[j] + D[offset + j] * u[sample, t, offset + j]
                if gated:
                    gate = z[sample, t, offset + j]
                    value *= gate / (one + exp2(-gate * log2_e))
                y[sample, t, offset + j] = value
        for j in range(width):
            for n in range(num_states):
                end[sample, offset + j, n] = h[n, j]


@njit(nogil=True, cache=True, error_model="numpy")
def _backward(
    first, last, u, delta, rates, B, C, D, z, gated, starts, grad_y, grad_end,
    grad_u, grad_delta, grad_rates, grad_B, grad_C, grad_D, grad_z, grad_state,
):  # fmt: skip
    batch, time, dim = u.shape
    num_states = B.shape[2]
    num_blocks = rates.shape[0]
    num_groups = grad_rates.shape[0]
    dtype = u.dtype
    one, log2_e, ln_2 = dtype.type(1), dtype.type(_LOG2_E), dtype.type(np.log(2.0))
    grad_h = np.zeros((num_states, _LANES), dtype)
    states = np.zeros((_CHUNK + 1, num_states, _LANES), dtype)
    decays = np.zeros((_CHUNK, num_states, _LANES), dtype)
    inputs, deltas = np.zeros((_CHUNK, _LANES), dtype), np.zeros((_CHUNK, _LANES), dtype)
    drives, grads = np.zeros((_CHUNK, _LANES), dtype), np.zeros((_CHUNK, _LANES), dtype)
    step_y, grad_drive, grad_exponent = np.zeros(_LANES, dtype), np.zeros(_LANES, dtype), np.zeros(_LANES, dtype)
    for task in range(first, last):
        group, block = divmod(task, num_blocks)
        offset = block * _LANES
        width = min(_LANES, dim - offset)
        inputs[:] = 0
        deltas[:] = 0
        drives[:] = 0
        grads[:] = 0
        for sample in range(batch * group // num_groups, batch * (group + 1) // num_groups):
            grad_h[:] = 0
            for j in range(width):
                for n in range(num_states):
                    grad_h[n, j] = grad_end[sample, offset + j, n]
            for chunk in range((time - 1) // _CHUNK, -1, -1):
                begin = chunk * _CHUNK
                steps = min(_CHUNK, time - begin)
                states[0] = starts[sample, block, chunk]
                for k in range(steps):
                    t = begin + k
                    for j in range(width):
                        deltas[k, j] = delta[sample, t, offset + j]
                        inputs[k, j] = u[sample, t, offset + j]
                        drives[k, j] = deltas[k, j] * inputs[k, j]
                    _replay_step(
                        states[k], states[k + 1], decays[k], rates[block], deltas[k], drives[k], step_y, B[sample, t], C[sample, t]
                    )
                    for j in range(width):
                        grad = grad_y[sample, t, offset + j]
                        if gated:
                            gate = z[sample, t, offset + j]
                            sigmoid = one / (one + exp2(-gate * log2_e))
                            value = step_y[j] + D[offset + j] * inputs[k, j]
                            grad_z[sample, t, offset + j] = grad * value * sigmoid * (one + gate * (one - sigmoid))
                            grad *= gate * sigmoid
                        grads[k, j] = grad
                for k in range(steps - 1, -1, -1):
                    t = begin + k
                    _reverse_step(
                        grad_h, states[k], states[k + 1], decays[k], rates[block], deltas[k], drives[k], grads[k],
                        B[sample, t], C[sample, t], grad_rates[group, block], grad_drive, grad_exponent,
                        grad_B[block, sample, t], grad_C[block, sample, t],
                    )  # fmt: skip
                    for j in range(width):
                        d = offset + j
                        grad_u[sample, t, d] = grad_drive[j] * deltas[k, j] + D[d] * grads[k, j]
                        grad_delta[sample, t, d] = grad_drive[j] * inputs[k, j] + ln_2 * grad_exponent[j]
                        grad_D[group, d] += grads[k, j] * inputs[k, j]
            for j in range(width):
                for n in range(num_states):
                    grad_state[sample, offset + j, n] = grad_h[n, j]


class SelectiveScan(torch.autograd.Function):
    """The whole op, skip and gate included: (u, delta, A, B, C, D, z, state) -> (y, last state)."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        u: Tensor,
        delta: Tensor,
        A: Tensor,
        B: Tensor,
        C: Tensor,
        D: Tensor | None,
        z: Tensor | None,
        state: Tensor,
    ) -> tuple[Tensor, Tensor]:
        batch, time, dim = u.shape
        num_states = A.shape[1]
        num_blocks = -(-dim // _LANES)
        u, delta, B, C, state = (x.contiguous() for x in (u, delta, B, C, state))
        rates = u.new_zeros(num_blocks * _LANES, num_states)
        rates[:dim] = A * _LOG2_E
        rates = rates.view(num_blocks, _LANES, num_states).transpose(1, 2).contiguous()
        skip = u.new_zeros(dim) if D is None else D.contiguous()
        gate = u.new_empty(0, 0, 0) if z is None else z.contiguous()
        saved_chunks = -(-time // _CHUNK) if any(ctx.needs_input_grad) else 0
        starts = u.new_empty(batch if saved_chunks else 0, num_blocks, saved_chunks, num_states, _LANES)
        y, end = torch.empty_like(u), torch.empty_like(state)
        inputs = [_array(x) for x in (u, delta, rates, B, C, skip, gate)]
        outputs = [_array(x) for x in (state, y, end, starts)]
        run_in_threads(
            lambda first, last: _forward(first, last, *inputs, z is not None, *outputs),
            batch * num_blocks,
            parallel=_is_worth_threads(u, num_states),
        )
        ctx.save_for_backward(u, delta, rates, B, C, skip, gate, starts)
        ctx.has_skip, ctx.gated = D is not None, z is not None
        return y, end

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_y: Tensor, grad_end: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        u, delta, rates, B, C, skip, gate, starts = ctx.saved_tensors
        batch, _, dim = u.shape
        num_blocks, num_states, _ = rates.shape
        num_groups = min(batch, _MAX_GROUPS)
        grad_u, grad_delta, grad_z = torch.empty_like(u), torch.empty_like(u), torch.empty_like(gate)
        grad_rates = u.new_zeros(num_groups, *rates.shape)
        grad_B, grad_C = (u.new_empty(num_blocks, *B.shape) for _ in range(2))
        grad_D, grad_state = u.new_zeros(num_groups, dim), u.new_empty(batch, dim, num_states)
        grad_inputs = [_array(x) for x in (starts, grad_y.contiguous(), grad_end.contiguous())]
        inputs = [_array(x) for x in (u, delta, rates, B, C, skip, gate)]
        outputs = [_array(x) for x in (grad_u, grad_delta, grad_rates, grad_B, grad_C, grad_D, grad_z, grad_state)]
        run_in_threads(
            lambda first, last: _backward(first, last, *inputs, ctx.gated, *grad_inputs, *outputs),
            num_groups * num_blocks,
            parallel=_is_worth_threads(u, num_states),
        )
        grad_A = grad_rates.sum(0).transpose(1, 2).reshape(-1, num_states)[:dim]
        return (
            grad_u,
            grad_delta,
            grad_A,
            grad_B.sum(0),
            grad_C.sum(0),
            grad_D.sum(0) if ctx.has_skip else None,
            grad_z if ctx.gated else None,
            grad_state,
        )


def _array(x: Tensor) -> np.ndarray:
    return x.detach().numpy()


def _is_worth_threads(u: Tensor, num_states: int) -> bool:
    return u.numel() * num_states > 200_000  # about 0.1 ms of work
