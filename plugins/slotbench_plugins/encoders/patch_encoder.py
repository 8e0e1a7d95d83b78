"""Patch encoder: frames to tokens by non-overlapping patches."""

from __future__ import annotations

from typing import Literal

from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from slotbench.interfaces import Encoder, TokenSpec, VideoBatch, VideoSpec
from slotbench.nn.linear import MLP, xavier_linear
from slotbench.nn.positions import PositionInit, position_table, sincos_embedding

TimeIndex = Literal["frame", "step"]


class PatchEncoder(Encoder):
    """Patch embedding: a linear map of each patch's pixels plus its position in space and time, then an MLP.

    Positions are absolute in the full frame: where the data cuts frames into P x P cells, a token has its place in
    the whole image, and the table covers the whole image, so no weight depends on P and a model trained at one P
    loads at another. Time enters as sines and cosines, never as a table, so there is no longest clip.

    Source: SlotSSM, Section 7.2 and Appendix C.3; that patches are mapped to `dim` before the positions are added is
    our reading.

    Args:
        video_spec: one step of the input.
        dim: width of a token.
        patch_size: side of a patch in pixels; it must divide the height and the width of a step.
        hidden_dim: hidden width of the MLP; `4 * dim` if None.
        positions: where the position table starts and whether it is trained: see `position_table` in
            `slotbench.nn.positions`.
        time_index: what is embedded as time: the index of the frame that a step belongs to, or of the step itself. The
            two are the same for whole frames.
    """

    def __init__(
        self,
        video_spec: VideoSpec,
        dim: int = 64,
        patch_size: int = 4,
        hidden_dim: int | None = None,
        positions: PositionInit = "fourier",
        time_index: TimeIndex = "frame",
    ):
        super().__init__()
        if patch_size < 1 or video_spec.height % patch_size or video_spec.width % patch_size:
            raise ValueError(
                f"patches of {patch_size} x {patch_size} pixels do not tile a step of {video_spec.height} x "
                f"{video_spec.width}: choose a patch_size that divides both"
            )
        rows, cols = video_spec.height // patch_size, video_spec.width // patch_size
        cells = video_spec.patches_per_side
        self.video_spec = video_spec
        self.grid = (rows, cols)
        self.token_spec = TokenSpec(dim=dim, num_tokens=rows * cols, grid=self.grid)
        self.patch_size = patch_size
        self.time_index = time_index
        self.patches = xavier_linear(video_spec.channels * patch_size**2, dim)
        self.positions = position_table(positions, cells * rows, cells * cols, dim)
        self.mlp = MLP(dim, hidden_dim)

    def forward(self, batch: VideoBatch) -> Float[Tensor, "batch time tokens dim"]:
        """Tokens of every step, row-major within the step."""
        pixels = rearrange(
            batch.pixels,
            "batch time channels (row y) (col x) -> batch time (row col) (y x channels)",
            y=self.patch_size,
            x=self.patch_size,
        )
        place = self._cell_positions(batch.time % self.video_spec.steps_per_frame)
        index = batch.time if self.time_index == "step" else batch.time // self.video_spec.steps_per_frame
        when = sincos_embedding(index, self.token_spec.dim, dtype=pixels.dtype)
        return self.mlp(self.patches(pixels) + place + when[:, :, None])

    def _cell_positions(self, cell: Int[Tensor, "batch time"]) -> Float[Tensor, "batch time tokens dim"]:
        """Rows of the full frame's table that belong to the cell shown at each step."""
        cells = self.video_spec.patches_per_side
        rows, cols = self.grid
        table = rearrange(
            self.positions,
            "(cell_row row cell_col col) dim -> (cell_row cell_col) (row col dim)",
            cell_row=cells,
            cell_col=cells,
            row=rows,
            col=cols,
        )
        return nn.functional.embedding(cell, table).unflatten(-1, (rows * cols, -1))
