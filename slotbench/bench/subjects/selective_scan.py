"""Kernels of the selective scan, forward plus backward, through the outputs and through the last state."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from slotbench.bench.contest import Contest, Way
from slotbench.bench.subjects import Subject
from slotbench.ops import available_kernels, selective_scan

__all__ = ["SUBJECT"]

SHAPES = [(96, 20, 256, 16), (96, 100, 256, 16), (32, 320, 256, 16), (8, 1280, 256, 16), (4, 2560, 256, 16)]
QUICK_SHAPES = [(8, 20, 64, 16), (2, 160, 64, 16)]


def contests(quick: bool) -> Iterator[Contest]:
    """One contest per (batch, time, inner, state)."""
    kernels = [name for name, reason in available_kernels("selective_scan", "cpu").items() if reason is None]
    for shape in QUICK_SHAPES if quick else SHAPES:
        yield Contest.of_shape(shape, (2, 4, *shape[2:]), partial(_ways, kernels), "reference", memory=kernels)


def _ways(kernels: list[str], shape: tuple[int, ...]) -> dict[str, Way]:
    batch, steps, inner, state = shape
    torch.manual_seed(0)
    inputs: dict[str, Any] = {
        "u": torch.randn(batch, steps, inner),
        "delta": functional.softplus(torch.randn(batch, steps, inner) - 3),
        "A": -torch.arange(1.0, state + 1).repeat(inner, 1),
        "B": torch.randn(batch, steps, state),
        "C": torch.randn(batch, steps, state),
        "D": torch.randn(inner),
        "z": torch.randn(batch, steps, inner),
        "state": torch.randn(batch, inner, state),
    }
    for value in inputs.values():
        value.requires_grad_()
    gradients = (torch.randn(batch, steps, inner), torch.randn(batch, inner, state))

    def run(kernel: str) -> tuple[Tensor, ...]:
        return torch.autograd.grad(selective_scan(**inputs, kernel=kernel), list(inputs.values()), gradients)

    return {kernel: lambda kernel=kernel: run(kernel) for kernel in kernels}  # type: ignore[misc]


SUBJECT = Subject("selective_scan, forward + backward, float32", "batch, time, inner, state", contests, rounds=5)
