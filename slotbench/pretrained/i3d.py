"""Inception-v1 inflated to video (I3D), whose logits FVD compares.

Source: Carreira, Zisserman, "Quo Vadis, Action Recognition? A New Model and the Kinetics Dataset", CVPR 2017, Figure 3;
padding and batch norm as in its TensorFlow model, the names of the tensors as in the common PyTorch port of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench.pretrained.weights import load_frozen

__all__ = ["I3D", "MIN_FRAMES", "pad_same", "same_padding"]

MIN_FRAMES = 9
"""Frames of the shortest clip of which the last pooling, over two steps of eight frames each, leaves something."""

_Size = tuple[int, int, int]


def same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Zeros before and after an axis so that ceil(size / stride) windows fit; of an odd number more come after.

    Example:
        >>> same_padding(224, 7, 2), same_padding(112, 3, 2), same_padding(7, 3, 2), same_padding(5, 3, 1)
        ((2, 3), (0, 1), (1, 1), (1, 1))
    """
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


def pad_same(
    videos: Float[Tensor, "batch channels time height width"], kernel: Sequence[int], stride: Sequence[int]
) -> Float[Tensor, "batch channels time_padded height_padded width_padded"]:
    """The videos in a frame of zeros, as windows need it; `kernel` and `stride` are over (time, height, width)."""
    padding = [same_padding(*axis) for axis in zip(videos.shape[2:], kernel, stride, strict=True)]
    # F.pad takes the last axis first
    return F.pad(videos, [count for pair in reversed(padding) for count in pair])


class I3D(nn.Module):
    """Nine Inception modules on video; returns the logits of Kinetics-400, averaged over time.

    Stated for 224 x 224 pixels; other sizes are averaged over all positions that are left at the end.
    """

    def __init__(self) -> None:
        super().__init__()
        layers = {
            "Conv3d_1a_7x7": _Unit(3, 64, (7, 7, 7), (2, 2, 2)),
            "MaxPool3d_2a_3x3": _MaxPool((1, 3, 3), (1, 2, 2)),
            "Conv3d_2b_1x1": _Unit(64, 64),
            "Conv3d_2c_3x3": _Unit(64, 192, (3, 3, 3)),
            "MaxPool3d_3a_3x3": _MaxPool((1, 3, 3), (1, 2, 2)),
            "Mixed_3b": _Mixed(192, (64, 96, 128, 16, 32, 32)),
            "Mixed_3c": _Mixed(256, (128, 128, 192, 32, 96, 64)),
            "MaxPool3d_4a_3x3": _MaxPool((3, 3, 3), (2, 2, 2)),
            "Mixed_4b": _Mixed(480, (192, 96, 208, 16, 48, 64)),
            "Mixed_4c": _Mixed(512, (160, 112, 224, 24, 64, 64)),
            "Mixed_4d": _Mixed(512, (128, 128, 256, 24, 64, 64)),
            "Mixed_4e": _Mixed(512, (112, 144, 288, 32, 64, 64)),
            "Mixed_4f": _Mixed(528, (256, 160, 320, 32, 128, 128)),
            "MaxPool3d_5a_2x2": _MaxPool((2, 2, 2), (2, 2, 2)),
            "Mixed_5b": _Mixed(832, (256, 160, 320, 32, 128, 128)),
            "Mixed_5c": _Mixed(832, (384, 192, 384, 48, 128, 128)),
            "logits": nn.ModuleDict({"conv3d": nn.Conv3d(1024, 400, kernel_size=1)}),
        }
        for name, layer in layers.items():
            self.add_module(name, layer)

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], source: str = "the given tensors") -> I3D:
        """The network with weights of a state dict in the port's naming, frozen; `WeightError` if one is missing."""
        return load_frozen(cls(), tensors, "I3D", "the PyTorch port's", source)

    def forward(self, videos: Float[Tensor, "batch 3 time height width"]) -> Float[Tensor, "batch 400"]:
        """Logits of videos in [-1, 1], of 9 frames or more."""
        if videos.shape[2] < MIN_FRAMES:
            raise ValueError(f"I3D takes videos of at least {MIN_FRAMES} frames, and these have {videos.shape[2]}")
        *layers, _logits = self.children()
        for layer in layers:
            videos = layer(videos)
        # 7 x 7 of 224 x 224 pixels is all that is left: the window of the paper
        pooled = F.avg_pool3d(videos, (2, *videos.shape[3:]), stride=1)
        return self.get_submodule("logits.conv3d")(pooled).flatten(2).mean(dim=2)


class _Unit(nn.Module):
    """Convolution without bias, batch norm, ReLU; "same" padding."""

    def __init__(self, channels: int, out: int, kernel: _Size = (1, 1, 1), stride: _Size = (1, 1, 1)) -> None:
        super().__init__()
        self.conv3d = nn.Conv3d(channels, out, kernel, stride, bias=False)
        self.bn = nn.BatchNorm3d(out, eps=1e-3)

    def forward(self, videos: Float[Tensor, "batch channels *size"]) -> Float[Tensor, "batch out *new_size"]:
        return F.relu_(self.bn(self.conv3d(pad_same(videos, self.conv3d.kernel_size, self.conv3d.stride))))


class _MaxPool(nn.Module):
    """Maximum over a window; "same" padding with zeros, which no activation after a ReLU is below."""

    def __init__(self, kernel: _Size, stride: _Size) -> None:
        super().__init__()
        self.kernel, self.stride = kernel, stride

    def forward(self, videos: Float[Tensor, "batch channels *size"]) -> Float[Tensor, "batch channels *new_size"]:
        return F.max_pool3d(pad_same(videos, self.kernel, self.stride), self.kernel, self.stride)


class _Mixed(nn.Module):
    """Four branches side by side; `widths` are those of 1x1 | 1x1, 3x3 | 1x1, 3x3 | pooling, 1x1."""

    def __init__(self, channels: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        one, reduce_a, three_a, reduce_b, three_b, pooled = widths
        self.b0 = _Unit(channels, one)
        self.b1a, self.b1b = _Unit(channels, reduce_a), _Unit(reduce_a, three_a, (3, 3, 3))
        self.b2a, self.b2b = _Unit(channels, reduce_b), _Unit(reduce_b, three_b, (3, 3, 3))
        self.b3a, self.b3b = _MaxPool((3, 3, 3), (1, 1, 1)), _Unit(channels, pooled)

    def forward(self, videos: Float[Tensor, "batch channels *size"]) -> Float[Tensor, "batch out *size"]:
        branches = (self.b0(videos), self.b1b(self.b1a(videos)), self.b2b(self.b2a(videos)), self.b3b(self.b3a(videos)))
        return torch.cat(branches, dim=1)
