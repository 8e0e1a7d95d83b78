"""Rows of channels that may be parts of wider rows, as compiled code reads and writes them."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numba import njit
from torch import Tensor

Rows: TypeAlias = tuple[np.ndarray, int, int]
"""A tensor "batch time ..." as compiled code reads it: a row per step, whose channels lie next to one another.

All that lies between its first and its last entry, and the strides of batch and time. Rows need not lie next to one
another: those of one half of a projection have the other half between them. (A named tuple would be typed anew at each
call, which takes longer than a kernel on a short clip.)
"""


def rows_of(x: Tensor) -> Rows:
    """The memory of x "batch time ..."; a copy only if the entries of a step are not next to one another."""
    length = 1
    for size, stride in zip(reversed(x.shape[2:]), reversed(x.stride()[2:]), strict=True):
        if size != 1 and stride != length:
            x = x.contiguous()
        length *= size
    batch_stride, time_stride = x.stride()[:2]
    extent = (x.shape[0] - 1) * batch_stride + (x.shape[1] - 1) * time_stride + length if x.numel() else 0
    return x.detach().as_strided((extent,), (1,)).numpy(), batch_stride, time_stride


@njit(error_model="numpy")
def row(rows, sample, t, begin, stop):  # type: ignore[no-untyped-def]
    """The channels from `begin` to `stop` of one step, to read or to write."""
    values, batch_stride, time_stride = rows
    start = sample * batch_stride + t * time_stride
    return values[start + begin : start + stop]
