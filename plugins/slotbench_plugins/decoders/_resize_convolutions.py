"""From a vector to an image: a linear layer, then convolutions on images that are enlarged before each of them."""

from __future__ import annotations

from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench.interfaces import VideoSpec
from slotbench.nn.grid import normalise_frames

# replicated pixels on each side before a convolution, and the side of its kernel: from n cells to 8 n pixels
STEPS = ((2, 4), (1, 4), (0, 3))
GROWTH = 8


class ResizeConvolutions(nn.Module):
    """Sigmoid and LayerNorm of a vector, a linear layer to a small map, and three convolutions, each on twice the size.

    From 8 cells a side the sizes are 16, 20 with replicated borders, 17, 34, 36, 33, 66, and 64 pixels. ReLU and a
    LayerNorm over the whole map without weights follow each layer but the last. All layers start as PyTorch makes them.

    Source: code of Lin, "Modular Neural Networks for Video Prediction", M.Sc. thesis, TU Delft, 2022.

    Args:
        dim: width of the vector.
        out_channels: of the image.
        video_spec: whose height and width the image has.
        channels: of the small map, and of the first two convolutions.
    """

    def __init__(
        self, dim: int, out_channels: int, video_spec: VideoSpec, channels: tuple[int, ...] = (64, 32, 16)
    ) -> None:
        super().__init__()
        sides = (video_spec.height, video_spec.width)
        if min(sides) < GROWTH or any(side % GROWTH for side in sides):
            raise ValueError(
                f"got an image of {sides[0]} x {sides[1]} pixels; expected a height and a width that are multiples of "
                f"{GROWTH}, such as 32 or 64, because the layers enlarge a small map {GROWTH} times"
            )
        if len(channels) != len(STEPS) or min(channels) < 1:
            raise ValueError(
                f"got channels={tuple(channels)}; expected {len(STEPS)} positive numbers, of the small map and of the "
                "first two convolutions, such as (64, 32, 16)"
            )
        self.map_shape = (channels[0], sides[0] // GROWTH, sides[1] // GROWTH)
        self.linear = nn.Linear(dim, channels[0] * self.map_shape[1] * self.map_shape[2])
        self.convs = nn.ModuleList(
            nn.Conv2d(before, after, kernel)
            for (before, after), (_, kernel) in zip(pairwise((*channels, out_channels)), STEPS, strict=True)
        )

    @property
    def last_bias(self) -> Tensor | None:
        """The biases of the image's channels."""
        return self.convs[-1].bias  # type: ignore[return-value]

    def forward(self, vectors: Float[Tensor, "count dim"]) -> Float[Tensor, "count out_channels height width"]:
        """One image per vector, without an output non-linearity."""
        vectors = torch.sigmoid(vectors)
        images = self.linear(F.layer_norm(vectors, vectors.shape[1:])).unflatten(1, self.map_shape)
        images = images.contiguous(memory_format=torch.channels_last)
        for conv, (border, _) in zip(self.convs, STEPS, strict=True):
            images = F.interpolate(normalise_frames(F.relu(images)), scale_factor=2, mode="bilinear")
            images = conv(F.pad(images, (border,) * 4, mode="replicate") if border else images)
        return images
