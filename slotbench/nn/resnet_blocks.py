"""Convolutions of a small pre-activation ResNet on channels-last images, and how they are initialised.

Source: Smith, De Mello, Kautz, Linderman, "Convolutional State Space Models for Long-Range Spatiotemporal Modeling",
NeurIPS 2023, whose frame encoder and decoder are those of TECO (Yan et al. 2023); the details are those of its code.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.backends import mkldnn

from slotbench.nn.linear import lecun_normal_
from slotbench.ops import group_norm_activation
from slotbench.ops.group_norm import Activation

__all__ = [
    "NORM_EPS",
    "FrameConv",
    "NormActivation",
    "ResNetBlock",
    "frame_conv",
    "frame_norm",
]

NORM_EPS = 1e-6
"""What every norm of these models adds to the variance."""

RESIDUAL_SCALE = 0.1
"""Weight of a block's convolutions beside what is passed on unchanged."""

_NORM_GROUPS = 32

_SMALL = 20_480
"""Numbers of an input up to which torch unfolds it."""

_UNFOLDED = 65_536
"""Numbers of an unfolded input above which oneDNN was faster, whatever the channels."""


class FrameConv(nn.Conv2d):
    """A convolution of frames; on one thread, few of them without gradient go straight to oneDNN where that is faster.

    torch itself takes oneDNN for all but small inputs, which it unfolds into a matrix of `kernel_size`^2 times as many
    numbers: good for the few cells of a grid, slow for the many pixels of thin images.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Each image on its own."""
        if self._unfolds_badly(input):
            padding = [size // 2 for size in self.kernel_size]
            return torch.mkldnn_convolution(
                input, self.weight, self.bias, padding, self.stride, self.dilation, self.groups
            )
        return super().forward(input)

    def _unfolds_badly(self, input: Tensor) -> bool:
        return (
            input.numel() <= _SMALL
            and input.numel() * self.kernel_size[0] * self.kernel_size[1] > _UNFOLDED
            and not torch.is_grad_enabled()
            and input.dtype == self.weight.dtype == torch.float32
            and input.device.type == "cpu"
            and not torch.is_autocast_enabled("cpu")
            and mkldnn.is_available()
        )


def frame_conv(in_channels: int, out_channels: int, kernel_size: int = 3, *, bias: bool = True) -> nn.Conv2d:
    """A convolution that keeps the size of the image: LeCun-normal weights, a bias of zeros or none."""
    if kernel_size < 1 or kernel_size % 2 == 0:
        raise ValueError(f"kernel_size is {kernel_size}; expected an odd number of pixels, such as 1, 3 or 5")
    conv = FrameConv(in_channels, out_channels, kernel_size, padding=kernel_size // 2, bias=bias)
    lecun_normal_(conv.weight)
    # as a convolution of channels-last images reads it: it would be copied at every call
    conv.weight.data = conv.weight.data.contiguous(memory_format=torch.channels_last)
    if conv.bias is not None:
        nn.init.zeros_(conv.bias)
    return conv


class NormActivation(nn.GroupNorm):
    """GroupNorm of every frame on its own, and an activation after it.

    Source: Wu and He, "Group Normalization", ECCV 2018.

    Args:
        num_groups: groups of channels.
        channels: channels of a frame.
        activation: "gelu_tanh" or "elu".
        kernel: kernel of `slotbench.ops.group_norm_activation`; `slotbench.ops.set_kernel` changes it.
    """

    kernel_op = "group_norm_activation"

    def __init__(self, num_groups: int, channels: int, activation: Activation, kernel: str = "auto"):
        super().__init__(num_groups, channels, eps=NORM_EPS)
        self.activation: Activation = activation
        self.kernel = kernel

    def forward(
        self, images: Float[Tensor, "frames channels height width"]
    ) -> Float[Tensor, "frames channels height width"]:
        """Each image on its own, in the memory layout that it has."""
        return group_norm_activation(
            images, self.num_groups, self.weight, self.bias, self.eps, self.activation, kernel=self.kernel
        )


def frame_norm(channels: int, activation: Activation) -> NormActivation:
    """GroupNorm over space and groups of channels of every frame, and the activation.

    There are 32 groups; where 32 does not divide `channels` (fewer channels, or 48), the largest smaller number that
    does, so 16 channels are 16 groups of one.
    """
    groups = next(count for count in range(min(_NORM_GROUPS, channels), 0, -1) if channels % count == 0)
    return NormActivation(groups, channels, activation)


class ResNetBlock(nn.Module):
    """Twice norm, ELU and 3 x 3 convolution, added at a tenth to the input.

    Where the number of channels changes, the input passes through a 1 x 1 convolution without bias.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
    """

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.norm1 = frame_norm(in_channels, "elu")
        self.conv1 = frame_conv(in_channels, out_channels)
        self.norm2 = frame_norm(out_channels, "elu")
        self.conv2 = frame_conv(out_channels, out_channels)
        self.skip = None if in_channels == out_channels else frame_conv(in_channels, out_channels, 1, bias=False)

    def forward(
        self, images: Float[Tensor, "frames in_channels height width"]
    ) -> Float[Tensor, "frames out_channels height width"]:
        """Each image on its own."""
        hidden = self.conv2(self.norm2(self.conv1(self.norm1(images))))
        return torch.add(images if self.skip is None else self.skip(images), hidden, alpha=RESIDUAL_SCALE)
