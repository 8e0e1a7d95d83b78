"""Memory of results: parts of wider rows, split without copies of their gradients, and tensors as large as a clip."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


class _SplitChannels(torch.autograd.Function):
    """Views of parts of the last axis; their gradients become one tensor, without a copy if they are one already."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, sizes: tuple[int, ...]) -> tuple[Tensor, ...]:  # type: ignore[override]
        return x.split(sizes, dim=-1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        if torch.is_grad_enabled():
            # a second derivative: tensors taken out of memory have no history
            return torch.cat(grads, dim=-1), None
        first = grads[0]
        offset = first.storage_offset() + first.shape[-1]
        for other in grads[1:]:
            same_memory = other.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
            if not same_memory or other.stride() != first.stride() or other.storage_offset() != offset:
                return torch.cat(grads, dim=-1), None
            offset += other.shape[-1]
        width = offset - first.storage_offset()
        if first.stride(-1) != 1 or first.dtype != grads[-1].dtype:
            return torch.cat(grads, dim=-1), None
        return first.as_strided((*first.shape[:-1], width), first.stride()), None


def split_channels(x: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """`x.split(sizes, dim=-1)`, whose backward copies no gradients that lie next to one another in one buffer.

    The kernels compiled for the CPU write the gradients of what may be parts of one row so (`parts_of_rows`).

    Args:
        x: "... channels".
        sizes: channels of every part.
    """
    return _SplitChannels.apply(x, tuple(sizes))


def parts_of_rows(clip: Tensor, *shapes: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Uninitialised tensors "batch time *shape" for batch, time and dtype of `clip`, side by side in each row."""
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
