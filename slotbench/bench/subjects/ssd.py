"""Kernels of Mamba-2's scan, forward plus backward, beside Mamba's scan at the same width; its gate and norm."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from slotbench.bench.contest import Contest, Way
from slotbench.bench.subjects import Subject
from slotbench.ops import available_kernels, selective_scan, ssd
from slotbench.ops.gated_norm import gated_rms_norm

__all__ = ["SUBJECT"]

# batch, time, heads, channels of a head, states: first those of a block of width 64
SHAPES = [(96, 6, 4, 20, 16), (96, 20, 4, 20, 16), (32, 320, 4, 20, 16), (8, 1280, 4, 20, 16), (4, 2560, 4, 20, 16)]
SHAPES += [(96, 20, 4, 20, 64), (96, 20, 4, 20, 128), (12, 80, 4, 64, 64), (12, 80, 4, 64, 128), (12, 6, 4, 64, 128)]
QUICK_SHAPES = [(8, 20, 4, 20, 16), (2, 160, 4, 20, 16)]
# batch, time, channels
NORM_SHAPES, QUICK_NORM_SHAPES = [(96, 6, 80), (36, 80, 80), (4, 1280, 80), (36, 80, 512)], [(2, 3, 8)]


def contests(quick: bool) -> Iterator[Contest]:
    """One contest per (batch, time, heads, head_dim, state)."""
    for shape in QUICK_SHAPES if quick else SHAPES:
        yield Contest(
            ", ".join(map(str, shape)),
            lambda shape=shape: _ways(*shape),  # type: ignore[misc]
            "ssd torch",
        )
    for size in QUICK_NORM_SHAPES if quick else NORM_SHAPES:
        yield Contest(", ".join(map(str, size)), partial(_norms, *size), "torch", group="gate and norm")


def _ways(batch: int, steps: int, num_heads: int, head_dim: int, num_states: int) -> dict[str, Way]:
    torch.manual_seed(0)
    inner = num_heads * head_dim
    x = torch.randn(batch, steps, inner).requires_grad_()
    delta = functional.softplus(torch.randn(batch, steps, num_heads) - 3).requires_grad_()
    A = (-torch.rand(num_heads) * 15 - 1).requires_grad_()
    B, C = (torch.randn(batch, steps, num_states).requires_grad_() for _ in range(2))

    def run(op: str, kernel: str) -> tuple[Tensor, ...]:
        if op == "ssd":
            heads = x.unflatten(-1, (num_heads, head_dim))
            outputs = ssd(heads, delta, A, B[:, :, None], C[:, :, None], kernel=kernel)
        else:
            decay = A.repeat_interleave(head_dim)[:, None].expand(inner, num_states)
            outputs = selective_scan(x, delta.repeat_interleave(head_dim, dim=-1), decay, B, C, kernel=kernel)
        return torch.autograd.grad(outputs, [x, delta, A, B, C], [torch.ones_like(output) for output in outputs])

    found = [
        (op, kernel, why) for op in ("ssd", "selective_scan") for kernel, why in available_kernels(op, "cpu").items()
    ]
    return {
        f"{op} {kernel}": lambda op=op, kernel=kernel: run(op, kernel)  # type: ignore[misc]
        for op, kernel, why_not in found
        if why_not is None and (op, kernel) not in (("selective_scan", "reference"), ("selective_scan", "torch"))
    }


def _norms(batch: int, steps: int, dim: int) -> dict[str, Way]:
    """Five gated norms; the gate is a part of wider rows, as in the block."""
    x, weight = torch.randn(batch, steps, dim, requires_grad=True), torch.ones(dim, requires_grad=True)
    gate = torch.randn(batch, steps, 3 * dim)[..., :dim].requires_grad_()
    outer = torch.randn(batch, steps, dim)

    def run(kernel: str) -> None:
        for _ in range(5):
            torch.autograd.grad(gated_rms_norm(x, gate, weight, kernel=kernel), (x, gate, weight), outer)

    return {"torch": partial(run, "torch"), "numba": partial(run, "numba")}


SUBJECT = Subject("ssd, forward + backward, float32", "batch, time, heads, head_dim, state", contests, rounds=5)
