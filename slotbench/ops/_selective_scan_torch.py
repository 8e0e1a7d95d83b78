"""Selective scan in plain torch operations with its own backward: runs on every device, in float32 and float64.

Autograd would keep several tensors of size batch x time x dim x state. Here the forward keeps the SSM state at the
start of every chunk of steps, and the backward recomputes one chunk at a time.
"""

from __future__ import annotations

from typing import Any

import torch
from einops import rearrange
from torch import Tensor
from torch.autograd.function import once_differentiable

_CHUNK = 16  # steps


class SelectiveScan(torch.autograd.Function):
    """The recurrence alone, without the D and z terms: (u, delta, A, B, C, state) -> (y, last state)."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor, exact_zoh: bool
    ) -> tuple[Tensor, Tensor]:
        y = torch.empty_like(u)
        starts = []
        for begin in range(0, u.shape[1], _CHUNK):
            starts.append(state)
            steps = slice(begin, begin + _CHUNK)
            _, _, states = _states_of_chunk(u, delta, A, B, state, steps, exact_zoh)
            y[:, steps] = _over_states(states, _time_first(C, steps)).transpose(0, 1)
            # a copy: the chunk's other states must not live as long as this one
            state = states[-1].clone()
        ctx.save_for_backward(u, delta, A, B, C, torch.stack(starts))
        ctx.exact_zoh = exact_zoh
        return y, state

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_y: Tensor, grad_state: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        u, delta, A, B, C, starts = ctx.saved_tensors
        grad_u, grad_delta = torch.empty_like(u), torch.empty_like(delta)
        grad_B, grad_C = torch.empty_like(B), torch.empty_like(C)
        grad_A = torch.zeros_like(A)
        grad_h = grad_state
        with torch.autocast(u.device.type, enabled=False):
            for index in reversed(range(len(starts))):
                steps = slice(index * _CHUNK, (index + 1) * _CHUNK)
                decay, gain, states = _states_of_chunk(u, delta, A, B, starts[index], steps, ctx.exact_zoh)
                u_chunk, delta_chunk = _time_first(u, steps), _time_first(delta, steps)
                B_chunk, C_chunk, grad_y_chunk = (_time_first(x, steps) for x in (B, C, grad_y))

                # gradient of every state: through its own output, and through the state after it
                grads = grad_y_chunk[..., None] * C_chunk[:, :, None, :]
                for k in reversed(range(len(grads))):
                    grads[k].add_(grad_h)
                    grad_h = grads[k] * decay[k]

                grad_C[:, steps] = _over_dim(states, grad_y_chunk).transpose(0, 1)
                # from here on `decay` holds the gradient of the exponent delta * A
                decay[1:].mul_(states[:-1])
                decay[0].mul_(starts[index])
                decay.mul_(grads)
                if ctx.exact_zoh:
                    # gain = expm1(delta A) / A, whose derivative is exp(delta A) in delta
                    # and (delta exp(delta A) - gain) / A in A
                    grad_B[:, steps] = _over_dim(grads * gain, u_chunk).transpose(0, 1)
                    grad_u[:, steps] = _over_states(grads * gain, B_chunk).transpose(0, 1)
                    grad_gain = grads.mul_(B_chunk[:, :, None, :]).mul_(u_chunk[..., None])
                    slope = torch.exp(delta_chunk[..., None] * A)
                    direct = (grad_gain * slope).sum(-1)
                    grad_A += (grad_gain * (slope * delta_chunk[..., None] - gain) / A).sum((0, 1))
                else:
                    grad_B[:, steps] = _over_dim(grads, delta_chunk * u_chunk).transpose(0, 1)
                    product = _over_states(grads, B_chunk)
                    grad_u[:, steps] = (product * delta_chunk).transpose(0, 1)
                    direct = product * u_chunk
                grad_delta[:, steps] = (direct + (decay * A).sum(-1)).transpose(0, 1)
                grad_A += decay.mul_(delta_chunk[..., None]).sum((0, 1))
        return grad_u, grad_delta, grad_A, grad_B, grad_C, grad_h, None


def _time_first(x: Tensor, steps: slice) -> Tensor:
    return rearrange(x[:, steps], "batch time ... -> time batch ...").contiguous()


def _over_states(states: Tensor, weights: Tensor) -> Tensor:
    """Sums "time batch dim state" against "time batch state" to "time batch dim"."""
    return torch.matmul(states, weights[..., None]).squeeze(-1)


def _over_dim(states: Tensor, weights: Tensor) -> Tensor:
    """Sums "time batch dim state" against "time batch dim" to "time batch state"."""
    return torch.matmul(weights[..., None, :], states).squeeze(-2)


def _states_of_chunk(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, state: Tensor, steps: slice, exact_zoh: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """(decay, gain of B u, state after each step), each "time batch dim state"."""
    delta_chunk, u_chunk = _time_first(delta, steps), _time_first(u, steps)
    B_chunk = _time_first(B, steps)
    exponent = delta_chunk[..., None] * A
    if exact_zoh:
        gain = torch.expm1(exponent).div_(A)
        states = gain * B_chunk[:, :, None, :] * u_chunk[..., None]
    else:
        gain = delta_chunk[..., None]
        states = (delta_chunk * u_chunk)[..., None] * B_chunk[:, :, None, :]
    decay = exponent.exp_()
    for k in range(len(states)):
        state = states[k].addcmul_(decay[k], state)
    return decay, gain, states
