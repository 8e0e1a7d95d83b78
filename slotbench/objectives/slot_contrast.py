"""Contrast of slots over time: each slot is to know itself again."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from slotbench.interfaces import Objective, Scene, SlotSpec, VideoSpec

Negatives = Literal["batch", "clip"]
"""What a slot is told apart from: the slots of all clips of a batch (of one process), or those of its own clip."""


class SlotContrast(Objective):
    """Cross-entropy of which slot of the step before each slot is, by cosine similarity.

    It reads the slots that the core returns, in SAVi corrected by the frame and not yet predicted. The softmax is over
    the slots of the earlier step, as in the code; the paper writes it over those of the later one. Nothing is painted,
    so that another objective is needed beside it.

    Source: Manasyan et al., "Temporally Consistent Object-Centric Learning by Contrasting Slots", CVPR 2025, Eq 4-5;
    martius-lab/slotcontrast, `losses.py`, `Slot_Slot_Contrastive_Loss` with `pred_key: processor.state`.

    Args:
        slot_spec: the output of the core.
        video_spec: the features or pixels that are reconstructed.
        weight: the term's factor in the loss.
        temperature: by which similarities are divided.
        negatives: what a slot is told apart from: the slots of all clips of the "batch", or those of its "clip".
    """

    def __init__(
        self,
        slot_spec: SlotSpec,
        video_spec: VideoSpec,
        weight: float = 0.5,
        temperature: float = 0.1,
        negatives: Negatives = "batch",
    ):
        super().__init__()
        if temperature <= 0 or negatives not in get_args(Negatives):
            raise ValueError(f"temperature={temperature}, negatives={negatives!r}: give a positive one, batch or clip")
        self.weight, self.temperature, self.negatives = weight, temperature, negatives

    def forward(self, scene: Scene) -> Float[Tensor, ""]:
        """The cross-entropy in nats, mean over slots and pairs of steps."""
        if scene.slots.shape[1] < 2:
            return scene.slots.sum() * 0
        slots = F.normalize(scene.slots, dim=-1).transpose(0, 1)
        if self.negatives == "batch":
            slots = slots.flatten(1, 2)
        similar = (slots[:-1] @ slots[1:].mT / self.temperature).flatten(0, -3)
        itself = torch.arange(similar.shape[-1], device=similar.device).expand(len(similar), -1)
        return F.cross_entropy(similar, itself)
