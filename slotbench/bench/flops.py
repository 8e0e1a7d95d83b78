"""Floating-point operations of a call, by `torch.utils.flop_counter`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

__all__ = ["count_flops"]

Shape = Sequence[int]


def _product(out: Shape, left: Shape, right: Shape, *_: Any, **__: Any) -> int:
    return 2 * math.prod(left) * (right[-1] if len(right) > 1 else 1)


def _attention(query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
    return sdpa_flop_count(query, key, value)


def _attention_backward(gradient: Shape, query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
    return sdpa_backward_flop_count(gradient, query, key, value)


_ATEN = torch.ops.aten
# what PyTorch's counter leaves out: products in place, and its fused attention on a CPU
_MORE: dict[Any, Callable[..., int]] = {
    **dict.fromkeys((_ATEN.addmm_, _ATEN.baddbmm_, _ATEN.addmv, _ATEN.addmv_), _product),
    _ATEN._scaled_dot_product_flash_attention_for_cpu: _attention,
    _ATEN._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}


def count_flops(call: Callable[[], object], module: nn.Module | None = None) -> int | None:
    """Operations of the matrix products, convolutions and fused attention of a call, a multiply-add being two.

    Element-wise work (softmax, norms, gates) is not counted, nor what numba and CUDA kernels of scans do.

    Args:
        call: what to run, once.
        module: whose parameters are to need no gradient meanwhile, for a call without one.

    Returns:
        The number; None where the counter cannot follow the call.
    """
    counter = FlopCounterMode(display=False, custom_mapping=_MORE)
    # the counter follows gradients through what modules return, and stumbles over a parameter in a call without them
    needed = [] if module is None else [p for p in module.parameters() if p.requires_grad]
    try:
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
