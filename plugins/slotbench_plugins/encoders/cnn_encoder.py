"""CNN encoder: frames to a feature map by plain convolutions."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench.interfaces import Encoder, TokenSpec, VideoBatch, VideoSpec
from slotbench.nn.grid import to_tokens
from slotbench.nn.positions import CoordinateEmbedding, CoordinateGrid

InputScale = Literal["unit", "signed", "imagenet"]
EncoderInit = Literal["kaiming", "xavier"]

_IMAGENET_MEAN = (0.485, 0.456, 0.406)
_IMAGENET_STD = (0.229, 0.224, 0.225)


class CNNEncoder(Encoder):
    """Convolutions with ReLU, plus where each cell lies, then LayerNorm and a two-layer MLP: one token per cell.

    Convolutions keep the size of the image, divided by their stride (rounded up); the cells of what is left are the
    tokens, row by row. Where the data cuts frames into cells, a token has its place in its own cell only.

    Source: SlotSSM, Table 3; PSB, Table 3 and its code; Krimmel et al., "Attention Normalization Impacts Cardinality
    Generalization in Slot Attention", TMLR 2024, Table 2. The arguments that make each of them are in
    `experiments/paper`. The defaults are a small model that trains on two CPU cores.

    Args:
        video_spec: one step of the input.
        dim: width of a token.
        channels: of every convolution.
        kernel_sizes: side of every convolution in pixels, odd.
        strides: of every convolution.
        last_activation: ReLU after the last convolution too.
        hidden_dim: hidden width of the MLP; that of the last convolution if None.
        input_scale: how pixels in [0, 1] enter: "unit" as they are, "signed" as 2x - 1, "imagenet" less the mean and
            over the standard deviation of ImageNet's three channels.
        positions: see `slotbench.nn.positions.coordinate_grid`.
        norm_eps: what the LayerNorm adds to the variance.
        initialisation: "xavier": Xavier-uniform weights everywhere; "kaiming": Kaiming-uniform ones for layers that a
            ReLU follows, Xavier-uniform ones for the others. Biases start at zero.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        video_spec: VideoSpec,
        dim: int = 64,
        channels: tuple[int, ...] = (32, 32, 32, 32),
        kernel_sizes: tuple[int, ...] = (5, 3, 3, 3),
        strides: tuple[int, ...] = (2, 1, 1, 1),
        last_activation: bool = False,
        hidden_dim: int | None = None,
        input_scale: InputScale = "signed",
        positions: CoordinateGrid = "centres",
        norm_eps: float = 1e-5,
        initialisation: EncoderInit = "kaiming",
    ):
        super().__init__()
        _check_layers(channels, kernel_sizes, strides)
        if input_scale == "imagenet" and video_spec.channels != len(_IMAGENET_MEAN):
            raise ValueError(
                f"CNNEncoder: input_scale 'imagenet' is for red, green and blue, and this video has "
                f"{video_spec.channels} channels: choose 'unit' or 'signed'"
            )
        rows, cols = video_spec.height, video_spec.width
        for stride in strides:
            rows, cols = -(-rows // stride), -(-cols // stride)
        width = channels[-1]
        hidden_dim = width if hidden_dim is None else hidden_dim
        self.token_spec = TokenSpec(dim, rows * cols, (rows, cols))
        self.last_activation = last_activation
        mean, std = {
            "unit": ((0.0,), (1.0,)),
            "signed": ((0.5,), (0.5,)),
            "imagenet": (_IMAGENET_MEAN, _IMAGENET_STD),
        }[input_scale]
        # follow from the arguments, so no checkpoint needs them
        self.register_buffer("mean", torch.tensor(mean)[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(std)[:, None, None], persistent=False)
        self.convs = nn.ModuleList(
            nn.Conv2d(before, after, size, stride, padding=size // 2)
            for before, after, size, stride in zip(
                (video_spec.channels, *channels), channels, kernel_sizes, strides, strict=False
            )
        )
        self.position = CoordinateEmbedding(positions, rows, cols, width)
        self.norm = nn.LayerNorm(width, eps=norm_eps)
        self.expand = nn.Linear(width, hidden_dim)
        self.contract = nn.Linear(hidden_dim, dim)
        self._initialise(initialisation)

    def _initialise(self, kind: EncoderInit) -> None:
        before_relu = {self.expand, *(self.convs if self.last_activation else list(self.convs)[:-1])}
        for layer in (*self.convs, self.expand, self.contract):
            if kind == "kaiming" and layer in before_relu:
                nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
            else:
                nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, batch: VideoBatch) -> Float[Tensor, "batch time tokens dim"]:
        """Tokens of every step."""
        images = ((batch.pixels - self.mean) / self.std).flatten(0, 1)
        images = images.contiguous(memory_format=torch.channels_last)
        for index, conv in enumerate(self.convs):
            images = conv(images)
            if self.last_activation or index < len(self.convs) - 1:
                images = F.relu(images, inplace=True)
        tokens = to_tokens(images + self.position(), batch.frames.shape[0])
        return self.contract(F.relu(self.expand(self.norm(tokens)), inplace=True))


def _check_layers(channels: tuple[int, ...], kernel_sizes: tuple[int, ...], strides: tuple[int, ...]) -> None:
    given = f"channels={tuple(channels)}, kernel_sizes={tuple(kernel_sizes)}, strides={tuple(strides)}"
    if not channels or not len(channels) == len(kernel_sizes) == len(strides):
        raise ValueError(f"CNNEncoder: got {given}; expected one number per convolution in each, and at least one")
    if min(*channels, *kernel_sizes, *strides) < 1 or any(size % 2 == 0 for size in kernel_sizes):
        raise ValueError(f"CNNEncoder: got {given}; expected positive numbers, and odd kernel_sizes such as 3 or 5")
