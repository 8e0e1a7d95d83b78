"""MLP encoder: the cells of a feature map to tokens, each on its own."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from slotbench.interfaces import Encoder, TokenSpec, VideoBatch, VideoSpec


class MLPEncoder(Encoder):
    """A two-layer MLP on every cell of a step, which becomes a token, after a LayerNorm.

    It is meant for the features of a frozen network, which carry their position, so none is added;
    and, with `norm: none`, for rows of numbers whose size matters, such as the positions of `CATERLike`.
    The linear layers start as torch makes them.

    Source: Krimmel et al., TMLR 2024, Appendix F, Table 4, after DINOSAUR (Seitzer et al., ICLR 2023).

    Args:
        video_spec: one step of the input, a cell per row and column.
        dim: width of a token; the paper has 128.
        hidden_dim: width between the two linear layers; the channels of a cell if None, as in the paper.
        norm: "layer" for a LayerNorm over the channels of a cell, or "none".
    """

    def __init__(
        self,
        video_spec: VideoSpec,
        dim: int = 64,
        hidden_dim: int | None = None,
        norm: Literal["layer", "none"] = "layer",
    ):
        super().__init__()
        channels = video_spec.channels
        hidden_dim = channels if hidden_dim is None else hidden_dim
        grid = (video_spec.height, video_spec.width)
        self.token_spec = TokenSpec(dim=dim, num_tokens=grid[0] * grid[1], grid=grid)
        self.mlp = nn.Sequential(
            nn.LayerNorm(channels) if norm == "layer" else nn.Identity(),
            nn.Linear(channels, hidden_dim),
            nn.ReLU(),
            nn.Linear(hidden_dim, dim),
        )

    def forward(self, batch: VideoBatch) -> Float[Tensor, "batch time tokens dim"]:
        """Tokens of every step, row-major within the step."""
        return self.mlp(batch.pixels.flatten(3).transpose(2, 3))
