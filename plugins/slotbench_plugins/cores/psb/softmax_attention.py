"""Attention in which slots do not compete: each spreads one softmax over all tokens that its step may see."""

from __future__ import annotations

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from slotbench.nn.attention import check_heads
from slotbench.nn.linear import xavier_linear
from slotbench.nn.temporal_attention import TimeBias
from slotbench.ops.inverted_attention import TokenMemory

__all__ = ["SoftmaxAttention"]


class SoftmaxAttention(nn.Module):
    """Ordinary cross-attention from slots to the tokens of all steps that they may see.

    Weights sum to 1 over the tokens, not over the slots, so that several slots may read the same. A bias by time tells
    the steps apart here with one head too, where inverted attention is blind to it. All weights are there at once:
    memory grows with slots x tokens x steps^2.

    Source: PSB (Singh et al., 2024), Section 5.3, the ablation without inverted attention. Maps are those of
    `InvertedAttention` without biases.

    Args:
        dim: width of a slot and of a token.
        num_heads: heads, which must divide `dim`.
    """

    def __init__(self, dim: int, num_heads: int = 1):
        super().__init__()
        check_heads(dim, num_heads)
        self.num_heads = num_heads
        self.query = xavier_linear(dim, dim, bias=False)
        self.key_value = xavier_linear(dim, dim, maps=2, bias=False)
        self.output = xavier_linear(dim, dim, bias=False)

    def forward(
        self,
        slots: Float[Tensor, "batch time slots dim"],
        memory: TokenMemory,
        *,
        causal: bool = True,
        window: int | None = None,
        time_bias: TimeBias | None = None,
        shares: bool = True,
    ) -> tuple[Float[Tensor, "batch time slots dim"], Float[Tensor, "batch time slots tokens"] | None]:
        """(updates, weights of the tokens of each slot's own step, mean over the heads; None without `shares`)."""
        time, num_slots = slots.shape[1:3]
        steps, num_tokens = memory.size
        tokens = memory.tokens
        if memory.norm is not None:
            tokens = tokens * memory.norm.weight + memory.norm.bias
        pattern = "batch time tokens (part heads dim) -> part batch heads (time tokens) dim"
        key, value = rearrange(self.key_value(tokens), pattern, part=2, heads=self.num_heads)
        query = rearrange(
            self.query(slots), "batch time slots (heads dim) -> batch heads (time slots) dim", heads=self.num_heads
        )
        steps_apart = _logits_of_steps(time, steps, causal, window, time_bias, query)
        added = steps_apart[:, :, None, :, None].expand(-1, -1, num_slots, -1, num_tokens)
        added = added.reshape(-1, time * num_slots, steps * num_tokens)
        own = None
        if shares:
            weights = (query * query.shape[-1] ** -0.5 @ key.mT + added).softmax(dim=-1)
            read = weights @ value
            each = weights.mean(dim=1).view(-1, time, num_slots, steps, num_tokens)
            now = torch.arange(time, device=slots.device)
            own = each[:, now, :, now + steps - time].transpose(0, 1)
        else:
            read = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=added)
        merged = rearrange(read, "batch heads (time slots) dim -> batch time slots (heads dim)", slots=num_slots)
        return self.output(merged), own


def _logits_of_steps(
    time: int, steps: int, causal: bool, window: int | None, time_bias: TimeBias | None, like: Tensor
) -> Float[Tensor, "heads time steps"]:
    """What is added to the logits of all tokens of a step: the bias of its offset, or minus infinity."""
    offsets = torch.arange(steps, device=like.device) - torch.arange(steps - time, steps, device=like.device)[:, None]
    if time_bias is None:
        logits = like.new_zeros(1, time, steps)
    else:  # a causal bias need not know later steps
        logits = time_bias(offsets.clamp_max(0) if causal else offsets).to(like.dtype)
    if not causal:
        return logits
    hidden = offsets > 0 if window is None else (offsets > 0) | (offsets <= -window)
    return logits.masked_fill(hidden, float("-inf"))
