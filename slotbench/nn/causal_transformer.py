"""A transformer over the steps of a clip that looks at no later step and streams with a cache."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from slotbench.nn.linear import MLP
from slotbench.nn.positions import sincos_embedding
from slotbench.nn.temporal_attention import AttentionCache, TemporalAttention

__all__ = ["CausalTransformer", "CausalTransformerState", "TransformerLayer"]


class CausalTransformerState(NamedTuple):
    """The index that the next step will have, and what each layer may still look at."""

    next_step: Integer[Tensor, " batch"]
    caches: tuple[AttentionCache, ...]


class TransformerLayer(nn.Module):
    """Attention among the tokens of all steps, then an MLP on each, both with a residual and a LayerNorm before it.

    Source: SlotSSM (Jiang et al., NeurIPS 2024), Eq 33-34.

    Args:
        dim: width of a token.
        num_heads: heads of the attention.
        mlp_ratio: hidden width of the MLP in units of `dim`.
        window: steps that a token sees, its own included; None for no limit.
        causal: look at no later step.
    """

    def __init__(
        self, dim: int, num_heads: int = 4, mlp_ratio: int = 4, window: int | None = None, *, causal: bool = True
    ):
        super().__init__()
        self.attention_norm = nn.LayerNorm(dim)
        self.attention = TemporalAttention(dim, num_heads, causal=causal, window=window)
        self.mlp_norm = nn.LayerNorm(dim)
        self.mlp = MLP(dim, mlp_ratio * dim)

    def forward(
        self, x: Float[Tensor, "batch time slots dim"], cache: AttentionCache | None = None
    ) -> tuple[Float[Tensor, "batch time slots dim"], AttentionCache]:
        """(tokens, cache for the steps that follow)."""
        change, cache = self.attention(self.attention_norm(x), cache)
        x = x + change
        return x + self.mlp(self.mlp_norm(x)), cache


class CausalTransformer(nn.Module):
    """Adds sines and cosines of the step index to all slots of a step, then runs layers of block-causal attention.

    The index is defined at any length, but a model has learned only the ones that it met. Trained on clips of T steps
    it meets 0 to T - 1; `random_offset` lets each training clip begin at an index of its own, so that those up to
    `random_offset` + T - 1 occur. It does so in training mode and where no state is given: a continued clip, and
    every clip in evaluation mode, counts from where it is or from 0.

    Source: SlotSSM (Jiang et al., NeurIPS 2024), Eq 33-34. How time enters is not given there; this is our choice.

    Args:
        dim: width of a token, an even number.
        num_layers: layers, at least one.
        num_heads: heads of the attention.
        mlp_ratio: hidden width of the MLPs in units of `dim`.
        window: steps that a token sees in a layer, its own included; None for no limit.
        random_offset: highest index, in steps, that a training clip may begin at.
    """

    def __init__(
        self,
        dim: int,
        num_layers: int = 2,
        num_heads: int = 4,
        mlp_ratio: int = 4,
        window: int | None = None,
        random_offset: int = 0,
    ):
        super().__init__()
        if num_layers < 1:
            raise ValueError(f"num_layers must be at least 1, got {num_layers}")
        if dim % 2:
            raise ValueError(f"sines and cosines of the step index need an even dim, got dim={dim}")
        if random_offset < 0:
            raise ValueError(f"random_offset is the highest first index: give 0 or more, got {random_offset}")
        self.dim = dim
        self.random_offset = random_offset
        self.layers = nn.ModuleList(TransformerLayer(dim, num_heads, mlp_ratio, window) for _ in range(num_layers))

    def forward(
        self, x: Float[Tensor, "batch time slots dim"], state: CausalTransformerState | None = None
    ) -> tuple[Float[Tensor, "batch time slots dim"], CausalTransformerState]:
        """(tokens after the last layer, state after the last step); `state` is that of the call before."""
        batch, time = x.shape[:2]
        first = self._first_index(batch, x.device) if state is None else state.next_step
        index = first[:, None] + torch.arange(time, device=x.device)
        # in the parameters' precision, so that the residual stream is not bfloat16 under autocast
        position = sincos_embedding(index, self.dim, dtype=next(self.parameters()).dtype)
        x = x + position[:, :, None]
        caches = []
        for number, layer in enumerate(self.layers):
            x, cache = layer(x, None if state is None else state.caches[number])
            caches.append(cache)
        return x, CausalTransformerState(first + time, tuple(caches))

    def _first_index(self, batch: int, device: torch.device) -> Tensor:
        if self.training and self.random_offset:
            return torch.randint(self.random_offset + 1, (batch,), device=device)
        return torch.zeros(batch, dtype=torch.long, device=device)
