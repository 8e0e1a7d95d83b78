"""Memory of clips: rows of channels that may be parts of wider rows, and room for results as large as a clip."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numba import njit
from torch import Tensor


class Rows(NamedTuple):
    """A tensor "batch time ..." as compiled code reads it: a row per step, whose channels lie next to one another.

    Rows need not: those of one half of a projection have the other half between them.
    """

    values: np.ndarray  # all that lies between the first and the last entry
    batch_stride: int
    time_stride: int


def rows_of(x: Tensor) -> Rows:
    """The memory of x "batch time ..."; a copy only if the entries of a step are not next to one another."""
    length = 1
    for size, stride in zip(reversed(x.shape[2:]), reversed(x.stride()[2:]), strict=True):
        if size != 1 and stride != length:
            x = x.contiguous()
        length *= size
    batch_stride, time_stride = x.stride()[:2]
    extent = (x.shape[0] - 1) * batch_stride + (x.shape[1] - 1) * time_stride + length if x.numel() else 0
    return Rows(x.detach().as_strided((extent,), (1,)).numpy(), batch_stride, time_stride)


@njit(error_model="numpy")
def row(rows, sample, t, begin, stop):  # type: ignore[no-untyped-def]
    """The channels from `begin` to `stop` of one step, to read or to write."""
    start = sample * rows.batch_stride + t * rows.time_stride
    return rows.values[start + begin : start + stop]


def parts_of_rows(clip: Tensor, *shapes: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Uninitialised tensors "batch time *shape" with batch, time and dtype of `clip`, next to one another in each row."""
    sizes = [math.prod(shape) for shape in shapes]
    rows = clip.new_empty(*clip.shape[:2], sum(sizes))
    parts = rows.split(sizes, dim=-1)
    return tuple(part.unflatten(-1, shape) for part, shape in zip(parts, shapes, strict=True))


def empty_clip_like(clip: Tensor) -> Tensor:
    """An uninitialised contiguous tensor of the same shape, dtype and device.

    On the CPU numpy allocates it: from 4 MB on it asks Linux for pages of 2 MB, which torch does not. Memory comes
    zeroed, page by page, at the first touch, and with pages of 4 kB that takes longer than the scan that fills it.
    """
    if clip.device.type != "cpu":
        return torch.empty_like(clip, memory_format=torch.contiguous_format)
    dtype = np.complex128 if clip.dtype == torch.complex128 else np.complex64
    return torch.from_numpy(np.empty(clip.shape, dtype))
