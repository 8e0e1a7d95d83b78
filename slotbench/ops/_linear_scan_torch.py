"""The linear scan in plain torch operations with its own backward, on every device, in complex64 and complex128.

Autograd would keep a tensor per step and return to each of them. Here the forward writes every state into one buffer,
the backward every gradient into another, and the rest that a step needs has the size of one state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from slotbench.ops._memory import empty_clip_like


class LinearScan(torch.autograd.Function):
    """(drive "batch time pixels state", decay "batch|1 time|1 state", state "batch pixels state") -> (states, last)."""

    @staticmethod
    def forward(ctx: Any, drive: Tensor, decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        states = empty_clip_like(drive)
        before = state
        for drive_t, decay_t, after in zip(
            drive.unbind(1), decay_of_steps(decay, drive.shape[1]), states.unbind(1), strict=True
        ):
            torch.addcmul(drive_t, decay_t, before, out=after)
            before = after
        ctx.save_for_backward(decay, state, states)
        return states, before.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_states: Tensor, grad_last: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        decay, state, states = ctx.saved_tensors
        time = states.shape[1]
        grads = empty_clip_like(states)
        gradient = DecayGradient(decay, state) if ctx.needs_input_grad[1] else None
        decays = decay_of_steps(decay.conj().resolve_conj(), time)
        befores = (state, *states.unbind(1)[:-1])
        outer, grad = grad_states.unbind(1), grads.unbind(1)
        for t in reversed(range(time)):
            if t == time - 1:
                torch.add(outer[t], grad_last, out=grad[t])
            else:
                torch.addcmul(outer[t], decays[t + 1], grad[t + 1], out=grad[t])
            if gradient is not None:
                gradient.add(t, befores[t], grad[t])
        grad_state = decays[0] * grad[0] if ctx.needs_input_grad[2] else None
        return grads, None if gradient is None else gradient.total(), grad_state


class DecayGradient:
    """Sums conj(h_{t-1}) g_t over all that the decay is broadcast over, in memory of the size of two states."""

    def __init__(self, decay: Tensor, state: Tensor) -> None:
        self._gradient = torch.zeros_like(decay)
        self._before = torch.empty_like(state, memory_format=torch.contiguous_format)
        self._sum = torch.zeros_like(self._before)

    def add(self, t: int, before: Tensor, grad: Tensor) -> None:
        """Takes in step t, from the state before it and the gradient of the state after it, "batch pixels state"."""
        torch.conj_physical(before, out=self._before)
        if self._gradient.shape[1] == 1:
            self._sum.addcmul_(self._before, grad)
        else:
            self._gradient[:, t] = self._over_broadcast(self._before.mul_(grad))

    def total(self) -> Tensor:
        """The gradient, "batch|1 time|1 state"."""
        if self._gradient.shape[1] == 1:
            self._gradient[:, 0] = self._over_broadcast(self._sum)
        return self._gradient

    def _over_broadcast(self, products: Tensor) -> Tensor:
        per_sample = products.sum(1)
        return per_sample if self._gradient.shape[0] == products.shape[0] else per_sample.sum(0, keepdim=True)


def decay_of_steps(decay: Tensor, time: int) -> Sequence[Tensor]:
    """The decay of each step as "batch|1 1 state"; a uniform one is the same tensor every time."""
    steps = decay[:, :, None].unbind(1)
    return steps * time if len(steps) == 1 else steps
