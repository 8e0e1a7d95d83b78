"""What aggregations are made of: sums over tokens that keep their precision, and sums over all processes."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

__all__ = ["gather_values", "sum_over_processes", "visible_tokens"]


def gather_values(
    assignment: Float[Tensor, "*batch slots tokens"], values: Float[Tensor, "*#batch tokens dim"]
) -> Float[Tensor, "*batch slots dim"]:
    """Sum of the values by share, in float32 at least, under autocast too.

    The sum over 16,384 tokens of size 4 is above the largest number of float16, and three digits of bfloat16 are few
    for statistics.

    Args:
        assignment: share of each slot in each token.
        values: leading axes of length one are shared by all that `assignment` has there, without a copy.
    """
    dtype = torch.promote_types(torch.promote_types(assignment.dtype, values.dtype), torch.float32)
    with torch.autocast(values.device.type, enabled=False):
        return torch.einsum("...st,...td->...sd", assignment.to(dtype), values.to(dtype))


def visible_tokens(assignment: Float[Tensor, "*batch slots tokens"]) -> Bool[Tensor, "*batch tokens"]:
    """The tokens that were there to be won: those that any slot has a share of. Hidden ones have been set to zero."""
    return assignment.detach().amax(dim=-2) > 0


def sum_over_processes(x: Tensor) -> Tensor:
    """The sum of `x` over the processes of a distributed run, differentiable; `x` itself where there is one process."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()) or distributed.get_world_size() == 1:
        return x
    return _SumOverProcesses.apply(x)


class _SumOverProcesses(torch.autograd.Function):
    """PyTorch's own is deprecated, and its successor has no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone()
        torch.distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        # every process's loss depends on every process's part
        return _SumOverProcesses.apply(gradient.contiguous())
