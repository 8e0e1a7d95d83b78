"""The sums of `streamed` by a kernel in Triton, on CUDA, where the slots of a step fit into its registers."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from slotbench.ops._cuda.attention_rows import too_large
from slotbench.ops.dispatch import choose_kernel
from slotbench.ops.inverted_attention.competition import Competition

__all__ = ["fused_sums", "takes_fused"]

FEWEST_WEIGHTS = 2**17
"""Attention weights from which on "auto" takes the kernel: with fewer, its launches take longer than it runs."""

DEVICES = ("cuda",)
"""Kinds of device on which "auto" may take it."""

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def takes_fused(kernel: str, tokens: Tensor, heads: int, slots: int, weights: int) -> bool:
    """Whether the kernel in Triton sums the tokens.

    Args:
        kernel: that was asked for.
        tokens: what is summed.
        heads: of the attention.
        slots: of a step.
        weights: of a call.

    Raises:
        KernelError: it was asked for by name and cannot run.
    """
    if kernel not in ("auto", "triton"):
        return False
    if kernel == "auto" and (tokens.device.type not in DEVICES or weights < FEWEST_WEIGHTS):
        return False
    reason = too_large(heads, slots, tokens.shape[-1])
    if tokens.dtype not in _DTYPES:
        reason = f"computes in float32 and the tokens are {str(tokens.dtype)[6:]}: use kernel='auto'"
    excluded = {} if reason is None else {"triton": reason}
    return choose_kernel("inverted_attention", kernel, tokens.device, excluded) == "triton"


def fused_sums(
    query: Float[Tensor, "batch time heads slots dim"],
    query_bias: Float[Tensor, "batch time heads slots 1"],
    tokens: Float[Tensor, "batch steps tokens dim"],
    time_bias: Float[Tensor, "heads time steps"] | None,
    competition: Competition,
    share_offset: float = 0.0,
    shares: bool = True,
) -> tuple[
    Float[Tensor, "batch time heads slots dim"],
    Float[Tensor, "batch time heads slots 1"],
    Float[Tensor, "batch time slots tokens"] | None,
]:
    """`streamed_sums`, whose arguments these are, in float32; it has no derivative of its own either."""
    from slotbench.ops._cuda.triton_inverted_attention import inverted_attention_triton

    return inverted_attention_triton(
        query,
        query_bias,
        tokens,
        None if time_bias is None else time_bias.to(query.dtype),
        across_heads=competition.across_heads,
        causal=competition.causal,
        window=competition.window,
        share_offset=share_offset,
        shares=shares,
    )
