"""GroupNorm and activation: the compiled kernel against torch's two operations, forward and with the backward."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from slotbench.bench.contest import Contest, Way
from slotbench.bench.subjects import Subject
from slotbench.ops import available_kernels, group_norm_activation

SIZES = ((74, 64, 8, 8), (74, 8, 32, 32), (74, 16, 16, 16), (16, 256, 16, 16), (1, 64, 8, 8), (1, 8, 32, 32))
"""Frames, channels, rows, columns: ConvS5 and its encoder over a clip, the paper's width, one frame of a roll-out."""
QUICK_SIZES = ((3, 8, 4, 4),)


def contests(quick: bool) -> Iterator[Contest]:
    """One per size, activation and dtype, channels-last; forward and backward, then forward alone."""
    for name, gradient in (("forward and backward", True), ("forward", False)):
        for dtype in (torch.float32, torch.bfloat16):
            for size in QUICK_SIZES if quick else SIZES:
                for activation in ("gelu_tanh", "elu"):
                    label = f"{' x '.join(map(str, size))} {activation}"
                    ways = partial(_ways, size, activation, dtype, gradient, 1 if quick else 20)
                    yield Contest(label, ways, "torch", group=f"{name}, {str(dtype)[6:]}")


def _ways(size: tuple[int, ...], activation: str, dtype: torch.dtype, gradient: bool, times: int) -> dict[str, Way]:
    channels = size[1]
    x, outer = (torch.randn(size).to(dtype).contiguous(memory_format=torch.channels_last) for _ in range(2))
    weight, bias = torch.randn(channels), torch.randn(channels)
    for value in (x, weight, bias):
        value.requires_grad_(gradient)

    def run(kernel: str) -> None:
        for _ in range(times):
            y = group_norm_activation(x, min(32, channels), weight, bias, 1e-6, activation, kernel=kernel)
            if gradient:
                torch.autograd.grad(y, (x, weight, bias), outer)

    kernels = [name for name, reason in available_kernels("group_norm_activation").items() if reason is None]
    return {kernel: partial(run, kernel) for kernel in kernels if kernel != "reference"}


SUBJECT = Subject(
    "GroupNorm and activation, channels-last; a turn is 20 calls", "frames x channels x rows x columns", contests
)
