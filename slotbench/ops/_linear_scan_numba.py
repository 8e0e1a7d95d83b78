"""Linear scan compiled for the CPU: every number is read and written once, at the speed of memory.

One task is one block of pixels of one sample, or of several samples where the pixels are few. It runs through all
steps, so that the state before is still in the cache when the next step reads it. The gradient of the decay is summed
per task and then over the tasks, whose cut does not depend on the number of threads, nor do the bits of the result.

Type hints are left off the compiled functions: numba infers the types of each from its arguments.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable

from slotbench.ops._memory import empty_clip_like
from slotbench.ops._numba_math import NoAliasCompiler
from slotbench.ops._threads import run_in_threads

_BLOCK_BYTES = 32 * 1024  # of one state; two of them and the drive stay in the second level of any cache
_MIN_ROWS = 16  # of a block, so that the partial sums of the decay's gradient are at most 1/16 of the drive

_in_step = njit(pipeline_class=NoAliasCompiler, error_model="numpy", fastmath={"contract"})
_driver: Any = njit(nogil=True, cache=True, error_model="numpy")


@_in_step
def _step(after, before, decay, drive):
    for i in range(after.shape[0]):
        for j in range(after.shape[1]):
            after[i, j] = decay[j] * before[i, j] + drive[i, j]


@_in_step
def _reverse_step(grad, grad_after, decay, outer):
    for i in range(grad.shape[0]):
        for j in range(grad.shape[1]):
            grad[i, j] = np.conj(decay[j]) * grad_after[i, j] + outer[i, j]


@_in_step
def _reverse_start(grad, grad_after, decay):
    for i in range(grad.shape[0]):
        for j in range(grad.shape[1]):
            grad[i, j] = np.conj(decay[j]) * grad_after[i, j]


@_in_step
def _add_decay_gradient(gradient, before, grad):
    for i in range(grad.shape[0]):
        for j in range(grad.shape[1]):
            gradient[j] += np.conj(before[i, j]) * grad[i, j]


@_driver
def _forward(first, last, per_task, rows, drive, decay, state, states):
    batch, time, pixels, _ = drive.shape
    blocks = -(-pixels // rows)
    for task in range(first, last):
        group, block = divmod(task, blocks)
        begin, stop = block * rows, min((block + 1) * rows, pixels)
        for sample in range(group * per_task, min((group + 1) * per_task, batch)):
            decays = decay[sample % decay.shape[0]]
            before = state[sample, begin:stop]
            for t in range(time):
                after = states[sample, t, begin:stop]
                _step(after, before, decays[t % decays.shape[0]], drive[sample, t, begin:stop])
                before = after


@_driver
def _backward(first, last, per_task, rows, states, decay, state, outer, grad_last, grads, grad_decay, grad_state):
    batch, time, pixels, num_states = states.shape
    blocks = -(-pixels // rows)
    of_step = np.zeros(num_states, states.dtype)
    one = np.ones(num_states, states.dtype)
    for task in range(first, last):
        group, block = divmod(task, blocks)
        begin, stop = block * rows, min((block + 1) * rows, pixels)
        for sample in range(group * per_task, min((group + 1) * per_task, batch)):
            decays = decay[sample % decay.shape[0]]
            grad_after, factor = grad_last[sample, begin:stop], one
            for t in range(time - 1, -1, -1):
                grad = grads[sample, t, begin:stop]
                _reverse_step(grad, grad_after, factor, outer[sample, t, begin:stop])
                if grad_decay.shape[0] > 0:
                    before = states[sample, t - 1, begin:stop] if t > 0 else state[sample, begin:stop]
                    # summed by step first: the rounding of a long sum in float32 stays small
                    of_step[:] = 0
                    _add_decay_gradient(of_step, before, grad)
                    grad_decay[group, block, t % grad_decay.shape[2]] += of_step
                grad_after, factor = grad, decays[t % decays.shape[0]]
            _reverse_start(grad_state[sample, begin:stop], grad_after, factor)


class LinearScan(torch.autograd.Function):
    """(drive "batch time pixels state", decay "batch|1 time|1 state", state "batch pixels state") -> (states, last)."""

    @staticmethod
    def forward(ctx: Any, drive: Tensor, decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        drive, decay, state = (x.contiguous().resolve_conj() for x in (drive, decay, state))
        states = empty_clip_like(drive)
        ctx.cut = _cut(drive, decay)
        arrays = [_array(x) for x in (drive, decay, state, states)]
        run_in_threads(
            lambda first, last: _forward(first, last, *ctx.cut, *arrays),
            _num_tasks(drive, *ctx.cut),
            parallel=_is_worth_threads(drive),
        )
        ctx.save_for_backward(decay, state, states)
        return states, states[:, -1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_states: Tensor, grad_last: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        decay, state, states = ctx.saved_tensors
        grad_states, grad_last = (x.contiguous().resolve_conj() for x in (grad_states, grad_last))
        grads, grad_state = empty_clip_like(states), torch.empty_like(state)
        per_task, rows = ctx.cut
        groups = -(-states.shape[0] // per_task) if ctx.needs_input_grad[1] else 0
        grad_decay = decay.new_zeros(groups, -(-states.shape[2] // rows), *decay.shape[1:])
        arrays = [_array(x) for x in (states, decay, state, grad_states, grad_last, grads, grad_decay, grad_state)]
        run_in_threads(
            lambda first, last: _backward(first, last, *ctx.cut, *arrays),
            _num_tasks(states, *ctx.cut),
            parallel=_is_worth_threads(states),
        )
        if not ctx.needs_input_grad[1]:
            return grads, None, grad_state
        grad_decay = grad_decay.sum(1)
        return grads, grad_decay if len(decay) == groups else grad_decay.sum(0, keepdim=True), grad_state


def _cut(drive: Tensor, decay: Tensor) -> tuple[int, int]:
    """How many samples and how many pixels a task has."""
    _, _, pixels, num_states = drive.shape
    rows = max(_MIN_ROWS, _BLOCK_BYTES // (num_states * drive.element_size()))
    shares_sums = decay.shape[0] == 1 and decay.shape[1] > 1
    return -(-_MIN_ROWS // pixels) if shares_sums else 1, rows


def _num_tasks(drive: Tensor, per_task: int, rows: int) -> int:
    return -(-drive.shape[0] // per_task) * -(-drive.shape[2] // rows)


def _array(x: Tensor) -> np.ndarray:
    return x.detach().numpy()


def _is_worth_threads(drive: Tensor) -> bool:
    return drive.numel() > 200_000  # about 0.1 ms of work
