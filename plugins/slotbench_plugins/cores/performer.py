"""Performer: the frame transformer with attention in linear time and a state of constant size."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from slotbench.interfaces import CoreOutput, SlotSpec, TemporalCore, TokenSpec
from slotbench.nn.favor import FavorAttention
from slotbench.nn.frame_sequence import FrameSequence, FrameSequenceState
from slotbench.nn.grid import grid_of


class Performer(TemporalCore):
    """`FrameTransformer` with FAVOR+ in the place of softmax attention; its weights are of the same number and shape.

    A clip is processed in parallel over time, and each step of a roll-out costs the same. The state is two sums per
    layer over all frames so far, which nothing is ever taken out of, so there is no window.

    Source: a baseline of Smith, De Mello, Kautz, Linderman, Byeon, "Convolutional State Space Models for Long-Range
    Spatiotemporal Modeling", NeurIPS 2023, section 5.1, whose model and sizes are not public; attention as in
    Choromanski et al., "Rethinking Attention with Performers", ICLR 2021, section 2. What is ours: everything but the
    attention is that of the Transformer baseline, and the stabiliser looks at no later frame (`key_features`).

    Args:
        token_spec: what the encoder hands over; without a grid its tokens count as one row.
        dim: width inside, an even number; a multiple of 4 where a frame has several patches.
        num_layers: layers of attention and MLP, at least one.
        num_heads: heads of every attention.
        mlp_ratio: hidden width of the MLPs in units of `dim`.
        patch: cells per side of a patch; None for one patch of the whole grid.
        output_dim: width of a slot; `dim` if None.
        num_features: random features per head.
        redraw: training clips after which the features are drawn anew; None for never.

    Raises:
        ValueError: no layers, a `dim` that is odd or that `num_heads` does not divide, `num_features` or `redraw` below
            1, or a `patch` that does not tile the grid.
    """

    def __init__(
        self,
        token_spec: TokenSpec,
        dim: int = 64,
        num_layers: int = 2,
        num_heads: int = 4,
        mlp_ratio: int = 4,
        patch: int | None = None,
        output_dim: int | None = None,
        num_features: int = 256,
        redraw: int | None = None,
    ):
        super().__init__()
        grid = grid_of(token_spec)
        self.sequence = FrameSequence(
            token_spec.dim,
            grid,
            lambda index: FavorAttention(dim, num_heads, num_features, redraw, seed=index),
            dim,
            num_layers,
            mlp_ratio,
            patch,
            output_dim,
        )
        self.slot_spec = SlotSpec(token_spec.num_tokens, self.sequence.output_dim, grid)

    def forward(
        self, tokens: Float[Tensor, "batch time tokens dim"], state: FrameSequenceState | None = None
    ) -> CoreOutput:
        """A slot per cell after every frame; the state is the next frame's step and the sums of every layer."""
        slots, state = self.sequence(tokens, state)
        return CoreOutput(slots=slots, attention=None, state=state)
