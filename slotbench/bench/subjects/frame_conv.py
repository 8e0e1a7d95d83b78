"""Norm, activation, convolution and residual of a few frames: prepared for many calls against torch's operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from slotbench.bench.contest import Contest, Way
from slotbench.bench.subjects import Subject
from slotbench.nn.resnet_blocks import ResNetBlock

SIZES = ((1, 64, 64, 8), (1, 16, 64, 8), (1, 64, 16, 16), (1, 8, 8, 32), (8, 64, 64, 8), (32, 64, 64, 8))
"""Frames, channels in and out, rows and columns: the blocks of a roll-out of one clip, and of more."""
QUICK_SIZES = ((2, 4, 8, 4),)


def contests(quick: bool) -> Iterator[Contest]:
    """One residual block per size, without gradient."""
    for size in QUICK_SIZES if quick else SIZES:
        yield Contest(" x ".join(map(str, size)), partial(_ways, size, 1 if quick else 20), "torch")


def _ways(size: tuple[int, ...], times: int) -> dict[str, Way]:
    frames, inputs, outputs, side = size
    block = ResNetBlock(inputs, outputs).eval()
    images = torch.randn(frames, inputs, side, side).contiguous(memory_format=torch.channels_last)

    @torch.no_grad()
    def run(way: Callable[[Tensor], Tensor]) -> None:
        for _ in range(times):
            way(images)

    return {"torch": partial(run, block), "prepared": partial(run, block.prepared())}


SUBJECT = Subject(
    "a residual block without gradient, channels-last, float32; a turn is 20 calls",
    "frames x in x out x side",
    contests,
)
