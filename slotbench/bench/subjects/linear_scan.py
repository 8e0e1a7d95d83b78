"""Kernels of the linear scan, forward plus backward, beside the traffic of memory that bounds them.

The bound: whatever runs the scan reads the drive and writes the states going forward, and reads the gradient of the
states and the states and writes the gradient of the drive going back: five times the size S of the drive. `copy` is
torch's copy of 2.5 S, which reads 2.5 S and writes 2.5 S, between buffers that were touched before; `copy, fresh`
copies as much, of which 2 S go to buffers just allocated, as in a training step. `indexed` is the loop that indexes
`drive[:, t]` under autograd, whose backward is quadratic in T.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from slotbench.bench.contest import Contest, Way
from slotbench.bench.subjects import Subject
from slotbench.ops import available_kernels, linear_scan

__all__ = ["SUBJECT"]

SHAPES = [(1, 100, 16, 16, 128), (1, 300, 16, 16, 128)]  # batch, time, rows, cols, states
QUICK_SHAPES = [(1, 20, 8, 8, 32)]
BOUND, FRESH, INDEXED = "copy", "copy, fresh", "indexed"


def contests(quick: bool) -> Iterator[Contest]:
    """One contest per shape; the indexed loop runs in its first round only."""
    kernels = [name for name, reason in available_kernels("linear_scan", "cpu").items() if reason is None]
    for shape in QUICK_SHAPES if quick else SHAPES:
        small, ways = (1, 4, *shape[2:]), partial(_ways, kernels)
        yield Contest.of_shape(shape, small, ways, BOUND, memory=kernels, rare=(INDEXED,))


def _ways(kernels: list[str], shape: tuple[int, ...]) -> dict[str, Way]:
    torch.manual_seed(0)
    batch, _, *frame = shape
    drive, state = torch.randn(shape, dtype=torch.complex64), torch.randn(batch, *frame, dtype=torch.complex64)
    # the decay of a fresh ConvS5: memory of 20 to 2,000 steps
    step = torch.exp(torch.empty(frame[-1]).uniform_(math.log(0.001), math.log(0.1)))
    decay = torch.polar(torch.exp(-step / 2), step * torch.linspace(-300, -0.3, frame[-1]))
    inputs = [value.requires_grad_() for value in (drive, decay, state)]
    gradients = [torch.randn_like(drive), torch.randn_like(state)]
    source, half = drive.detach(), torch.randn(drive.numel() // 2, dtype=torch.complex64)
    goals = [torch.randn_like(source), torch.randn_like(source), torch.randn_like(half)]

    def run(kernel: str) -> tuple[Tensor, ...]:
        return torch.autograd.grad(linear_scan(drive, decay, state, kernel=kernel), inputs, gradients)

    return {
        BOUND: lambda: [goal.copy_(x) for goal, x in zip(goals, (source, source, half), strict=True)],
        FRESH: lambda: (source.clone(), source.clone(), goals[2].copy_(half)),
        **{kernel: lambda kernel=kernel: run(kernel) for kernel in kernels},  # type: ignore[misc]
        INDEXED: lambda: torch.autograd.grad(_indexed_loop(drive, decay, state), inputs, gradients),
    }


def _indexed_loop(drive: Tensor, decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    states = []
    for t in range(drive.shape[1]):
        state = decay * state + drive[:, t]
        states.append(state)
    return torch.stack(states, dim=1), state


SUBJECT = Subject("linear_scan, forward + backward, complex64", "batch, time, rows, cols, states", contests)
