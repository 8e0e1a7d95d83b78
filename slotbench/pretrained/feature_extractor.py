"""Feature extractors: frozen networks that turn every frame into a map of features."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench.interfaces import VideoSpec, unit_frames
from slotbench.pretrained.weights import WeightError, freeze

__all__ = ["IMAGENET_MEAN", "IMAGENET_STD", "FeatureExtractor", "check_coloured"]

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and deviation of ImageNet's colours in [0, 1]."""


class FeatureExtractor(nn.Module, ABC):
    """Turns every frame into a map of features, by a network that is never trained.

    The network goes where the extractor goes, but is no submodule: no optimiser sees its parameters, no checkpoint
    holds them, and it stays in evaluation mode. `frames_at_once` bounds the memory that it takes. A subclass takes the
    frames' `VideoSpec` as its first argument.

    Attributes:
        spec: of the features: their width, rows and columns.
        resolution: height and width in pixels that frames are resized to for the network.
        weights: name of the folder or file of the weights, or their name on the Hub.
        weights_sha256: hash of the bytes of the weights; whoever sets it takes an argument of this name, the hash that
            is expected, and calls `keep_weights`.
    """

    spec: VideoSpec
    resolution: tuple[int, int]
    weights: str = ""
    weights_sha256: str = ""
    mean: Float[Tensor, "3 1 1"]
    std: Float[Tensor, "3 1 1"]

    def __init__(self, network: nn.Module, frames_at_once: int = 64) -> None:
        super().__init__()
        freeze(network)
        self._network = (network,)  # not a submodule, see above
        self.frames_at_once = frames_at_once

    @property
    def network(self) -> nn.Module:
        """The network that makes the features."""
        return self._network[0]

    def forward(
        self, frames: Float[Tensor, "batch time channels *size"] | UInt8[Tensor, "batch time channels *size"]
    ) -> Float[Tensor, "batch time dim rows cols"]:
        """Features of frames in [0, 1] or of bytes, without gradients."""
        frames = unit_frames(frames)
        with torch.no_grad():
            parts = [self.extract(part) for part in frames.flatten(0, 1).split(self.frames_at_once)]
        return torch.cat(parts).unflatten(0, frames.shape[:2])

    @abstractmethod
    def extract(self, images: Float[Tensor, "frames channels height width"]) -> Float[Tensor, "frames dim rows cols"]:
        """Features of some frames, in [0, 1]."""

    def keep_normalisation(self, mean: Sequence[float], std: Sequence[float]) -> None:
        """Keeps mean and deviation of the colours in [0, 1], for `normalised`."""
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(3, 1, 1), persistent=False)

    def normalised(self, images: Float[Tensor, "frames 3 height width"]) -> Float[Tensor, "frames 3 rows cols"]:
        """Frames as the network reads them: of its colours, and resized bicubically, without anti-aliasing."""
        images = (images.to(self.mean) - self.mean) / self.std
        if images.shape[-2:] == self.resolution:
            return images
        # nothing is clamped, so the order of the two does not matter
        return F.interpolate(images, size=self.resolution, mode="bicubic", align_corners=False)

    def keep_weights(self, name: str, files: Iterable[Path], expected: str | None) -> None:
        """Keeps name and hash of the weights; a `WeightError` if the hash is not the expected one."""
        digest = hashlib.sha256()
        for file in files:
            digest.update(file.read_bytes())
        self.weights, self.weights_sha256 = name, digest.hexdigest()
        if expected not in (None, self.weights_sha256):
            raise WeightError(
                f"the weights {name} have the hash {self.weights_sha256}; expected are those of the hash {expected}"
            )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FeatureExtractor:
        # what `to`, `double` and the rest of them call
        self.network._apply(fn, recurse)
        return super()._apply(fn, recurse)


def check_coloured(video_spec: VideoSpec) -> None:
    """A `ValueError` unless frames have three channels."""
    if video_spec.channels != 3:
        raise ValueError(f"the network looks at coloured frames, of 3 channels, and these have {video_spec.channels}")
