"""Reconstruction of the target."""

from __future__ import annotations

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from slotbench.interfaces import Objective, Scene, SlotSpec, VideoSpec


class Reconstruction(Objective):
    """Mean squared error of features or pixels, over clips, steps, channels and cells.

    Source: Seitzer et al., "Bridging the Gap to Real-World Object-Centric Learning" (DINOSAUR), ICLR 2023, Eq 2.

    Args:
        slot_spec: the output of the core.
        video_spec: the features or pixels that are reconstructed.
        weight: the term's factor in the loss.
    """

    reconstructs: ClassVar[bool] = True

    def __init__(self, slot_spec: SlotSpec, video_spec: VideoSpec, weight: float = 1.0):
        super().__init__()
        self.weight = weight
        self.paints = video_spec.channels

    def forward(self, scene: Scene) -> Float[Tensor, ""]:
        """The error of what is painted."""
        assert scene.painted is not None
        return F.mse_loss(scene.painted, scene.target)
