"""What every scan does with its arguments before a kernel sees them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def compute_dtype(inputs: Iterable[Tensor | None]) -> torch.dtype:
    """float64 if any input is, float32 otherwise."""
    return torch.float64 if any(x is not None and x.dtype == torch.float64 for x in inputs) else torch.float32


def without_autocast(device: torch.device) -> AbstractContextManager:
    """A context in which matrix products keep the dtype of their arguments."""
    if torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def check_shapes(
    op: str,
    beside: Mapping[str, Tensor],
    expected: Mapping[str, tuple[Tensor | None, tuple[int, ...], str]],
) -> None:
    """Compares every tensor of `expected` (name -> tensor, shape, axes in words) with its shape and device.

    Args:
        op: name of the op, for the error.
        beside: the tensors that the expected shapes follow from, by name; all must be on the device of the first.
        expected: what is expected of the others; those that are None were left out.
    """
    first, *_ = beside
    device = beside[first].device
    for name, (value, shape, words) in expected.items():
        if value is None:
            continue
        if tuple(value.shape) != shape:
            given = " and ".join(f"{name} {tuple(value.shape)}" for name, value in beside.items())
            raise ValueError(
                f"{op} takes {name} as {words} = {shape} beside {given}, and got the shape {tuple(value.shape)}"
            )
        if value.device != device:
            raise ValueError(
                f"{op} got {first} on {device} and {name} on {value.device}: move it with .to({first}.device)"
            )
