"""Selective scan compiled for the CPU.

One task is one block of at most `_MAX_LANES` channels of one group of samples. Within it the channels are the innermost
axis: a vector register holds neighbouring channels of one state, so the sum over states in y needs no reduction across
the register, and any number of states runs at full speed. The backward recomputes one chunk of steps at a time from the
state before it. Sums over the batch and over the channels are taken in an order that the number of threads does not
change.

Type hints are left off the compiled functions: numba infers the types of each from its arguments.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable

from slotbench.ops._memory import parts_of_rows
from slotbench.ops._numba_math import LOG2_E, NoAliasCompiler, exp2
from slotbench.ops._rows import row, rows_of
from slotbench.ops._threads import run_in_threads

_MAX_LANES = 128  # channels per task, at most
_LANE_UNIT = 32  # a block is padded to a multiple of what the compiler unrolls the innermost loops to
_CHUNK = 16  # steps between two saved states
_MAX_GROUPS = (
    32  # grad_A and grad_D are summed within groups of samples first: one partial sum per group, not per sample
)

_in_step = njit(pipeline_class=NoAliasCompiler, error_model="numpy", fastmath={"contract"})
_with_sums = njit(pipeline_class=NoAliasCompiler, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})
_driver: Any = njit(nogil=True, cache=True, error_model="numpy")


@_in_step
def _read_inputs(u, delta, step_delta, step_drive):
    for j in range(u.shape[0]):
        step_delta[j] = delta[j]
        step_drive[j] = delta[j] * u[j]


@_in_step
def _step(before, after, decay, rates, delta, drive, y, b, c):
    """One step of the block: `after` and `decay` "state lanes" and y "lanes" from the state before."""
    zero = rates.dtype.type(0)
    lanes = delta.shape[0]
    for j in range(lanes):
        y[j] = zero
    for n in range(rates.shape[0]):
        for j in range(lanes):
            factor = exp2(delta[j] * rates[n, j])
            value = factor * before[n, j] + b[n] * drive[j]
            decay[n, j] = factor
            after[n, j] = value
            y[j] += c[n] * value


@_in_step
def _step_in_place(h, rates, delta, drive, y, b, c):
    """One step of the block as `_step` does it, keeping only the state after it."""
    zero = rates.dtype.type(0)
    lanes = delta.shape[0]
    for j in range(lanes):
        y[j] = zero
    for n in range(rates.shape[0]):
        for j in range(lanes):
            value = exp2(delta[j] * rates[n, j]) * h[n, j] + b[n] * drive[j]
            h[n, j] = value
            y[j] += c[n] * value


@_in_step
def _skip(out, y, u, D):
    for j in range(out.shape[0]):
        out[j] = y[j] + D[j] * u[j]


@_in_step
def _gate(out, z):
    one, log2_e = z.dtype.type(1), z.dtype.type(LOG2_E)
    for j in range(out.shape[0]):
        out[j] *= z[j] / (one + exp2(-z[j] * log2_e))


@_in_step
def _reverse_gate(grad_before, grad_z, grad_after, y, u, D, z):
    """From the gradient of the op's output to those of the gate and of y before it."""
    one, log2_e = y.dtype.type(1), y.dtype.type(LOG2_E)
    for j in range(grad_after.shape[0]):
        sigmoid = one / (one + exp2(-z[j] * log2_e))
        grad_z[j] = grad_after[j] * (y[j] + D[j] * u[j]) * sigmoid * (one + z[j] * (one - sigmoid))
        grad_before[j] = grad_after[j] * z[j] * sigmoid


@_with_sums
def _reverse_step(
    grad_h, before, after, decay, rates, delta, drive, grad_y, b, c,
    grad_rates, grad_drive, grad_exponent, grad_b, grad_c,
):  # fmt: skip
    """Takes grad_h from after the step to before it, and adds up or sets the gradients of all that the step used."""
    zero = rates.dtype.type(0)
    lanes = delta.shape[0]
    for j in range(lanes):
        grad_drive[j] = zero
        grad_exponent[j] = zero
    for n in range(rates.shape[0]):
        sum_b, sum_c = zero, zero
        for j in range(lanes):
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


