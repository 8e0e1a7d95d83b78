"""Transformer decoder: one query per image patch attends to the slots."""

from __future__ import annotations

from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from slotbench.interfaces import Decoded, Decoder, SlotSpec, VideoBatch, VideoSpec
from slotbench.nn.attention import SelfCrossLayer, mean_over_heads
from slotbench.nn.positions import PositionInit, position_table


class TransformerDecoder(Decoder):
    """Transformer over one learned query per patch, with cross-attention to the slots; a linear head gives the pixels.

    The masks are the last layer's cross-attention, averaged over heads: the share of each slot in each patch, the same
    for all pixels of a patch. The head starts at zero, so the first prediction is uniform. There is no order among the
    slots: permuting them permutes the masks and leaves the image as it is.

    Source: SlotSSM, Section 7.1, Appendix C.3, Eq 35-37; one query per patch rather than per pixel follows Section 7.1.

    Args:
        slot_spec: the output of the core.
        video_spec: the image to produce: one channel per class or per colour.
        dim: width of a query; the slots' width if None.
        num_layers: layers of self-attention, cross-attention and MLP.
        num_heads: heads of every attention.
        patch_size: side in pixels of the patch of one query; it must divide the height and the width.
        mlp_ratio: hidden width of the MLPs in units of `dim`.
        positions: where the table of queries starts and whether it is trained: see `position_table` in
            `slotbench.nn.positions`.
    """

    def __init__(
        self,
        slot_spec: SlotSpec,
        video_spec: VideoSpec,
        dim: int | None = None,
        num_layers: int = 3,
        num_heads: int = 4,
        patch_size: int = 4,
        mlp_ratio: int = 4,
        positions: PositionInit = "fourier",
    ):
        super().__init__()
        if patch_size < 1 or video_spec.height % patch_size or video_spec.width % patch_size:
            raise ValueError(
                f"patches of {patch_size} x {patch_size} pixels do not tile an image of {video_spec.height} x "
                f"{video_spec.width}: choose a patch_size that divides both"
            )
        dim = slot_spec.dim if dim is None else dim
        self.grid = (video_spec.height // patch_size, video_spec.width // patch_size)
        self.patch_size = patch_size
        self.queries = position_table(positions, *self.grid, dim)
        self.layers = nn.ModuleList(SelfCrossLayer(dim, slot_spec.dim, num_heads, mlp_ratio) for _ in range(num_layers))
        self.head = nn.Linear(dim, video_spec.channels * patch_size**2)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, slots: Float[Tensor, "batch time slots dim"], batch: VideoBatch | None = None) -> Decoded:
        """The image of every step; `batch` is not read."""
        rows, time = self.grid[0], slots.shape[1]
        context = slots.flatten(0, 1)
        queries = self.queries[None]
        for layer in self.layers:
            queries, weights = layer(queries, context)
        reconstruction = rearrange(
            self.head(queries),
            "(batch time) (row col) (y x channels) -> batch time channels (row y) (col x)",
            time=time,
            row=rows,
            y=self.patch_size,
            x=self.patch_size,
        )
        shares = rearrange(mean_over_heads(weights), "frame (row col) slots -> frame slots row col", row=rows)
        # The share of a patch for each of its pixels; `einops.repeat` takes five times as long.
        masks = shares.repeat_interleave(self.patch_size, -1).repeat_interleave(self.patch_size, -2)
        return Decoded(reconstruction, masks.unflatten(0, (-1, time)))
