"""Transposed-convolution decoder: all slots as one vector to one image."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench.interfaces import Decoded, Decoder, SlotSpec, VideoBatch, VideoSpec

Output = Literal["tanh", "linear"]

STRIDE = 2


class TransposedConvDecoder(Decoder):
    """The slots one after the other as one vector, a linear layer to a small map, transposed convolutions of stride 2.

    Leaky ReLU follows every convolution but the last. The small map is as large as it must be for the image; where the
    convolutions make a larger one, it is cut off below and on the right. It has no masks, and slots in another order
    make another image. All layers start with Xavier-uniform weights and biases of zero.

    Source: the decoder of CW-VAE's code (Saxena et al., NeurIPS 2021), `channels=(1024, 128, 64, 32)` and
    `kernel_sizes=(5, 5, 6, 6)`: from one cell to 5, 13, 30 and 64 pixels a side, 3,783,009 parameters for a slot of
    width 220 and one channel.

    Args:
        slot_spec: the output of the core.
        video_spec: the image to produce.
        channels: of the small map, and of every convolution but the last.
        kernel_sizes: side of every convolution in pixels.
        output: "tanh" for an image in [-1, 1], whose negative values are black, as in the source; "linear" for what
            the task squashes.
    """

    def __init__(
        self,
        slot_spec: SlotSpec,
        video_spec: VideoSpec,
        channels: tuple[int, ...] = (64, 32),
        kernel_sizes: tuple[int, ...] = (6, 6),
        output: Output = "tanh",
    ):
        super().__init__()
        self.slot_spec, self.output, self.size = slot_spec, output, (video_spec.height, video_spec.width)
        self.map_shape = (channels[0], *(_cells(side, kernel_sizes) for side in self.size))
        self.linear = nn.Linear(slot_spec.num_slots * slot_spec.dim, torch.Size(self.map_shape).numel())
        self.convs = nn.ModuleList(
            nn.ConvTranspose2d(before, after, kernel, STRIDE)
            for (before, after), kernel in zip(pairwise((*channels, video_spec.channels)), kernel_sizes, strict=True)
        )
        for layer in (self.linear, *self.convs):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, slots: Float[Tensor, "batch time slots dim"], batch: VideoBatch | None = None) -> Decoded:
        """The image of every step; `batch` is not read."""
        if slots.shape[2] != self.slot_spec.num_slots:
            raise ValueError(
                f"TransposedConvDecoder was built for {self.slot_spec.num_slots} slots and got {slots.shape[2]}: for "
                "another number than in training use a decoder that paints slot by slot, such as ComponentDecoder"
            )
        images = self.linear(slots.flatten(2).flatten(0, 1)).unflatten(1, self.map_shape)
        images = images.contiguous(memory_format=torch.channels_last)
        for index, conv in enumerate(self.convs):
            images = conv(F.leaky_relu(images, 0.2) if index else images)
        images = images[:, :, : self.size[0], : self.size[1]].unflatten(0, slots.shape[:2])
        return Decoded(images.tanh() if self.output == "tanh" else images)


def _cells(side: int, kernel_sizes: tuple[int, ...]) -> int:
    """Cells of the small map from which the convolutions make at least `side` pixels, and as few as they can."""
    for kernel in reversed(kernel_sizes):
        side = max(1, -(-(side - kernel) // STRIDE) + 1)
    return side
