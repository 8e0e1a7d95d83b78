"""The convolutions of AlexNet, whose activations LPIPS compares.

Source: Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014, the one-tower network in
the form that torchvision has.
"""

from __future__ import annotations

from collections.abc import Mapping

from jaxtyping import Float
from torch import Tensor, nn

from slotbench.pretrained.weights import load_frozen

__all__ = ["MIN_SIDE", "AlexNetFeatures"]

MIN_SIDE = 31
"""Side in pixels of the smallest image of which the second pooling leaves something."""


class AlexNetFeatures(nn.Module):
    """Five convolutions with ReLU, the first two followed by pooling; returns all five activations.

    The names of the parameters are those of torchvision's AlexNet, `features.0.weight` to `features.10.bias`.
    """

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(), nn.MaxPool2d(3, 2)]
        layers += [nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2)]
        for channels, wider in ((192, 384), (384, 256), (256, 256)):
            layers += [nn.Conv2d(channels, wider, 3, padding=1), nn.ReLU()]
        self.features = nn.Sequential(*layers)

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], source: str = "the given tensors") -> AlexNetFeatures:
        """The network with weights of a state dict in torchvision's naming, frozen; `WeightError` if one is missing."""
        return load_frozen(cls(), tensors, "the features of AlexNet", "torchvision's", source)

    def forward(
        self, images: Float[Tensor, "frames 3 height width"]
    ) -> list[Float[Tensor, "frames channels rows cols"]]:
        """The activations after each ReLU: 64, 192, 384, 256 and 256 channels."""
        if min(images.shape[-2:]) < MIN_SIDE:
            size = " x ".join(map(str, images.shape[-2:]))
            raise ValueError(f"AlexNet takes images of at least {MIN_SIDE} x {MIN_SIDE} pixels, and these have {size}")
        found = []
        for layer in self.features:
            images = layer(images)
            if isinstance(layer, nn.ReLU):
                found.append(images)
        return found
