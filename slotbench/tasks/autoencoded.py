"""What a clip was taken apart into."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from slotbench.interfaces import AttentionKind, Decoded, VideoBatch

__all__ = ["Autoencoded", "frame_size", "resized_masks"]


@dataclass
class Autoencoded:
    """What a clip was taken apart into.

    Attributes:
        slots: the slots of every frame.
        attention: share of each token that a slot won, if slots compete for the tokens in the core and it says so.
        decoded: what the decoder made of the slots, in its own range and size.
        masks: the decoder's masks at the size of the frames, if it has masks.
        attention_kind: of the core's attention; only an "assignment" is in `attention`.
    """

    slots: Float[Tensor, "batch time slots dim"]
    attention: Float[Tensor, "batch time slots tokens"] | None
    decoded: Decoded
    masks: Float[Tensor, "batch time slots height width"] | None
    attention_kind: AttentionKind | None = None


def frame_size(batch: VideoBatch) -> tuple[int, int]:
    """Height and width of the frames."""
    height, width = batch.frames.shape[-2:]
    return height, width


def resized_masks(masks: Float[Tensor, "batch time slots rows cols"], size: tuple[int, int]) -> Tensor:
    """Masks at another size, bilinear."""
    if tuple(masks.shape[-2:]) == size:
        return masks
    resized = F.interpolate(masks.flatten(0, 1).float(), size=size, mode="bilinear", align_corners=False)
    return resized.unflatten(0, masks.shape[:2])
