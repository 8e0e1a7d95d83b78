"""Random changes of training clips: crops, mirrors and colours, the same for all frames of a clip."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from slotbench.data.crops import cropped, draw_crop
from slotbench.interfaces import VideoBatch

__all__ = ["Augmentation"]

_GREY = torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)


@dataclass(frozen=True)
class Augmentation:
    """How training clips are changed at random; masks follow. The default changes nothing.

    Args:
        crop: the least share of the image that is kept, brought back to its size; 1 for whole images.
        flip: whether every other clip, at random, is mirrored from left to right.
        colour: by how much brightness, contrast and saturation change: each factor is within 1 +- colour.
    """

    crop: float = 1.0
    flip: bool = False
    colour: float = 0.0

    def __post_init__(self) -> None:
        if not (0 < self.crop <= 1 and 0 <= self.colour < 1):
            raise ValueError(
                f"augment.crop is {self.crop} and augment.colour {self.colour}; expected a crop above 0 and at most 1, "
                "and a colour from 0 to below 1"
            )

    def __call__(self, clip: VideoBatch, rng: np.random.Generator) -> VideoBatch:
        """One clip of bytes, changed."""
        if self.crop < 1:
            clip = cropped(clip, draw_crop(rng, self.crop, *clip.frames.shape[-2:]))
        if self.flip and rng.random() < 0.5:
            masks = None if clip.masks is None else clip.masks.flip(-1)
            clip = replace(clip, frames=clip.frames.flip(-1), masks=masks, codes=None)
        if self.colour > 0:
            factors = rng.uniform(1 - self.colour, 1 + self.colour, 3).tolist()
            clip = replace(clip, frames=recoloured(clip.frames, *factors), codes=None)
        return clip


def recoloured(
    frames: UInt8[Tensor, "*batch time channels height width"], brightness: float, contrast: float, saturation: float
) -> UInt8[Tensor, "*batch time channels height width"]:
    """Frames in other colours: times brightness, away from the clip's mean grey, away from each pixel's own grey."""
    values = frames.float() * brightness
    grey = (values * _GREY).sum(-3, keepdim=True) if frames.shape[-3] == 3 else values
    mean = grey.mean((-4, -3, -2, -1), keepdim=True)
    values = (values - grey) * saturation + grey
    return ((values - mean) * contrast + mean).round().clamp(0, 255).to(torch.uint8)
