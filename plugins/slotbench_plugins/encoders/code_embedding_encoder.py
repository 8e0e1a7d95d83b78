"""Code embedding encoder: a frame's discrete codes to tokens, by the vectors of the decoder that predicts them."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench.interfaces import CodeEncoder, CodeTables, PartError, TokenSpec, VideoBatch, VideoSpec
from slotbench.nn.linear import xavier_linear
from slotbench.nn.parameters import without_decay


class CodeEmbeddingEncoder(CodeEncoder):
    """A vector for each cell's code plus one for its place, then LayerNorm and a two-layer MLP: one token per cell.

    No pixel is read. In `CodeAutoencoding` the vectors are the decoder's own, trained through both; on its own, or with
    a decoder that has none to give, the encoder has vectors of its own.

    Source: Singh et al., "Illiterate DALL-E Learns to Compose" (SLATE), ICLR 2022, and its code, whose encoder and
    decoder also drop the same numbers of a vector; here each draws for itself.

    Args:
        video_spec: one step of the input, with `codes`.
        dim: width of a token, and of the vectors: that of the decoder's.
        hidden_dim: hidden width of the MLP; `dim` if None, as in the source.
        dropout: share of the vectors' numbers that is dropped in training.
    """

    def __init__(self, video_spec: VideoSpec, dim: int = 64, hidden_dim: int | None = None, dropout: float = 0.0):
        super().__init__()
        if video_spec.codes is None:
            raise PartError(
                "CodeEmbeddingEncoder reads the codes of frames, and this task has none: choose CodeAutoencoding, or "
                "an encoder of frames such as CNNEncoder"
            )
        hidden_dim = dim if hidden_dim is None else hidden_dim
        grid = (video_spec.codes.height, video_spec.codes.width)
        cells = grid[0] * grid[1]
        self.token_spec = TokenSpec(dim, cells, grid)
        self.codes = nn.Embedding(video_spec.codes.channels, dim)
        self.positions = nn.Parameter(nn.init.trunc_normal_(torch.empty(1 + cells, dim)))
        for table in (*self.codes.parameters(), self.positions):
            without_decay(table)
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(dim)
        self.expand = xavier_linear(dim, hidden_dim)
        nn.init.kaiming_uniform_(self.expand.weight, nonlinearity="relu")
        self.contract = xavier_linear(hidden_dim, dim)

    def share(self, tables: CodeTables) -> None:
        """Reads by these vectors in place of its own."""
        sizes = [(tuple(codes.weight.shape), tuple(places.shape)) for codes, places in (tables, self._own())]
        if sizes[0] != sizes[1]:
            raise PartError(
                f"the decoder has vectors of {list(sizes[0][0])} for codes and {list(sizes[0][1])} for places, and "
                f"CodeEmbeddingEncoder, which is to read by them, {list(sizes[1][0])} and {list(sizes[1][1])}: give "
                "encoder and decoder the same dim"
            )
        self.codes, self.positions = tables

    def forward(self, batch: VideoBatch) -> Float[Tensor, "batch time tokens dim"]:
        """Tokens of every step, row-major within the step."""
        vectors = self.codes(batch.require("codes").flatten(2))
        # the first place is that of the start, before the first code
        tokens = self.norm(self.dropout(vectors + self.positions[1:]))
        return self.contract(F.relu(self.expand(tokens)))

    def _own(self) -> CodeTables:
        return CodeTables(self.codes, self.positions)
