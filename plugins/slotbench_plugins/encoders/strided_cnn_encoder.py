"""Strided CNN encoder: frames to one vector, or to the cells of a small feature map, by strided convolutions."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench.interfaces import Encoder, TokenSpec, VideoBatch, VideoSpec
from slotbench.nn.grid import normalise_frames, to_tokens
from slotbench.nn.positions import CoordinateEmbedding, CoordinateGrid

Output = Literal["flat", "map"]
Head = Literal["linear", "mlp", "none"]
Norm = Literal["channels", "frame", "none"]
Activation = Literal["elu", "leaky_relu"]
Init = Literal["torch", "keras"]

STRIDE = 2


class StridedCNNEncoder(Encoder):
    """Convolutions of stride 2, each with activation and norm; then one token per frame ("flat") or per cell ("map").

    Pixels enter as they are, in [0, 1]. A flat encoder maps all that the convolutions leave of a frame to one vector. A
    map encoder adds where each cell lies and maps every cell.

    `moving_mnist` and `moving_sprites` have the settings of the source, where convolutions have no padding and norms no
    weights: 64 pixels become 31, 14 and 6 cells a side. `cwvae` has those of another. The defaults are a small model
    for frames of any size.

    Source: Lin, "Modular Neural Networks for Video Prediction", M.Sc. thesis, TU Delft, 2022, Tables A.1 and A.2, and
    its author's code; docs/papers/rim.md lists the differences.

    Args:
        video_spec: one step of the input.
        dim: width of a token; not read with `head="none"`.
        channels: of every convolution.
        kernel_size: side of every convolution in pixels.
        padding: zeros on each side of what a convolution sees.
        output: one token per frame, or one per cell.
        head: what follows the convolutions: "linear", a linear layer, ELU and a norm; "mlp", two linear layers with ELU
            between them and no norm; "none", nothing, so that a token is what the convolutions leave; if None, "linear"
            for flat outputs and "mlp" for maps.
        hidden_dim: width between the two linear layers; the channels of the last convolution if None.
        norm: LayerNorm over the "channels" of each cell or token, with weights, or over all numbers of a "frame" at
            once, tokens included, without weights, or "none".
        last_norm: a norm after the last convolution too.
        positions: see `slotbench.nn.positions.coordinate_grid`; only maps have any.
        activation: after every convolution; leaky ReLU has a slope of 0.2.
        init: all layers start as PyTorch makes them, or as Keras does, Xavier-uniform with biases of zero.
    """

    def __init__(
        self,
        video_spec: VideoSpec,
        dim: int = 64,
        channels: tuple[int, ...] = (16, 32, 32),
        kernel_size: int = 4,
        padding: int = 1,
        output: Output = "map",
        head: Head | None = None,
        hidden_dim: int | None = None,
        norm: Norm = "channels",
        last_norm: bool = True,
        positions: CoordinateGrid = "ramps",
        activation: Activation = "elu",
        init: Init = "torch",
    ):
        super().__init__()
        head = head or ("linear" if output == "flat" else "mlp")
        hidden_dim = channels[-1] if hidden_dim is None and channels else hidden_dim
        rows, cols = _grid(video_spec, channels, kernel_size, padding)
        self.output: Output = output
        self.norm: Norm = norm
        self.activation: Activation = activation
        if head == "none":
            dim = channels[-1] if output == "map" else channels[-1] * rows * cols
        self.token_spec = TokenSpec(dim, rows * cols, (rows, cols)) if output == "map" else TokenSpec(dim, 1)
        self.convs = nn.ModuleList(
            nn.Conv2d(before, after, kernel_size, STRIDE, padding)
            for before, after in pairwise((video_spec.channels, *channels))
        )
        normed = () if norm == "none" else channels if last_norm else channels[:-1]
        self.norms = nn.ModuleList(_CellNorm(width) if norm == "channels" else _FrameNorm() for width in normed)
        width = channels[-1]
        self.position: CoordinateEmbedding | None = None
        if output == "map":
            self.position = CoordinateEmbedding(positions, rows, cols, width)
            self.position.linear.reset_parameters()
        else:
            width = width * rows * cols
        self.head: nn.Module
        if head == "mlp":
            assert hidden_dim is not None
            self.head = nn.Sequential(nn.Linear(width, hidden_dim), nn.ELU(), nn.Linear(hidden_dim, dim))
        elif head == "none":
            self.head = nn.Identity()
        else:
            # the tokens of a frame are normalised as one where the maps are
            shape = (dim,) if norm == "channels" else (self.token_spec.num_tokens, dim)
            last = nn.Identity() if norm == "none" else nn.LayerNorm(shape, elementwise_affine=norm == "channels")
            self.head = nn.Sequential(nn.Linear(width, dim), nn.ELU(), last)
        for layer in self.modules() if init == "keras" else ():
            if isinstance(layer, nn.Conv2d | nn.Linear) and layer.bias is not None:
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)

    @classmethod
    def moving_mnist(cls, video_spec: VideoSpec, output: Output = "map", dim: int = 64) -> StridedCNNEncoder:
        """The encoder of the thesis' Moving-MNIST models, "flat" for GRU and RIM, "map" for slots.

        With one channel it has 188,848 parameters flat and 49,968 as a map. Where the map's head and last norm are
        concerned this is the author's code; Table A.2 has `head="linear"` and `last_norm=False`.
        """
        return cls(video_spec, dim, (16, 32, 64), padding=0, output=output, norm="frame")

    @classmethod
    def moving_sprites(cls, video_spec: VideoSpec, output: Output = "map", dim: int = 64) -> StridedCNNEncoder:
        """The wider encoder of the thesis' Moving-Sprites models: 460,576 parameters flat, 215,712 as a map.

        Source: the author's code; the thesis does not mention it.
        """
        return cls(video_spec, dim, (32, 64, 128), padding=0, output=output, hidden_dim=256, norm="frame")

    @classmethod
    def cwvae(cls, video_spec: VideoSpec, channels: tuple[int, ...] = (32, 64, 128, 256)) -> StridedCNNEncoder:
        """The encoder of CW-VAE's code: one token of 1,024 numbers for 64 x 64 pixels, and no norm.

        With one channel it has 689,120 parameters. Source: Saxena et al., "Clockwork Variational Autoencoders",
        NeurIPS 2021, and its code.
        """
        return cls(
            video_spec,
            channels=channels,
            padding=0,
            output="flat",
            head="none",
            norm="none",
            activation="leaky_relu",
            init="keras",
        )

    def forward(self, batch: VideoBatch) -> Float[Tensor, "batch time tokens dim"]:
        """Tokens of every step."""
        images = batch.pixels.flatten(0, 1).contiguous(memory_format=torch.channels_last)
        for index, conv in enumerate(self.convs):
            images = conv(images)
            images = F.elu(images) if self.activation == "elu" else F.leaky_relu(images, 0.2)
            if index < len(self.norms):
                images = self.norms[index](images)
        if self.position is None:
            return self.head(images.flatten(1)[:, None]).unflatten(0, batch.frames.shape[:2])
        return self.head(to_tokens(images + self.position(), batch.frames.shape[0]))


class _FrameNorm(nn.Module):
    """See `normalise_frames`."""

    def forward(self, images: Float[Tensor, "frames dim rows cols"]) -> Float[Tensor, "frames dim rows cols"]:
        return normalise_frames(images)


class _CellNorm(nn.LayerNorm):
    """A LayerNorm over the channels of each cell of an image."""

    def forward(self, images: Float[Tensor, "frames dim rows cols"]) -> Float[Tensor, "frames dim rows cols"]:
        return super().forward(images.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def _grid(video_spec: VideoSpec, channels: tuple[int, ...], kernel_size: int, padding: int) -> tuple[int, int]:
    """Rows and columns that the convolutions leave of a frame."""
    rows, cols = video_spec.height, video_spec.width
    for done in range(len(channels)):
        if min(rows, cols) + 2 * padding < kernel_size:
            raise ValueError(
                f"StridedCNNEncoder: a frame of {video_spec.height} x {video_spec.width} pixels is too small for "
                f"{len(channels)} convolutions of {kernel_size} pixels with padding {padding}: after {done} of them "
                f"{rows} x {cols} cells are left: give fewer channels, padding=1 or larger frames"
            )
        rows, cols = ((side + 2 * padding - kernel_size) // STRIDE + 1 for side in (rows, cols))
    return rows, cols
