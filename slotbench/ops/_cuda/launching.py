"""What every Triton kernel needs around its launch: the device, and rows that may lie apart in memory."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

OPTIONS = {"num_stages": 1, "enable_fp_fusion": True}
"""Of every launch. One stage: no load may move ahead of the stores and the barrier that stand before it."""

_MOST_WARPS = 12
"""Of a multiprocessor: as many as find registers there in the backward of the selective scan (168 a thread)."""
_FEWEST_STEPS = 256
"""Of a span of time: on an H200 a scan of 300 steps took little longer than one of 6, as launching took most of it."""


def on_device_of(x: Tensor) -> AbstractContextManager:
    """Makes the device of `x` the one that Triton launches on."""
    return torch.cuda.device(x.device) if x.device.type == "cuda" else nullcontext()


def in_rows(x: Tensor) -> tuple[Tensor, int]:
    """`x` "batch time dim", and how many elements its rows "dim" lie apart, batch after batch; copied only if need be.

    So one part of a projection that has been split along its last axis is read where it lies.
    """
    batch, time, dim = x.shape
    row = x.stride(1) if time > 1 else x.stride(0)
    if (x.stride(2) == 1 or dim == 1) and (batch == 1 or time == 1 or x.stride(0) == time * row):
        return x, row
    return x.contiguous(), dim


def blocks(size: int, block: int) -> int:
    """How many blocks cover `size`."""
    return -(-size // block)


def power_of_two(size: int) -> int:
    """The smallest one that is not below `size`."""
    return 1 << (size - 1).bit_length()


def multiprocessors(device: torch.device) -> int:
    """Those of a CUDA device; 0 of any other."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 0


def num_spans(time: int, warps: int, multiprocessors: int) -> int:
    """How many spans of time a scan is cut into, so that they fill a device: one, unless warps are few and steps many.

    Args:
        time: steps.
        warps: of a scan of one span, all programs together.
        multiprocessors: of the device.
    """
    wanted = multiprocessors * _MOST_WARPS // max(1, warps)
    return max(1, min(wanted, time // _FEWEST_STEPS))
