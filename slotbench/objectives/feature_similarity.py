"""Temporal similarity of features: where each patch goes."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from slotbench.interfaces import Objective, Scene, SlotSpec, VideoSpec


class FeatureSimilarity(Objective):
    """Cross-entropy of which patches of a later step have features that are similar to those of each patch.

    The target is a softmax over the patches of `shift` steps later of their cosine similarity, divided by
    `temperature`; patches below `threshold` have no share, unless all are, which then have equal ones. The decoder
    predicts it by one channel of logits for each of these patches. The last `shift` steps of a clip are not compared.

    The authors compare the keys of the last block and reconstruct its tokens; here both are the features that are read.

    Source: Zadaianchuk, Seitzer, Martius, "Object-Centric Learning for Real-World Videos by Predicting Temporal Feature
    Similarities" (VideoSAUR), NeurIPS 2023, Eq 2-4; martius-lab/videosaur, `modules/utils.py` and `losses.py`.

    Args:
        slot_spec: the output of the core.
        video_spec: the features that are compared.
        weight: the term's factor in the loss.
        temperature: of the softmax: 0.075 on MOVi, 0.25 on YouTube-VIS, 0.15 with DINOv2.
        threshold: cosine below which patches are as different as can be.
        shift: how many steps later.
    """

    def __init__(
        self,
        slot_spec: SlotSpec,
        video_spec: VideoSpec,
        weight: float = 0.1,
        temperature: float = 0.075,
        threshold: float = 0.0,
        shift: int = 1,
    ):
        super().__init__()
        if temperature <= 0 or shift < 1:
            raise ValueError(f"temperature={temperature}, shift={shift}: give a positive one, and 1 or more steps")
        self.weight, self.temperature, self.threshold, self.shift = weight, temperature, threshold, shift
        self.paints = video_spec.height * video_spec.width

    def forward(self, scene: Scene) -> Float[Tensor, ""]:
        """The cross-entropy in nats, mean over clips, steps and patches."""
        assert scene.painted is not None
        if scene.target.shape[1] <= self.shift:
            return scene.painted.sum() * 0
        logits = scene.painted[:, : -self.shift].flatten(3).flatten(0, 1)
        return F.cross_entropy(logits, self.shares(scene.target).flatten(0, 1).mT)

    @torch.no_grad()
    def shares(
        self, target: Float[Tensor, "batch time channels rows cols"]
    ) -> Float[Tensor, "batch steps patches later_patches"]:
        """The target: of each patch, what is similar to it `shift` steps later."""
        patches = F.normalize(target.flatten(3).mT, dim=-1)
        similar = patches[:, : -self.shift] @ patches[:, self.shift :].mT
        similar = similar.masked_fill_(similar < self.threshold, -torch.inf).div_(self.temperature)
        none = similar.amax(dim=-1, keepdim=True).isneginf()
        return similar.masked_fill_(none, 0).softmax(dim=-1)
