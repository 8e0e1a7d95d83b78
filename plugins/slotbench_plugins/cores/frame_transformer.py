"""FrameTransformer: every frame is one token, and attends to all frames so far."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from slotbench.interfaces import CoreOutput, SlotSpec, TemporalCore, TokenSpec
from slotbench.nn.frame_sequence import FrameSequence, FrameSequenceState
from slotbench.nn.grid import grid_of
from slotbench.nn.temporal_attention import TemporalAttention


class FrameTransformer(TemporalCore):
    """A causal transformer over frames, each squeezed into one vector and laid out as a grid again.

    Its slots are the cells of the grid. All knowledge of a frame goes through one vector of width `dim`, which is why
    the paper's is 1024; a `patch` smaller than the grid gives a frame several vectors, which see all patches of their
    own frame and of earlier ones. The state is a cache of keys and values, so that a step costs what the cache holds
    instead of a pass over the whole clip, as in the public code; the outputs are the same. Without a `window` the
    cost of a step and the state grow with every frame. A roll-out past the training length meets
    positions that training did not.

    Source: the baseline of Smith, De Mello, Kautz, Linderman, Byeon, "Convolutional State Space Models for Long-Range
    Spatiotemporal Modeling", NeurIPS 2023, section 5.1; layers as in the public code. The window and the patches are
    ours.

    Args:
        token_spec: the output of the encoder; without a grid its tokens count as one row.
        dim: width inside, an even number; a multiple of 4 where a frame has several patches.
        num_layers: layers of attention and MLP, at least one.
        num_heads: heads of every attention.
        mlp_ratio: hidden width of the MLPs in units of `dim`.
        patch: cells per side of a patch; None for one patch of the whole grid.
        window: frames that a layer sees, the present one included; None for all of them.
        output_dim: width of a slot; `dim` if None.
    """

    def __init__(
        self,
        token_spec: TokenSpec,
        dim: int = 64,
        num_layers: int = 2,
        num_heads: int = 4,
        mlp_ratio: int = 4,
        patch: int | None = None,
        window: int | None = None,
        output_dim: int | None = None,
    ):
        super().__init__()
        grid = grid_of(token_spec)
        self.sequence = FrameSequence(
            token_spec.dim,
            grid,
            lambda _: TemporalAttention(dim, num_heads, window=window),
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
        """A slot per cell after every frame; the state is the next frame's step and the cache of every layer."""
        slots, state = self.sequence(tokens, state)
        return CoreOutput(slots=slots, attention=None, state=state)
