"""VideoTransformer: attention among the cells of all frames, pooled to a grid of slots per frame."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d

from slotbench.interfaces import CoreOutput, SlotSpec, TemporalCore, TokenSpec
from slotbench.nn.causal_transformer import CausalTransformerState, TransformerLayer
from slotbench.nn.grid import grid_of, to_images, to_tokens
from slotbench.nn.linear import xavier_linear
from slotbench.nn.positions import position_table, sincos_embedding

__all__ = ["VideoTransformer"]

POOLED = (4, 4)


class VideoTransformer(TemporalCore):
    """A transformer over the tokens of all frames; each slot is the mean over one rectangle of a frame's cells.

    It is a baseline: nothing competes for anything, slots are places of the image, and what a slot shows moves when
    the object does. The place of a token and the index of its step are added to it, every token attends to all tokens
    of all steps that it may see, and the cells of each frame are averaged down to a grid of slots.

    Work grows with the square of steps times tokens: with 256 tokens, a clip of 24 frames has attention among 6,144.
    Streaming keeps keys and values of all tokens of all earlier steps. The paper mentions no mask: `causal: false` is
    its model, and the default is causal as that of every core here.

    Source: Singh et al., "Parallelized Spatiotemporal Slot Binding for Videos", ICML 2024, Appendix B.5 and Table 1,
    with the pooling of SIMONe (Kabra et al., NeurIPS 2021). The paper gives no width, depth, heads or mask; the
    pre-norm layers, the last LayerNorm, the mean as the pooling and the positions are ours.

    Args:
        token_spec: the output of the encoder; tokens of another width than `dim` are mapped to it once. Without a
            grid they count as one row.
        dim: width of a token inside and of a slot, a multiple of 4.
        num_layers: layers of attention and MLP.
        num_heads: heads of every attention.
        mlp_ratio: hidden width of the MLPs in units of `dim`.
        causal: look at no later step. Without it there is no streaming, and no state.
        slot_grid: rows and columns of slots, no more than the tokens have; None for 4 x 4, as in the paper, or for as
            many as there are along a side that has fewer. Where they do not divide the tokens' grid, neighbouring
            rectangles overlap by a cell.
    """

    def __init__(
        self,
        token_spec: TokenSpec,
        dim: int = 64,
        num_layers: int = 2,
        num_heads: int = 4,
        mlp_ratio: int = 4,
        causal: bool = True,
        slot_grid: tuple[int, int] | None = None,
    ):
        super().__init__()
        self.grid = rows, cols = grid_of(token_spec)
        pooled = (min(rows, POOLED[0]), min(cols, POOLED[1])) if slot_grid is None else slot_grid
        if not (1 <= pooled[0] <= rows and 1 <= pooled[1] <= cols):
            raise ValueError(
                f"slot_grid={list(pooled)} for tokens on a grid of {rows}x{cols}: give at least one row and one "
                "column, and no more than the tokens have"
            )
        self.slot_grid, self.causal, self.dim = pooled, causal, dim
        self.slot_spec = SlotSpec(pooled[0] * pooled[1], dim)
        self.token_projection = nn.Identity() if token_spec.dim == dim else xavier_linear(token_spec.dim, dim)
        self.places = position_table("fourier", rows, cols, dim)
        self.layers = nn.ModuleList(
            TransformerLayer(dim, num_heads, mlp_ratio, causal=causal) for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(dim)

    def forward(
        self, tokens: Float[Tensor, "batch time tokens dim"], state: CausalTransformerState | None = None
    ) -> CoreOutput:
        """Pooled slots of every step; the state is the index of the next step and the cache of every layer."""
        if state is not None and not self.causal:
            raise ValueError(
                "a state was given, but with causal=False early steps see later ones, so that a clip cannot be "
                "continued: pass the whole clip without a state, or build VideoTransformer with causal=True"
            )
        batch, time = tokens.shape[:2]
        first = torch.zeros(batch, dtype=torch.long, device=tokens.device) if state is None else state.next_step
        index = first[:, None] + torch.arange(time, device=tokens.device)
        # in the parameters' precision, so that the residual stream is not bfloat16 under autocast
        steps = sincos_embedding(index, self.dim, dtype=self.places.dtype)
        x = self.token_projection(tokens) + self.places + steps[:, :, None]
        caches = []
        for number, layer in enumerate(self.layers):
            x, cache = layer(x, None if state is None else state.caches[number])
            caches.append(cache)
        slots = to_tokens(adaptive_avg_pool2d(to_images(self.norm(x), self.grid), self.slot_grid), batch)
        return CoreOutput(slots, None, CausalTransformerState(first + time, tuple(caches)) if self.causal else None)
