"""Kernels of Mamba-2's scan, forward plus backward, beside Mamba's scan at the same width."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from slotbench.bench.contest import Contest, Way
from slotbench.bench.subjects import Subject
from slotbench.ops import available_kernels, selective_scan, ssd

__all__ = ["SUBJECT"]

SHAPES = [(96, 20), (32, 320), (8, 1280)]
QUICK_SHAPES = [(8, 20), (2, 160)]
HEADS, HEAD_DIM, STATES = 4, 20, 16  # of a block of width 64


def contests(quick: bool) -> Iterator[Contest]:
    """One contest per (batch, time)."""
    for batch, steps in QUICK_SHAPES if quick else SHAPES:
        yield Contest(
            f"{batch}, {steps}",
            lambda batch=batch, steps=steps: _ways(batch, steps),  # type: ignore[misc]
            "ssd reference",
        )


def _ways(batch: int, steps: int) -> dict[str, Way]:
    torch.manual_seed(0)
    inner = HEADS * HEAD_DIM
    x = torch.randn(batch, steps, inner).requires_grad_()
    delta = functional.softplus(torch.randn(batch, steps, HEADS) - 3).requires_grad_()
    A = (-torch.rand(HEADS) * 15 - 1).requires_grad_()
    B, C = (torch.randn(batch, steps, STATES).requires_grad_() for _ in range(2))

    def run(op: str, kernel: str) -> tuple[Tensor, ...]:
        if op == "ssd":
            heads = x.unflatten(-1, (HEADS, HEAD_DIM))
            outputs = ssd(heads, delta, A, B[:, :, None], C[:, :, None], kernel=kernel)
        else:
            decay = A.repeat_interleave(HEAD_DIM)[:, None].expand(inner, STATES)
            outputs = selective_scan(x, delta.repeat_interleave(HEAD_DIM, dim=-1), decay, B, C, kernel=kernel)
        return torch.autograd.grad(outputs, [x, delta, A, B, C], [torch.ones_like(output) for output in outputs])

    found = [
        (op, kernel, why) for op in ("ssd", "selective_scan") for kernel, why in available_kernels(op, "cpu").items()
    ]
    return {
        f"{op} {kernel}": lambda op=op, kernel=kernel: run(op, kernel)  # type: ignore[misc]
        for op, kernel, why_not in found
        if why_not is None and (op, kernel) != ("selective_scan", "reference")
    }


SUBJECT = Subject(
    f"ssd, forward + backward, float32, {HEADS} heads of {HEAD_DIM}, {STATES} states", "batch, time", contests, rounds=5
)
