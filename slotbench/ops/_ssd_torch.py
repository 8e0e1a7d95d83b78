"""The scan of Mamba-2 as matrix products over chunks of steps: runs on every device, in float32 and float64.

Within a chunk the output is a causal attention whose weights are C_i . B_j times the decay from step j to step i; what
came before the chunk enters through the state at its start. That is the recurrence with its sums in another order, and
exact. The forward keeps the state at the start of every chunk, the backward recomputes one chunk at a time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from einops import rearrange
from torch import Tensor
from torch.autograd.function import once_differentiable

_CHUNK = 32  # steps


class _Chunk(NamedTuple):
    """One chunk, "batch heads steps channels" or "batch groups steps states"."""

    drive: Tensor
    B: Tensor
    C: Tensor
    since_start: Tensor  # "batch heads steps 1": decay from before the chunk to after step i
    to_end: Tensor  # "batch heads steps 1": decay from step j to the last
    between: Tensor  # "batch heads steps steps": decay from step j to step i, 0 where j > i

    @property
    def weights(self) -> Tensor:
        """How much the drive of step j counts in the output of step i, "batch heads steps steps"."""
        scores = self.C @ self.B.mT
        per_head = self.between.unflatten(1, (scores.shape[1], -1))
        return (scores[:, :, None] * per_head).flatten(1, 2)


class ChunkedSSD(torch.autograd.Function):
    """The recurrence without its skip: (drive = delta x, exponent = delta A, B, C, state) -> (y, last state)."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, drive: Tensor, exponent: Tensor, B: Tensor, C: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        heads, groups = drive.shape[2], B.shape[2]
        y = torch.empty_like(drive)
        states = [state]
        for begin in range(0, drive.shape[1], _CHUNK):
            steps = slice(begin, begin + _CHUNK)
            chunk = _chunk(drive, exponent, B, C, steps)
            y_chunk = chunk.weights @ chunk.drive
            y_chunk += _split_heads(chunk.C @ _by_group(state, groups).mT, heads) * chunk.since_start
            y[:, steps] = y_chunk.transpose(1, 2)
            added = _join_heads(chunk.drive * chunk.to_end, groups).mT @ chunk.B
            state = added.view_as(state).addcmul_(chunk.since_start[:, :, -1:], state)
            states.append(state)
        ctx.save_for_backward(drive, exponent, B, C, y, torch.stack(states))
        return y, state

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_y: Tensor, grad_state: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        drive, exponent, B, C, y, states = ctx.saved_tensors
        heads, groups = drive.shape[2], B.shape[2]
        grad_drive, grad_exponent = torch.empty_like(drive), torch.empty_like(exponent)
        grad_B, grad_C = torch.empty_like(B), torch.empty_like(C)
        with torch.autocast(drive.device.type, enabled=False):
            for index in reversed(range(len(states) - 1)):
                steps = slice(index * _CHUNK, (index + 1) * _CHUNK)
                chunk = _chunk(drive, exponent, B, C, steps)
                before, after = _by_group(states[index], groups), states[index + 1]
                grad_after = _by_group(grad_state, groups)
                grad_chunk = grad_y[:, steps].transpose(1, 2).contiguous()
                grad_inputs = chunk.weights.mT @ grad_chunk
                grad_inputs += _split_heads(chunk.B @ grad_after.mT, heads) * chunk.to_end

                # through the products C_i . B_j inside the chunk, and through the states at its two ends
                grad_scores = _sum_over_heads((grad_chunk @ chunk.drive.mT).mul_(chunk.between), groups)
                from_before = _join_heads(grad_chunk * chunk.since_start, groups)
                into_after = _join_heads(chunk.drive * chunk.to_end, groups)
                grad_C[:, steps] = (grad_scores @ chunk.B + from_before @ before).transpose(1, 2)
                grad_B[:, steps] = (grad_scores.mT @ chunk.C + into_after @ grad_after).transpose(1, 2)

                # The exponents summed up to a step multiply all that comes out at it and divide all that goes in at it;
                # the gradient of one exponent is that of every such sum from its step on.
                came_out = _dot(grad_chunk, y[:, steps].transpose(1, 2))
                went_in = _dot(grad_inputs, chunk.drive)
                grad_sums = came_out - went_in
                grad_sums[..., -1] += _dot(grad_state.flatten(2), after.flatten(2))
                grad_exponent[:, steps] = grad_sums.flip(-1).cumsum(-1).flip(-1).transpose(1, 2)

                grad_drive[:, steps] = grad_inputs.transpose(1, 2)
                carried = grad_state * chunk.since_start[:, :, -1:]
                grad_state = (from_before.mT @ chunk.C).view_as(after).add_(carried)
        return grad_drive, grad_exponent, grad_B, grad_C, grad_state


def _chunk(drive: Tensor, exponent: Tensor, B: Tensor, C: Tensor, steps: slice) -> _Chunk:
    drive, B, C = (x[:, steps].transpose(1, 2).contiguous() for x in (drive, B, C))
    # Sums in double precision: the difference of two large ones must keep the small exponents between them.
    sums = exponent[:, steps].transpose(1, 2).cumsum(-1, dtype=_wide(exponent))
    later = torch.ones(2 * sums.shape[-1:], dtype=torch.bool, device=sums.device).triu(1)
    between = (sums[..., :, None] - sums[..., None, :]).to(exponent.dtype).masked_fill_(later, -torch.inf).exp_()
    since_start = sums.to(exponent.dtype).exp()[..., None]
    return _Chunk(drive, B, C, since_start, between[:, :, -1, :, None], between)


def _wide(x: Tensor) -> torch.dtype:
    # Apple's GPUs have no float64
    return x.dtype if x.device.type == "mps" else torch.float64


def _dot(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum(-1, dtype=_wide(x))


def _sum_over_heads(x: Tensor, groups: int) -> Tensor:
    return rearrange(x, "batch (group n) i j -> batch group n i j", group=groups).sum(2)


def _by_group(state: Tensor, groups: int) -> Tensor:
    return rearrange(state, "batch (group n) channel state -> batch group (n channel) state", group=groups)


def _join_heads(x: Tensor, groups: int) -> Tensor:
    return rearrange(x, "batch (group n) step channel -> batch group step (n channel)", group=groups)


def _split_heads(x: Tensor, heads: int) -> Tensor:
    return rearrange(x, "batch group step (n channel) -> batch (group n) step channel", n=heads // x.shape[1])
