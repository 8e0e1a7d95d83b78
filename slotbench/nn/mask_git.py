"""MaskGit: a transformer that fills in the masked codes of a grid, all at once or a few at a time."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench.interfaces import SlotSpec, VideoSpec
from slotbench.nn.frame_sequence import FrameLayer
from slotbench.nn.gumbel import draw_categories
from slotbench.nn.linear import lecun_linear
from slotbench.nn.parameters import without_decay
from slotbench.nn.resnet_blocks import NORM_EPS
from slotbench.nn.temporal_attention import TemporalAttention

__all__ = ["MaskGit", "random_masks"]


class MaskGit(nn.Module):
    """Distribution of the codes of a grid given a vector for each cell, by a transformer that sees some of the codes.

    The vector of a code, or that of a masked one, and the condition of its cell are joined and mapped to `dim`; rows
    and columns have learned embeddings. Layers of attention among all cells follow, and a head whose last map is
    the table of the codes' vectors. It is trained to predict masked codes from the others. Sampling starts with all
    cells masked and fills in chunk after chunk; then revisions mask and fill in chunks again.

    Random numbers come from torch's global generator.

    Source: Chang et al., "MaskGIT: Masked Generative Image Transformer", CVPR 2022; here as the prior of TECO (Yan et
    al., "Temporally Consistent Transformers for Video Generation", ICML 2023) with the sizes, the initial values and
    the sampling of its code.

    Args:
        condition: the vectors of the cells, on a grid.
        codes: the codes: their number as channels, rows and columns.
        dim: width of the transformer, a multiple of `num_heads` and even.
        num_layers: layers, at least one.
        num_heads: heads of the attention.
        mlp_ratio: hidden width of the MLPs in units of `dim`.
        code_dim: width of the vector of a code.
        draft_chunks: chunks of the draft.
        revise_chunks: chunks of a revision.
        revisions: how many there are.
    """

    def __init__(
        self,
        condition: SlotSpec,
        codes: VideoSpec,
        dim: int = 64,
        num_layers: int = 2,
        num_heads: int = 4,
        mlp_ratio: int = 4,
        code_dim: int = 64,
        draft_chunks: int = 8,
        revise_chunks: int = 8,
        revisions: int = 2,
    ):
        super().__init__()
        if condition.grid != (codes.height, codes.width):
            raise ValueError(
                f"MaskGit predicts codes of {codes.height} x {codes.width} cells, and the condition has "
                f"{condition.num_slots} slots on the grid {condition.grid}: give it one vector for each cell"
            )
        if min(num_layers, code_dim, draft_chunks, revise_chunks) < 1 or revisions < 0:
            raise ValueError(
                f"MaskGit: got num_layers={num_layers}, code_dim={code_dim}, draft_chunks={draft_chunks}, "
                f"revise_chunks={revise_chunks}, revisions={revisions}; expected at least 1, and at least 0 revisions"
            )
        if dim % 2:
            raise ValueError(f"MaskGit: dim is {dim}; expected an even width, half for the row and half for the column")
        self.num_codes, self.num_cells = codes.channels, codes.height * codes.width
        self.rounds = (draft_chunks, *[revise_chunks] * revisions)
        self.table = nn.Parameter(0.02 * torch.randn(codes.channels + 1, code_dim))
        self.rows = without_decay(nn.Parameter(0.02 * torch.randn(codes.height, 1, dim // 2)))
        self.cols = without_decay(nn.Parameter(0.02 * torch.randn(1, codes.width, dim // 2)))
        self.input_map = lecun_linear(code_dim + condition.dim, dim)
        self.layers = nn.ModuleList(
            FrameLayer(dim, TemporalAttention(dim, num_heads, causal=False), mlp_ratio) for _ in range(num_layers)
        )
        self.output_map = lecun_linear(dim, dim)
        self.output_norm = nn.LayerNorm(dim, eps=NORM_EPS)
        self.head = nn.Linear(dim, code_dim)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)
        self.head_norm = nn.LayerNorm(code_dim, eps=NORM_EPS)
        self.bias = nn.Parameter(torch.zeros(codes.channels))

    @property
    def mask_id(self) -> int:
        """The last row of the table, which stands for a masked code."""
        return self.num_codes

    def forward(
        self, codes: Integer[Tensor, "frames cells"], condition: Float[Tensor, "frames cells condition_dim"]
    ) -> Float[Tensor, "frames cells codes"]:
        """Logits of every cell."""
        grid = self.rows.shape[0], self.cols.shape[1]
        positions = torch.cat([part.expand(*grid, -1) for part in (self.rows, self.cols)], dim=-1).flatten(0, 1)
        x = self.input_map(torch.cat([F.embedding(codes, self.table), condition], dim=-1))
        x = (x + positions)[:, None]
        for layer in self.layers:
            x, _ = layer(x)
        x = self.output_norm(F.gelu(self.output_map(x[:, 0]), approximate="tanh"))
        x = self.head_norm(F.gelu(self.head(x), approximate="tanh"))
        return F.linear(x, self.table[:-1], self.bias)

    def loss(
        self,
        codes: Integer[Tensor, "frames cells"],
        condition: Float[Tensor, "frames cells condition_dim"],
        counted: Bool[Tensor, " frames"] | None = None,
    ) -> Float[Tensor, ""]:
        """Mean cross-entropy of the codes that `random_masks` masks, in nats, times the number of cells."""
        masked = random_masks(len(codes), codes.shape[1], codes.device)
        logits = self(codes.masked_fill(masked, self.mask_id), condition)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        # -100 has no part in the mean
        due = masked if counted is None else masked & counted[:, None]
        error = F.cross_entropy(logits.flatten(0, 1), codes.masked_fill(~due, -100).flatten())
        return self.num_cells * error

    @torch.no_grad()
    def sample(self, condition: Float[Tensor, "frames cells condition_dim"]) -> Integer[Tensor, "frames cells"]:
        """Codes of every cell, row by row, drawn from the logits as they are.

        Each round cuts the cells into random chunks, the same for all frames, and draws the codes of one chunk after
        the other, from those of all other cells.
        """
        device = condition.device
        codes = torch.full(condition.shape[:2], self.mask_id, device=device)
        for chunks in self.rounds:
            order = torch.randperm(self.num_cells, device=device)
            for chunk in order.tensor_split(min(chunks, self.num_cells)):
                codes[:, chunk] = self.mask_id
                logits = self(codes, condition)[:, chunk]
                codes[:, chunk] = draw_categories(logits)
        return codes


def random_masks(frames: int, cells: int, device: torch.device | None = None) -> Bool[Tensor, "frames cells"]:
    """Masks of max(1, floor(cos(pi/2 r) cells)) random cells, with an r for each frame that is uniform in [0, 1).

    All cells are masked at r = 0 alone: what the first chunk of a draft asks for, training almost never does.

    Source: MaskGIT, Section 3.2.
    """
    share = torch.cos(math.pi / 2 * torch.rand(frames, 1, device=device))
    count = (share * cells).floor().clamp(min=1)
    return torch.rand(frames, cells, device=device).argsort(1).argsort(1) < count
