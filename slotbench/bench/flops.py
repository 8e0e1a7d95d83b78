"""Floating-point operations of a call, counted as PyTorch runs it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

__all__ = ["count_flops"]

Shape = Sequence[int]


def count_flops(call: Callable[[], object], module: nn.Module | None = None) -> int | None:
    """Operations of the matrix products, convolutions and fused attention of a call, a multiply-add being two.

    They are counted by `torch.utils.flop_counter` as they are executed: what a mask takes out of a product or of fused
    attention is counted, and so is what the backward pass computes anew. Everything element by element (softmax, norms,
    scans, gates) is not, nor is what runs outside of PyTorch's own operations, as the numba and CUDA kernels of scans:
    of a state space model it is the maps around the scan.

    Args:
        call: what to run, once.
        module: whose parameters are to need no gradient meanwhile, for a call without one.

    Returns:
        the number; None where the counter cannot follow the call.
    """
    counter = FlopCounterMode(display=False, custom_mapping=_MORE)
    needed = [] if module is None else [p for p in module.parameters() if p.requires_grad]
    try:
        # it follows gradients through what modules return, and stumbles over a parameter in a call without them
        for parameter in needed:
            parameter.requires_grad_(False)
        with counter:
            call()
    except AssertionError:
        return None
    finally:
        for parameter in needed:
            parameter.requires_grad_(True)
    return int(counter.get_total_flops())


def _product(out: Shape, left: Shape, right: Shape, *_: Any, **__: Any) -> int:
    """`out` plus a product of matrices, alone or in a batch, or of a matrix and a vector."""
    return 2 * math.prod(left) * (right[-1] if len(right) > 1 else 1)


def _attention(query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
    return sdpa_flop_count(query, key, value)


def _attention_backward(gradient: Shape, query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
    return sdpa_backward_flop_count(gradient, query, key, value)


_ATEN = torch.ops.aten
_MORE: dict[Any, Callable[..., int]] = {
    **dict.fromkeys((_ATEN.addmm_, _ATEN.baddbmm_, _ATEN.addmv, _ATEN.addmv_), _product),
    _ATEN._scaled_dot_product_flash_attention_for_cpu: _attention,
    _ATEN._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}
"""What PyTorch's counter does not look up: products in place, and its fused attention on a CPU."""
