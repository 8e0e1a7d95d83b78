"""Activation blocks of ConvS5: the non-linearity after the recurrence, on each frame alone."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from slotbench.nn.linear import lecun_linear
from slotbench.nn.resnet_blocks import NORM_EPS, frame_conv, frame_norm

__all__ = [
    "DiagResNetActivation",
    "FrameActivation",
    "FrameActivationName",
    "HalfGLUActivation",
    "ResNetActivation",
    "SqueezeExcite",
    "StandardActivation",
    "frame_activation",
]

FrameActivationName = Literal["resnet", "half_glu", "standard", "diag_resnet"]
"""The activation blocks by the names of the authors' configurations."""


class SqueezeExcite(nn.Module):
    """Gates every channel of a frame by a small MLP of the channels' means over the frame.

    Source: Hu et al., "Squeeze-and-Excitation Networks", CVPR 2018; sizes of the ConvS5 code.

    Args:
        dim: channels.
    """

    def __init__(self, dim: int):
        super().__init__()
        hidden = max(dim // 16, 4)
        self.reduce = lecun_linear(dim, hidden)
        self.expand = lecun_linear(hidden, dim)

    def forward(self, x: Float[Tensor, "frames dim rows cols"]) -> Float[Tensor, "frames dim rows cols"]:
        """Gated frames."""
        gate = torch.sigmoid(self.expand(functional.relu(self.reduce(x.mean((2, 3))))))
        return gate[:, :, None, None] * x


class FrameActivation(nn.Module, ABC):
    """What follows the state space model of a ConvS5 layer; sees one frame at a time."""

    @abstractmethod
    def forward(
        self, outputs: Float[Tensor, "frames dim rows cols"], inputs: Float[Tensor, "frames dim rows cols"]
    ) -> Float[Tensor, "frames dim rows cols"]:
        """Activations of the state space model's `outputs`; `inputs` is what went into it."""


class ResNetActivation(FrameActivation):
    """Two normalised convolutions with a residual around them: gelu(y + conv(gelu(norm(conv(gelu(norm(y))))))).

    The only path around the state space model is the residual of the layer: there is no feed-through D.

    Source: ConvS5 (Smith et al., NeurIPS 2023), section 3.4; all released configurations.

    Args:
        dim: channels.
        kernel_size: of the convolutions, odd.
        squeeze_excite: gate the channels after the second convolution.
    """

    def __init__(self, dim: int, kernel_size: int = 3, squeeze_excite: bool = False):
        super().__init__()
        self.first_norm = frame_norm(dim, "gelu_tanh")
        self.first_conv = frame_conv(dim, dim, kernel_size)
        self.second_norm = frame_norm(dim, "gelu_tanh")
        self.second_conv = frame_conv(dim, dim, kernel_size)
        self.gate = SqueezeExcite(dim) if squeeze_excite else nn.Identity()

    def forward(
        self, outputs: Float[Tensor, "frames dim rows cols"], inputs: Float[Tensor, "frames dim rows cols"]
    ) -> Float[Tensor, "frames dim rows cols"]:
        hidden = self.first_conv(self.first_norm(outputs))
        hidden = self.second_conv(self.second_norm(hidden))
        return _gelu(outputs + self.gate(hidden))


class DiagResNetActivation(FrameActivation):
    """The short form of `ResNetActivation`, one convolution: gelu(y + gelu(norm(conv(gelu(norm(y)))))).

    In the released code a layer with this block builds it and never calls it, so that nothing happens in its place.
    Here it is applied.

    Source: the ConvS5 code, where it is `diag_resnet`; not in the paper.

    Args:
        dim: channels.
        kernel_size: of the convolution, odd.
        squeeze_excite: gate the channels before they are added to `outputs`.
    """

    def __init__(self, dim: int, kernel_size: int = 3, squeeze_excite: bool = False):
        super().__init__()
        self.first_norm = frame_norm(dim, "gelu_tanh")
        self.first_conv = frame_conv(dim, dim, kernel_size)
        self.second_norm = frame_norm(dim, "gelu_tanh")
        self.gate = SqueezeExcite(dim) if squeeze_excite else nn.Identity()

    def forward(
        self, outputs: Float[Tensor, "frames dim rows cols"], inputs: Float[Tensor, "frames dim rows cols"]
    ) -> Float[Tensor, "frames dim rows cols"]:
        hidden = self.second_norm(self.first_conv(self.first_norm(outputs)))
        return _gelu(outputs + self.gate(hidden))


class StandardActivation(FrameActivation):
    """The feed-through D of the equations as a convolution of the inputs, then norm and GELU: gelu(norm(y + D * u)).

    Source: ConvS5, Eq. 6 and 8. The convolution has a bias, as in the authors' code.

    Args:
        dim: channels.
        kernel_size: of D, odd.
        squeeze_excite: gate the channels at the end.
    """

    def __init__(self, dim: int, kernel_size: int = 3, squeeze_excite: bool = False):
        super().__init__()
        self.feedthrough = frame_conv(dim, dim, kernel_size)
        self.group_norm = frame_norm(dim, "gelu_tanh")
        self.gate = SqueezeExcite(dim) if squeeze_excite else nn.Identity()

    def forward(
        self, outputs: Float[Tensor, "frames dim rows cols"], inputs: Float[Tensor, "frames dim rows cols"]
    ) -> Float[Tensor, "frames dim rows cols"]:
        return self.gate(self.group_norm(outputs + self.feedthrough(inputs)))


class HalfGLUActivation(FrameActivation):
    """A gate at every cell, cells not mixed: z * sigmoid(Dense(z)) of z = gelu(norm(y)).

    Source: ConvS5, appendix, "half GLU"; LayerNorm and the scale of the gate's weights as in the authors' code.

    Args:
        dim: channels.
    """

    def __init__(self, dim: int):
        super().__init__()
        self.layer_norm = nn.LayerNorm(dim, eps=NORM_EPS)
        self.dense = lecun_linear(dim, dim)
        with torch.no_grad():
            self.dense.weight.mul_(math.sqrt(0.2))

    def forward(
        self, outputs: Float[Tensor, "frames dim rows cols"], inputs: Float[Tensor, "frames dim rows cols"]
    ) -> Float[Tensor, "frames dim rows cols"]:
        z = _gelu(self.layer_norm(outputs.permute(0, 2, 3, 1)))
        return (z * torch.sigmoid(self.dense(z))).permute(0, 3, 1, 2)


def frame_activation(
    name: FrameActivationName, dim: int, kernel_size: int = 3, squeeze_excite: bool = False
) -> FrameActivation:
    """The activation block of that name."""
    if name == "resnet":
        return ResNetActivation(dim, kernel_size, squeeze_excite)
    if name == "diag_resnet":
        return DiagResNetActivation(dim, kernel_size, squeeze_excite)
    if name == "standard":
        return StandardActivation(dim, kernel_size, squeeze_excite)
    if name == "half_glu":
        if squeeze_excite:
            raise ValueError("the half_glu activation has no squeeze-and-excite: leave squeeze_excite at False")
        return HalfGLUActivation(dim)
    raise ValueError(f"no activation block is named '{name}': use 'resnet', 'half_glu', 'standard' or 'diag_resnet'")


def _gelu(x: Tensor) -> Tensor:
    # the tanh form is Flax's default; the exact one differs by about 1e-3
    return functional.gelu(x, approximate="tanh")