@_in_step
def _reverse_inputs(grad_u, grad_delta, grad_D, grad_drive, grad_exponent, grad_y, u, delta, D):
    ln_2 = u.dtype.type(1 / LOG2_E)
    for j in range(u.shape[0]):
        grad_u[j] = grad_drive[j] * delta[j] + D[j] * grad_y[j]
        grad_delta[j] = grad_drive[j] * u[j] + ln_2 * grad_exponent[j]
        grad_D[j] += grad_y[j] * u[j]


@_driver
def _forward(first, last, u, delta, rates, B, C, D, z, gated, state, y, end, starts):
    _, time, dim = delta.shape
    num_blocks, num_states, lanes = rates.shape
    dtype = delta.dtype
    h = np.zeros((num_states, lanes), dtype)
    step_delta, step_drive, step_y = np.zeros(lanes, dtype), np.zeros(lanes, dtype), np.zeros(lanes, dtype)
    for task in range(first, last):
        sample, block = divmod(task, num_blocks)
        begin, stop = block * lanes, min((block + 1) * lanes, dim)
        block_rates, block_D = rates[block], D[begin:stop]
        h[:] = 0
        step_delta[:] = 0
        step_drive[:] = 0
        h[:, : stop - begin] = state[sample, begin:stop].T
        for t in range(time):
            if starts.shape[0] > 0 and t % _CHUNK == 0:
                starts[sample, block, t // _CHUNK] = h
            step_u = row(u, sample, t, begin, stop)
            step_B, step_C = row(B, sample, t, 0, num_states), row(C, sample, t, 0, num_states)
            _read_inputs(step_u, delta[sample, t, begin:stop], step_delta, step_drive)
            _step_in_place(h, block_rates, step_delta, step_drive, step_y, step_B, step_C)
            _skip(y[sample, t, begin:stop], step_y, step_u, block_D)
            if gated:
                _gate(y[sample, t, begin:stop], row(z, sample, t, begin, stop))
        end[sample, begin:stop] = h[:, : stop - begin].T


@_driver
def _backward(
    first, last, u, delta, rates, B, C, D, z, gated, starts, grad_y, grad_end,
    grad_u, grad_delta, grad_rates, grad_B, grad_C, grad_D, grad_z, grad_state,
):  # fmt: skip
    batch, time, dim = delta.shape
    num_blocks, num_states, lanes = rates.shape
    num_groups = grad_rates.shape[0]
    dtype = delta.dtype
    grad_h = np.zeros((num_states, lanes), dtype)
    states = np.zeros((_CHUNK + 1, num_states, lanes), dtype)
    decays = np.zeros((_CHUNK, num_states, lanes), dtype)
    deltas, drives = np.zeros((_CHUNK, lanes), dtype), np.zeros((_CHUNK, lanes), dtype)
    grads = np.zeros((_CHUNK, lanes), dtype)
    step_y, grad_drive, grad_exponent = np.zeros(lanes, dtype), np.zeros(lanes, dtype), np.zeros(lanes, dtype)
    for task in range(first, last):
        group, block = divmod(task, num_blocks)
        begin, stop = block * lanes, min((block + 1) * lanes, dim)
        block_rates, block_D = rates[block], D[begin:stop]
        block_grad_rates, block_grad_D = grad_rates[group, block], grad_D[group, begin:stop]
        deltas[:] = 0
        drives[:] = 0
        grads[:] = 0
        for sample in range(batch * group // num_groups, batch * (group + 1) // num_groups):
            grad_h[:] = 0
            grad_h[:, : stop - begin] = grad_end[sample, begin:stop].T
            for chunk in range((time - 1) // _CHUNK, -1, -1):
                steps = min(_CHUNK, time - chunk * _CHUNK)
                states[0] = starts[sample, block, chunk]
                for k in range(steps):
                    t = chunk * _CHUNK + k
                    step_u, step_grad = row(u, sample, t, begin, stop), row(grad_y, sample, t, begin, stop)
                    step_B, step_C = row(B, sample, t, 0, num_states), row(C, sample, t, 0, num_states)
                    _read_inputs(step_u, delta[sample, t, begin:stop], deltas[k], drives[k])
                    _step(
                        states[k], states[k + 1], decays[k], block_rates, deltas[k], drives[k], step_y, step_B, step_C
                    )  # fmt: skip
                    if gated:
                        _reverse_gate(
                            grads[k], grad_z[sample, t, begin:stop], step_grad, step_y, step_u, block_D,
                            row(z, sample, t, begin, stop),
                        )  # fmt: skip
                    else:
                        grads[k, : stop - begin] = step_grad
                for k in range(steps - 1, -1, -1):
                    t = chunk * _CHUNK + k
                    step_B, step_C = row(B, sample, t, 0, num_states), row(C, sample, t, 0, num_states)
                    of_block = block * batch + sample
                    _reverse_step(
                        grad_h, states[k], states[k + 1], decays[k], block_rates, deltas[k], drives[k], grads[k],
                        step_B, step_C, block_grad_rates, grad_drive, grad_exponent,
                        row(grad_B, of_block, t, 0, num_states), row(grad_C, of_block, t, 0, num_states),
                    )  # fmt: skip
                    _reverse_inputs(
                        grad_u[sample, t, begin:stop], grad_delta[sample, t, begin:stop], block_grad_D,
                        grad_drive, grad_exponent, grads[k], row(u, sample, t, begin, stop), deltas[k], block_D,
                    )  # fmt: skip
            grad_state[sample, begin:stop] = grad_h[:, : stop - begin].T


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
        num_blocks = -(-dim // _MAX_LANES)
        lanes = _LANE_UNIT * -(-dim // (num_blocks * _LANE_UNIT))
        delta, state = delta.contiguous(), state.contiguous()
        rates = u.new_zeros(num_blocks * lanes, num_states)
        rates[:dim] = A * LOG2_E
        rates = rates.view(num_blocks, lanes, num_states).transpose(1, 2).contiguous()
        skip = u.new_zeros(dim) if D is None else D.contiguous()
        gate = u.new_empty(0, 0, 0) if z is None else z
        saved_chunks = -(-time // _CHUNK) if any(ctx.needs_input_grad) else 0
        starts = u.new_empty(batch if saved_chunks else 0, num_blocks, saved_chunks, num_states, lanes)
        y, end = u.new_empty(u.shape), torch.empty_like(state)
        inputs = _inputs(u, delta, rates, B, C, skip, gate)
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
        grad_u, grad_delta, grad_z = (u.new_empty(x.shape) for x in (u, delta, gate))
        grad_rates = u.new_zeros(num_groups, *rates.shape)
        # one buffer: where B and C are parts of one row, so are their gradients
        grad_B, grad_C = parts_of_rows(u, (num_states,), (num_states,))
        partial = [grad_B, grad_C] if num_blocks == 1 else [u.new_empty(num_blocks, *B.shape) for _ in range(2)]
        grad_D, grad_state = u.new_zeros(num_groups, dim), u.new_empty(batch, dim, num_states)
        grad_inputs = [_array(starts), rows_of(grad_y), _array(grad_end.contiguous())]
        inputs = _inputs(u, delta, rates, B, C, skip, gate)
        outputs: list[Any] = [_array(x) for x in (grad_u, grad_delta, grad_rates)]
        outputs += [rows_of(x.flatten(0, x.ndim - 3)) for x in partial]
        outputs += [_array(x) for x in (grad_D, grad_z, grad_state)]
        run_in_threads(
            lambda first, last: _backward(first, last, *inputs, ctx.gated, *grad_inputs, *outputs),
            num_groups * num_blocks,
            parallel=_is_worth_threads(u, num_states),
        )
        if num_blocks > 1:
            torch.sum(partial[0], 0, out=grad_B)
            torch.sum(partial[1], 0, out=grad_C)
        grad_A = grad_rates.sum(0).transpose(1, 2).reshape(-1, num_states)[:dim]
        return (
            grad_u,
            grad_delta,
            grad_A,
            grad_B,
            grad_C,
            grad_D.sum(0) if ctx.has_skip else None,
            grad_z if ctx.gated else None,
            grad_state,
        )


def _inputs(
    u: Tensor, delta: Tensor, rates: Tensor, B: Tensor, C: Tensor, skip: Tensor, gate: Tensor
) -> tuple[Any, ...]:
    """As the kernels take them: u, B, C and the gate may be parts of wider rows."""
    return rows_of(u), _array(delta), _array(rates), rows_of(B), rows_of(C), _array(skip), rows_of(gate)


def _array(x: Tensor) -> np.ndarray:
    return x.detach().numpy()


def _is_worth_threads(u: Tensor, num_states: int) -> bool:
    return u.numel() * num_states > 200_000  # about 0.1 ms of work
