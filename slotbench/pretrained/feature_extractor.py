"""Feature extractors: frozen networks that turn every frame into a map of features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench.interfaces import VideoSpec, unit_frames
from slotbench.pretrained.vit import ARCHITECTURES, ViT
from slotbench.pretrained.weights import freeze, read_files

__all__ = ["DINOFeatures", "FeatureExtractor"]

# mean and deviation of ImageNet's colours in [0, 1]
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class FeatureExtractor(nn.Module, ABC):
    """Turns every frame into a map of features, by a network that is never trained.

    The network goes where the extractor goes, but is no submodule: no optimiser sees its parameters, no checkpoint
    holds them, and it stays in evaluation mode. `frames_at_once` bounds the memory that it takes. A subclass takes the
    frames' `VideoSpec` as its first argument.

    Attributes:
        spec: of the features: their width, rows and columns.
        resolution: pixels per side that frames are resized to for the network.
    """

    spec: VideoSpec
    resolution: int

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

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FeatureExtractor:
        # what `to`, `double` and the rest of them call
        self.network._apply(fn, recurse)
        return super()._apply(fn, recurse)


class DINOFeatures(FeatureExtractor):
    """The last layer's patches of a vision transformer that was trained by DINO, from a file that the user gives.

    Frames are normalised by the mean and deviation of ImageNet's colours and resized to a square, bicubically and
    without anti-aliasing; nothing is clamped, so the order of the two does not matter. The class token is dropped;
    what is left is taken after the final norm.

    Source: Krimmel et al., TMLR 2024, Appendix F (ViT-B/8 at 224 pixels: 28 x 28 features of width 768) and its code.

    Args:
        video_spec: the frames, of three channels.
        path: a state dict with the weights, of DINO's release or from timm (`vit_base_patch8_224.dino`).
        arch: "vit_small_patch8", "vit_small_patch16", "vit_base_patch8" or "vit_base_patch16".
        resolution: pixels per side that frames are resized to, a multiple of the patch size.
        frames_at_once: frames that the network is given at a time.
    """

    mean: Float[Tensor, "3 1 1"]
    std: Float[Tensor, "3 1 1"]

    def __init__(
        self,
        video_spec: VideoSpec,
        path: str,
        arch: str = "vit_base_patch8",
        resolution: int = 224,
        frames_at_once: int = 64,
    ) -> None:
        if video_spec.channels != 3:
            raise ValueError(f"DINO looks at coloured frames, of 3 channels, and these have {video_spec.channels}")
        if arch not in ARCHITECTURES:
            raise ValueError(f"no vision transformer named {arch!r}; choose one of {', '.join(ARCHITECTURES)}")
        patch_size = ARCHITECTURES[arch].patch_size
        if resolution < 1 or resolution % patch_size:
            raise ValueError(f"resolution is {resolution}; expected a multiple of {patch_size}, the size of a patch")
        grid = (resolution // patch_size, resolution // patch_size)
        tensors = read_files([Path(path).expanduser()], f"a {arch} of DINO")
        super().__init__(ViT.from_tensors(tensors, arch, grid, path), frames_at_once)
        self.spec = VideoSpec(ARCHITECTURES[arch].dim, *grid)
        self.resolution = resolution
        self.register_buffer("mean", torch.tensor(_MEAN).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(_STD).view(3, 1, 1), persistent=False)

    def extract(self, images: Float[Tensor, "frames 3 height width"]) -> Float[Tensor, "frames dim rows cols"]:
        """Features of some frames, in [0, 1]."""
        normalised = (images.to(self.mean) - self.mean) / self.std
        size = (self.resolution, self.resolution)
        return self.network(F.interpolate(normalised, size=size, mode="bicubic", align_corners=False))
