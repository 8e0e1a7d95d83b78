"""Memory for results as large as a whole clip."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def empty_clip_like(clip: Tensor) -> Tensor:
    """An uninitialised contiguous tensor of the same shape, dtype and device.

    On the CPU numpy allocates it: from 4 MB on it asks Linux for pages of 2 MB, which torch does not. Memory comes
    zeroed, page by page, at the first touch, and with pages of 4 kB that takes longer than the scan that fills it.
    """
    if clip.device.type != "cpu":
        return torch.empty_like(clip, memory_format=torch.contiguous_format)
    dtype = np.complex128 if clip.dtype == torch.complex128 else np.complex64
    return torch.from_numpy(np.empty(clip.shape, dtype))
