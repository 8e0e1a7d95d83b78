"""A convolution of an upsampled image, made by one convolution of the image before upsampling."""

from __future__ import annotations

from math import ceil

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F


class UpsampledConv2d(nn.Conv2d):
    """Bilinear upsampling by 2, replicated borders, and a convolution without padding, in this order.

    `reference` is that definition. Both steps are linear, and pixels of the large image fall into four phases, rows and
    columns even or odd, of which each reads a few pixels of the small one with weights that do not depend on where. So
    `forward` joins the kernel with the upsampling into one of four times the channels, and lays the phases side by
    side: the large image, which has four times the pixels, is not made.

    Args:
        in_channels: of the small image.
        out_channels: of the result.
        kernel_size: side of the kernel, in pixels of the large image.
        border: pixels of the large image that are added on each side, equal to the outermost.
    """

    upsampling: Tensor

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, border: int = 0) -> None:
        super().__init__(in_channels, out_channels, kernel_size)
        self.border = border
        self.first, weights = _upsampling(kernel_size, border)
        self.register_buffer("upsampling", weights, persistent=False)

    def forward(
        self, images: Float[Tensor, "count in_channels height width"]
    ) -> Float[Tensor, "count out_channels new_height new_width"]:
        """From `size` to `2 * size + 2 * border - kernel_size + 1` pixels along both axes; channels lie last."""
        sizes = [2 * size + 2 * self.border - self.kernel_size[0] + 1 for size in images.shape[-2:]]
        cells = [ceil(size / 2) for size in sizes]
        reach = self.upsampling.shape[1]
        after = [cell + reach - 1 + self.first - size for cell, size in zip(cells, images.shape[-2:], strict=True)]
        images = F.pad(images, (-self.first, after[1], -self.first, after[0]), mode="replicate")
        phases = F.conv2d(images, self._kernel(), None if self.bias is None else self.bias.repeat(4))
        # (count, rows, columns, row phase, column phase, channels): phases go beside their row and column
        phases = phases.permute(0, 2, 3, 1).unflatten(-1, (2, 2, -1))
        large = phases.transpose(2, 3).flatten(3, 4).flatten(1, 2)
        return large[:, : sizes[0], : sizes[1]].contiguous().permute(0, 3, 1, 2)

    def reference(
        self, images: Float[Tensor, "count in_channels height width"]
    ) -> Float[Tensor, "count out_channels new_height new_width"]:
        """The same, step by step: the definition."""
        images = F.interpolate(images, scale_factor=2, mode="bilinear", align_corners=False)
        if self.border:
            images = F.pad(images, (self.border,) * 4, mode="replicate")
        return super().forward(images)

    def _kernel(self) -> Float[Tensor, "four_out in_channels rows columns"]:
        """The kernel for the small image, of all phases: row phase, column phase, out channel."""
        rows = torch.einsum("oikl,prk->poirl", self.weight, self.upsampling)
        both = torch.einsum("poirl,qcl->pqoirc", rows, self.upsampling)
        return both.flatten(0, 2).contiguous(memory_format=torch.channels_last)


def _upsampling(kernel_size: int, border: int) -> tuple[int, Float[Tensor, "2 reach kernel_size"]]:
    """(first, weights): what each tap of the kernel reads along one axis of the small image.

    Output pixel 2 j + phase reads with tap k, in sum over n, weights[phase, n, k] of pixel j + first + n.
    """
    reads: dict[tuple[int, int, int], float] = {}
    for phase in range(2):
        for tap in range(kernel_size):
            cell, odd = divmod(phase + tap - border, 2)
            # the nearest cell, and the next one on the side where the pixel lies
            reads[phase, cell, tap] = 0.75
            reads[phase, cell + 1 if odd else cell - 1, tap] = 0.25
    cells = [cell for _, cell, _ in reads]
    weights = torch.zeros(2, max(cells) - min(cells) + 1, kernel_size)
    for (phase, cell, tap), weight in reads.items():
        weights[phase, cell - min(cells), tap] = weight
    return min(cells), weights
