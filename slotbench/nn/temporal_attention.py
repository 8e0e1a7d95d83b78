"""Attention over the steps of a clip, all slots of a step at once, with a cache of keys and values for streaming."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from einops import rearrange, repeat
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from slotbench.nn.attention import check_heads
from slotbench.nn.linear import xavier_linear

__all__ = ["AttentionCache", "TemporalAttention", "TimeBias"]

TimeBias = Callable[[Integer[Tensor, "*shape"]], Float[Tensor, "heads *shape"]]
"""Maps signed offsets, step of the key less step of the query, to a number per head that is added to the logit."""

QUERY_TOKENS = 128
"""Queries that share one mask; more of them waste more work on what the mask takes out, fewer cost more calls."""


class AttentionCache(NamedTuple):
    """Keys and values of the earlier steps that later steps may still look at, oldest first."""

    key: Float[Tensor, "batch heads time slots head_dim"]
    value: Float[Tensor, "batch heads time slots head_dim"]


class TemporalAttention(nn.Module):
    """Token (t, k) attends to every slot of every step t' <= t, all slots of its own step included.

    Neither slots nor steps carry a position here: permuting the slots of all steps alike permutes the output, and what
    tells steps apart is added to `x` by the caller or comes as `time_bias`. With one slot (fold the slots into the
    batch) it is attention along the time axis.

    All of it runs through PyTorch's fused attention. Queries go in chunks of whole steps, so that a mask has as many
    rows as a chunk has queries, never one row per token of the clip; there is no mask where a chunk is one step,
    where everything is visible, or where the fused kernel's own causal form fits. On a CPU PyTorch has no fused kernel
    for a `time_bias` that is being trained: each chunk's weights are then kept for the backward pass.

    Source: SlotSSM (Jiang et al., NeurIPS 2024), Eq 33-34, for the block-causal form.

    Args:
        dim: width of a token.
        num_heads: heads, which must divide `dim`.
        causal: look at no later step; otherwise at all steps, and there is no streaming.
        window: steps that a token sees, its own included; None for no limit. Without `causal` it holds in both
            directions.
        bias: give the linear maps a bias.
    """

    def __init__(
        self, dim: int, num_heads: int = 4, *, causal: bool = True, window: int | None = None, bias: bool = True
    ):
        super().__init__()
        check_heads(dim, num_heads)
        if window is not None and window < 1:
            raise ValueError(f"window={window}: a token sees at least its own step; give 1 or more, or None for all")
        self.num_heads = num_heads
        self.causal = causal
        self.window = window
        self.query_key_value = xavier_linear(dim, dim, maps=3, bias=bias)
        self.output = xavier_linear(dim, dim, bias=bias)

    def forward(
        self,
        x: Float[Tensor, "batch time slots dim"],
        cache: AttentionCache | None = None,
        time_bias: TimeBias | None = None,
    ) -> tuple[Float[Tensor, "batch time slots dim"], AttentionCache]:
        """(output, cache for the steps that follow); `cache` is that of the call before."""
        pattern = "batch time slots (part heads dim) -> part batch heads time slots dim"
        query, key, value = rearrange(self.query_key_value(x), pattern, part=3, heads=self.num_heads)
        if cache is not None:
            self._check_cache(cache, key)
            key = torch.cat([cache.key.to(key.dtype), key], dim=2)
            value = torch.cat([cache.value.to(value.dtype), value], dim=2)
        attended = self._attend(query, key, value, time_bias)
        output = self.output(rearrange(attended, "batch heads time slots dim -> batch time slots (heads dim)"))
        return output, self._cache(key, value)

    def within_step(self, x: Float[Tensor, "batch slots dim"]) -> Float[Tensor, "batch slots dim"]:
        """The output of a clip of one step, `forward(x[:, None])` without the cache: slots attend to one another."""
        pairs = self.query_key_value(x).unflatten(-1, (3, self.num_heads, -1))
        query, key, value = pairs.permute(2, 0, 3, 1, 4).unbind()
        return self.output(scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))

    def _check_cache(self, cache: AttentionCache, key: Tensor) -> None:
        if not self.causal:
            raise ValueError("a cache was given, but with causal=False early steps see later ones: build it causal")
        given, expected = cache.key.shape, key.shape
        if (given[0], given[3]) != (expected[0], expected[3]):
            raise ValueError(
                f"the cache holds batch={given[0]} and slots={given[3]}, the input has batch={expected[0]} and "
                f"slots={expected[3]}: a cache continues the clips that it came from"
            )

    def _cache(self, key: Tensor, value: Tensor) -> AttentionCache:
        # copies, because a view would keep alive all that it was cut from
        if self.window is None or self.window > key.shape[2]:
            return AttentionCache(key.contiguous(), value.contiguous())
        first = key.shape[2] - (self.window - 1)
        return AttentionCache(key[:, :, first:].clone(), value[:, :, first:].clone())

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, time_bias: TimeBias | None) -> Tensor:
        time, slots, steps = query.shape[2], query.shape[3], key.shape[2]
        window = steps if self.window is None else min(self.window, steps)
        limited = self.causal or window < steps
        if time_bias is None and self.causal and slots == 1 and time == window == steps:
            attended = scaled_dot_product_attention(query.squeeze(3), key.squeeze(3), value.squeeze(3), is_causal=True)
            return attended.unsqueeze(3)

        past, ahead = steps - time, 0 if self.causal else window - 1
        chunk = min(time, max(1, QUERY_TOKENS // slots)) if limited or time_bias is not None else time
        shared_mask, reach = None, 0
        if time_bias is not None or (limited and chunk > 1):
            reach = min(window - 1, past + (time - 1) // chunk * chunk)
            shared_mask = _mask(chunk, slots, reach, min(chunk + ahead, steps), window, ahead, query, time_bias)
        outputs = []
        for begin in range(0, time, chunk):
            end = min(begin + chunk, time)
            start = past + begin
            first, last = max(0, start - window + 1), min(steps, past + end + ahead)
            mask = None
            if shared_mask is not None and (time_bias is not None or end - begin > 1):
                columns = slice((first - start + reach) * slots, (last - start + reach) * slots)
                mask = shared_mask[..., : (end - begin) * slots, columns]
            queries = query[:, :, begin:end].flatten(2, 3)
            keys, values = (part[:, :, first:last].flatten(2, 3) for part in (key, value))
            outputs.append(scaled_dot_product_attention(queries, keys, values, attn_mask=mask))
        return torch.cat(outputs, dim=2).unflatten(2, (time, slots))


def _mask(
    chunk: int,
    slots: int,
    reach: int,
    stop: int,
    window: int,
    ahead: int,
    query: Tensor,
    time_bias: TimeBias | None,
) -> Float[Tensor, "1 heads queries keys"]:
    """What is added to the logits of a chunk of `chunk` steps, for keys `reach` steps before its start to `stop` after.

    Every chunk uses a part of it, because only the offset between key and query matters.
    """
    rows = torch.arange(chunk, device=query.device)[:, None]
    offsets = torch.arange(-reach, stop, device=query.device) - rows
    if time_bias is None:
        logits = query.new_zeros(1, *offsets.shape)
    else:
        # asked for the offsets that occur only: a table of a causal model may have no others
        known = time_bias(torch.arange(1 - window, ahead + 1, device=query.device)).to(query.dtype)
        logits = known[:, offsets.clamp(1 - window, ahead) - (1 - window)]
    logits = logits.masked_fill((offsets <= -window) | (offsets > ahead), -torch.inf)
    pattern = "heads rows columns -> 1 heads (rows query_slots) (columns key_slots)"
    return repeat(logits, pattern, query_slots=slots, key_slots=slots)
