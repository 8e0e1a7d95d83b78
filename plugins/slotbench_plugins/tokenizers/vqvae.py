"""VQ-VAE: convolutions to a small map, each cell of which is replaced by the nearest row of a learned codebook."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench.interfaces import Tokenized, Tokenizer, VideoSpec
from slotbench.nn.distributed import sum_over_processes
from slotbench.nn.vector_quantisation import code_rows, nearest_codes, straight_through


class VQVAE(Tokenizer):
    """VQ-VAE whose codebook follows the encodings by moving averages; codes that nothing uses start again from them.

    An encoder of strided convolutions and residual blocks gives a vector for each cell; the decoder paints frames from
    the nearest rows of the codebook. Its gradient passes the choice of rows unchanged (straight-through), and a
    commitment loss keeps the vectors near the rows. The codebook has no gradient: in training a row is the mean of the
    vectors that were nearest to it, by exponential moving averages of sums and counts (Appendix A.1) with Laplace
    smoothing of the counts. Before the first step all codes are unused, so that the codebook starts from vectors of the
    first batch. `encode` moves no average.

    In a distributed run averages are of all processes, and codes start again from vectors of the first one.

    Source: van den Oord, Vinyals, Kavukcuoglu, "Neural Discrete Representation Learning", NeurIPS 2017; the sizes of
    layers are those of its public code at other widths. Unused codes start again as in Dhariwal et al., "Jukebox: A
    Generative Model for Music", 2020, Section 3.1.

    Args:
        video_spec: the frames.
        num_codes: rows of the codebook.
        embedding_dim: width of a row.
        channels: of the hidden maps; half as many before the last stride.
        residual_channels: in the middle of a residual block.
        num_blocks: residual blocks of encoder and decoder each.
        strides: of the encoder's convolutions, first to last; their product is the side of a cell in pixels, and must
            divide height and width.
        commitment_weight: of the mean squared distance between vectors and rows.
        ema_decay: share of the moving averages that a step keeps, at least 0 and below 1.
        smoothing: number that is added to every count.
        restart_below: a code starts again if the average number of cells that use it falls below this share of the
            mean over all codes; with 0 never after the first step.
    """

    codebook: Tensor
    counts: Tensor
    sums: Tensor

    def __init__(
        self,
        video_spec: VideoSpec,
        num_codes: int = 256,
        embedding_dim: int = 64,
        channels: int = 96,
        residual_channels: int = 32,
        num_blocks: int = 2,
        strides: Sequence[int] = (2, 2),
        commitment_weight: float = 0.25,
        ema_decay: float = 0.99,
        smoothing: float = 1e-5,
        restart_below: float = 0.05,
    ):
        super().__init__()
        cell = math.prod(strides)
        if video_spec.height % cell or video_spec.width % cell:
            raise ValueError(
                f"cells of {cell} x {cell} pixels do not tile frames of {video_spec.height} x {video_spec.width}: "
                "choose strides whose product divides both"
            )
        rows, cols = video_spec.height // cell, video_spec.width // cell
        self.code_spec = VideoSpec(num_codes, rows, cols, num_views=video_spec.num_views)
        self.commitment_weight, self.ema_decay = commitment_weight, ema_decay
        self.smoothing, self.restart_below = smoothing, restart_below
        widths = [video_spec.channels, *[channels // 2] * (len(strides) - 1), channels]
        levels = list(zip(widths[:-1], widths[1:], strides, strict=True))
        blocks = [[_ResidualBlock(channels, residual_channels) for _ in range(num_blocks)] for _ in range(2)]
        self.encoder = nn.Sequential(
            *(layer for level in levels for layer in _down(*level)),
            nn.Conv2d(channels, channels, 3, padding=1),
            *blocks[0],
            nn.ReLU(),
            nn.Conv2d(channels, embedding_dim, 1),
        )
        self.decoder = nn.Sequential(
            nn.Conv2d(embedding_dim, channels, 3, padding=1),
            *blocks[1],
            *(layer for level in reversed(levels) for layer in _up(*level)),
        )
        self.register_buffer("codebook", torch.randn(num_codes, embedding_dim))
        self.register_buffer("counts", torch.zeros(num_codes))
        self.register_buffer("sums", torch.zeros(num_codes, embedding_dim))

    @property
    def last_layer(self) -> nn.Parameter:
        """Weights of the convolution to pixels."""
        return self.decoder[-1].weight  # type: ignore[return-value]

    def forward(self, frames: Float[Tensor, "batch time *views channels height width"]) -> Tokenized:
        """Codes and the frames painted from them; in training the codebook moves after they were chosen."""
        maps = self.encoder(frames.flatten(0, -4))
        if self.training:
            self._restart_unused(maps)
        codes = nearest_codes(maps, self.codebook)
        rows = code_rows(codes, self.codebook)
        if self.training:
            self._follow(maps, codes)
        painted = self.decoder(straight_through(maps, rows.to(maps.dtype)) if self.training else rows)
        codes, painted = (part.unflatten(0, frames.shape[:-3]) for part in (codes, painted))
        commitment = self.commitment_weight * F.mse_loss(maps.to(rows.dtype), rows)
        return Tokenized(codes, painted, {"commitment": commitment})

    def encode(
        self, frames: Float[Tensor, "batch time *views channels height width"]
    ) -> Integer[Tensor, "batch time *views rows cols"]:
        """The codes alone; nothing is painted, and the codebook stays."""
        return nearest_codes(self.encoder(frames.flatten(0, -4)), self.codebook).unflatten(0, frames.shape[:-3])

    def decode(
        self, codes: Integer[Tensor, "batch time *views rows cols"]
    ) -> Float[Tensor, "batch time *views channels height width"]:
        """Frames of codes, clamped to [0, 1]."""
        painted = self.decoder(code_rows(codes.flatten(0, -3), self.codebook))
        return painted.clamp(0, 1).unflatten(0, codes.shape[:-2])

    @torch.no_grad()
    def _restart_unused(self, maps: Float[Tensor, "frames dim rows cols"]) -> None:
        """Replaces rows of unused codes by vectors of the batch, as if a mean number of cells had used each."""
        vectors = _vectors(maps, self.codebook)
        picked = torch.randperm(len(vectors), device=vectors.device)
        picked = picked.repeat(-(-len(self.counts) // len(vectors)))[: len(self.counts)]
        drawn = sum_over_processes(vectors[picked] * _is_first_process())
        mean = sum_over_processes(self.counts.new_tensor(len(vectors) / len(self.counts)))
        unused = self.counts <= self.restart_below * mean
        self.counts.copy_(torch.where(unused, mean, self.counts))
        self.codebook.copy_(torch.where(unused[:, None], drawn, self.codebook))
        self.sums.copy_(torch.where(unused[:, None], drawn * mean, self.sums))

    @torch.no_grad()
    def _follow(self, maps: Float[Tensor, "frames dim rows cols"], codes: Integer[Tensor, "frames rows cols"]) -> None:
        """Moves the averages, and every row to the mean of its vectors; a product of matrices has one order of sums."""
        vectors = _vectors(maps, self.codebook)
        chosen = F.one_hot(codes.flatten(), len(self.counts)).to(vectors)
        with torch.autocast(maps.device.type, enabled=False):
            self.counts.lerp_(sum_over_processes(chosen.sum(0)), 1 - self.ema_decay)
            self.sums.lerp_(sum_over_processes(chosen.T @ vectors), 1 - self.ema_decay)
        total = self.counts.sum()
        smoothed = (self.counts + self.smoothing) * total / (total + len(self.counts) * self.smoothing)
        self.codebook.copy_(self.sums / smoothed[:, None])


def _down(before: int, after: int, stride: int) -> tuple[nn.Module, ...]:
    """Layers that divide the sides of a map by the stride."""
    return nn.Conv2d(before, after, stride + 2, stride, 1), nn.ReLU()


def _up(before: int, after: int, stride: int) -> tuple[nn.Module, ...]:
    """Layers that undo the size of `_down`."""
    return nn.ReLU(), nn.ConvTranspose2d(after, before, stride + 2, stride, 1)


class _ResidualBlock(nn.Sequential):
    """ReLU, 3 x 3 convolution, ReLU, 1 x 1 convolution, added to the input."""

    def __init__(self, channels: int, hidden: int):
        # not in place: the input is added
        super().__init__(
            nn.ReLU(), nn.Conv2d(channels, hidden, 3, padding=1), nn.ReLU(), nn.Conv2d(hidden, channels, 1)
        )

    def forward(self, input: Tensor) -> Tensor:
        return input + super().forward(input)


def _vectors(maps: Float[Tensor, "frames dim rows cols"], like: Tensor) -> Float[Tensor, "cells dim"]:
    return maps.detach().movedim(1, -1).flatten(0, -2).to(like.dtype)


def _is_first_process() -> bool:
    distributed = torch.distributed
    return not (distributed.is_available() and distributed.is_initialized()) or distributed.get_rank() == 0
