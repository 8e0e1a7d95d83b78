"""Gate and RMSNorm as Mamba-2 ends, forward and backward: the compiled kernel against torch's operations."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from slotbench.bench.contest import Contest, Way
from slotbench.bench.subjects import Subject
from slotbench.ops.gated_norm import gated_rms_norm

SIZES = ((96, 6, 80), (36, 80, 80), (4, 1280, 80), (36, 80, 512))
"""Batch x slots, steps, channels."""
QUICK_SIZES = ((2, 3, 8),)


def contests(quick: bool) -> Iterator[Contest]:
    """One per size; the gate is a part of wider rows, as in the block."""
    for size in QUICK_SIZES if quick else SIZES:
        yield Contest(", ".join(map(str, size)), partial(_ways, size, 1 if quick else 5), "torch")


def _ways(size: tuple[int, int, int], times: int) -> dict[str, Way]:
    batch, steps, dim = size
    x, weight = torch.randn(size, requires_grad=True), torch.ones(dim, requires_grad=True)
    gate = torch.randn(batch, steps, 3 * dim)[..., :dim].requires_grad_()
    outer = torch.randn(size)

    def run(kernel: str) -> None:
        for _ in range(times):
            torch.autograd.grad(gated_rms_norm(x, gate, weight, kernel=kernel), (x, gate, weight), outer)

    return {"torch": partial(run, "torch"), "numba": partial(run, "numba")}


SUBJECT = Subject(
    "gate and RMSNorm, forward and backward, float32; a turn is 5 calls", "batch x slots, steps, channels", contests
)
