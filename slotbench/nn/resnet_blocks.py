"""Convolutions of a small pre-activation ResNet on channels-last images, and how they are initialised.

Source: Smith, De Mello, Kautz, Linderman, "Convolutional State Space Models for Long-Range Spatiotemporal Modeling",
NeurIPS 2023, whose frame encoder and decoder are those of TECO (Yan et al. 2023); the details are those of its code.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench.nn.linear import lecun_normal_

__all__ = ["NORM_EPS", "ResNetBlock", "frame_conv", "frame_norm"]

NORM_EPS = 1e-6
"""What every norm of these models adds to the variance."""

RESIDUAL_SCALE = 0.1
"""Weight of a block's convolutions beside what is passed on unchanged."""

_NORM_GROUPS = 32


def frame_conv(in_channels: int, out_channels: int, kernel_size: int = 3, *, bias: bool = True) -> nn.Conv2d:
    """A convolution that keeps the size of the image: LeCun-normal weights, a bias of zeros or none.

    Raises:
        ValueError: an even `kernel_size`, which has no middle.
    """
    if kernel_size < 1 or kernel_size % 2 == 0:
        raise ValueError(f"kernel_size is {kernel_size}; expected an odd number of pixels, such as 1, 3 or 5")
    conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=kernel_size // 2, bias=bias)
    lecun_normal_(conv.weight)
    if conv.bias is not None:
        nn.init.zeros_(conv.bias)
    return conv


def frame_norm(channels: int) -> nn.GroupNorm:
    """GroupNorm over space and groups of channels of every frame on its own.

    There are 32 groups; where 32 does not divide `channels` (fewer channels, or 48), the largest smaller number that
    does, so 16 channels are 16 groups of one.
    """
    groups = next(count for count in range(min(_NORM_GROUPS, channels), 0, -1) if channels % count == 0)
    return nn.GroupNorm(groups, channels, eps=NORM_EPS)


class ResNetBlock(nn.Module):
    """Twice norm, ELU and 3 x 3 convolution, added at a tenth to the input.

    Where the number of channels changes, the input passes through a 1 x 1 convolution without bias.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
    """

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.norm1 = frame_norm(in_channels)
        self.conv1 = frame_conv(in_channels, out_channels)
        self.norm2 = frame_norm(out_channels)
        self.conv2 = frame_conv(out_channels, out_channels)
        self.skip = None if in_channels == out_channels else frame_conv(in_channels, out_channels, 1, bias=False)

    def forward(
        self, images: Float[Tensor, "frames in_channels height width"]
    ) -> Float[Tensor, "frames out_channels height width"]:
        """Each image on its own."""
        # ELU in place: its backward and the convolution's then share one tensor, and the norm's output is not kept
        hidden = self.conv1(F.elu(self.norm1(images), inplace=True))
        hidden = self.conv2(F.elu(self.norm2(hidden), inplace=True))
        return torch.add(images if self.skip is None else self.skip(images), hidden, alpha=RESIDUAL_SCALE)
