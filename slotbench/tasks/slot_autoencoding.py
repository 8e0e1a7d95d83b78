"""Reconstruction of frames, or of their features, from slots, evaluated by the segmentation that the slots make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F
from torch.optim import AdamW

from slotbench.data.base import check_choices
from slotbench.interfaces import DataSpec, Objective, Scene, VideoBatch, VideoSpec
from slotbench.metrics.discovery_scores import DiscoveryScores
from slotbench.metrics.mask_metrics import mask_headlines
from slotbench.metrics.scores import Score
from slotbench.nn.slot_merging import merge_shares, merged_slots
from slotbench.pretrained import onnx_features, random_vit, vit_features  # noqa: F401  (named in configurations)
from slotbench.pretrained.feature_extractor import FeatureExtractor
from slotbench.tasks.autoencoding import WHOLE, Autoencoded, AutoencodingTask, features_as_frames
from slotbench.tasks.factories import (
    CoreFactory,
    DecoderFactory,
    EncoderFactory,
    ObjectiveFactory,
    OptimizerFactory,
    ScheduleFactory,
)
from slotbench.tasks.frame_losses import at_least_float32
from slotbench.tasks.metric_weights import MetricWeights
from slotbench.tasks.optimisation import Decay, WarmupCosine
from slotbench.tasks.part_checks import check_whole_frames, check_window

__all__ = ["Pixels", "SlotAutoencoding"]

Pixels = Literal["unit", "signed"]
"""The range of pixels that a decoder paints: [0, 1] or [-1, 1]."""


class SlotAutoencoding(AutoencodingTask):
    """Reconstructs every frame, or its features, from a few slots, and is scored by what each slot has taken.

    The loss is the mean squared error of the reconstruction, or the sum of `objectives`, each with its weight; these
    are logged without it, such as `train/slot_contrast`, and the decoder has the channels of each. Evaluation scores
    the decoder's masks and the attention of slots that compete for tokens, per video and per frame, beside baselines;
    `DiscoveryScores` has the names.

    Source: SlotSSM, Section 7.3 and PSB, Section 5.1.1 (video); attention normalisation, Appendices E and F (CLEVR with
    `pixels="signed"`, features of MOVi-C).

    Args:
        encoder: makes an encoder from the `VideoSpec` of what is read: frames, or features if there are any.
        decoder: makes a decoder from the core's `SlotSpec` and the `VideoSpec` of what is reconstructed.
        pixels: the range of pixels that the decoder paints and the loss reads: "unit", [0, 1], or "signed", [-1, 1].
        features: makes a frozen network from the frames' `VideoSpec`, whose features take the place of pixels. Not
            needed for data that brings features.
        eval_window: in evaluation, each step is computed from the last `eval_window` frames alone (PSB).
        objectives: make the terms of the loss from the core's `SlotSpec` and the `VideoSpec` of what is reconstructed;
            None for the mean squared error alone.
        merge_slots: in evaluation and predictions, slots of a clip whose cosines are that high have their masks merged
            (SOLV); None for no merging. Predictions then read a video whole, as merging is one for all of it.
        baseline_clips: the first clips of each evaluation set, on which baselines are scored; 0 for none.
    """

    monitor = ("val/loss", "min")

    def __init__(
        self,
        encoder: EncoderFactory,
        core: CoreFactory,
        decoder: DecoderFactory,
        optimizer: OptimizerFactory = AdamW,
        schedule: ScheduleFactory = WarmupCosine,
        pixels: Pixels = "unit",
        features: Callable[[VideoSpec], FeatureExtractor] | None = None,
        eval_window: int | None = None,
        baseline_clips: int = 200,
        init_from: str | None = None,
        data_spec: DataSpec | None = None,
        decay: Decay = "matrices",
        metric_weights: MetricWeights = MetricWeights(),
        objectives: list[ObjectiveFactory] | None = None,
        merge_slots: float | None = None,
    ):
        extractor, read = None, None
        if data_spec is not None:
            check_whole_frames(data_spec, "SlotAutoencoding reconstructs the frames that it reads", "MOViLike")
            extractor = features(data_spec.input) if features is not None else None
            read = extractor.spec if extractor is not None else data_spec.features
        # the parts never know whether they see pixels or features
        parts = None if read is None else DataSpec(input=read, target=read)
        super().__init__(encoder, core, decoder, optimizer, schedule, init_from, data_spec, decay, parts, objectives)
        if extractor is not None and extractor.weights_sha256:
            hashed = {"weights_sha256": extractor.weights_sha256}
            self.feature_weights = {"weights": extractor.weights} | hashed
            if "features" in self.hparams:  # so that a checkpoint is not read with other weights
                self.hparams["features"].setdefault("init_args", {}).update(hashed)
        check_choices(pixels=(pixels, Pixels))
        check_window(self.core, eval_window)
        self.pixels: Pixels = pixels
        self.extractor = extractor
        self.learns_features = read is not None
        self.eval_window = eval_window
        self.merge_slots = merge_slots
        metric_weights.check(self.data_spec.input)
        self.metric_weights = metric_weights
        self._terms: dict[str, Tensor] = {}
        self.declare_scores(*(DiscoveryScores(baseline_clips, tuple(self.objectives)) for _ in range(2)))

    @property
    def reported(self) -> tuple[Score, ...]:
        """Segmentation per video beside baselines, occupancy, and the quality of frames, if it is frames."""
        scores = (
            *mask_headlines(),
            Score("largest_slot/decoder", "share of the largest slot", higher_is_better=False),
        )
        return (*scores, Score("psnr/frame", "reconstruction: PSNR per frame, dB")) if self.paints_frames else scores

    @property
    def paints_frames(self) -> bool:
        """Whether frames are reconstructed, and neither features nor nothing."""
        return not self.learns_features and (not self.objectives or self._image_channels is not None)

    def read(self, batch: VideoBatch) -> VideoBatch:
        """The batch that the encoder reads: with features in the place of frames, where features are learned."""
        return features_as_frames(batch, self.encoder, self.extractor) if self.learns_features else batch

    def image(
        self, painted: Float[Tensor, "*batch channels height width"]
    ) -> Float[Tensor, "*batch channels height width"] | None:
        """The decoder's output as images in [0, 1]; None if it is features."""
        if not self.paints_frames:
            return None
        if self._image_channels is not None:
            painted = painted[..., self._image_channels, :, :]
        return ((painted + 1) / 2 if self.pixels == "signed" else painted).clamp(0, 1)

    def loss(self, output: Autoencoded, batch: VideoBatch) -> Float[Tensor, ""]:
        """Mean squared error over clips, frames, channels and pixels (or features), plus the decoder's own terms.

        With `objectives` it is their weighted sum in place of the error.
        """
        target, painted = at_least_float32(self._target(output.read)), at_least_float32(output.decoded.reconstruction)
        if not self.objectives:
            return output.decoded.add_losses(F.mse_loss(painted, target))
        slots = at_least_float32(output.slots)
        attention, masks = (
            value if value is None else at_least_float32(value)
            for value in (output.core.attention, output.decoded.masks)
        )
        self._terms = {}
        with torch.autocast(slots.device.type, enabled=False):
            for name, own in self._channels().items():
                scene = Scene(slots, attention, masks, target, None if own is None else painted[:, :, own])
                self._terms[name] = self._objectives[name](scene)
        weighted = [term * self._objectives[name].weight for name, term in self._terms.items()]
        return output.decoded.add_losses(torch.stack(weighted).sum())

    def training_step(self, batch: VideoBatch, batch_idx: int) -> Tensor:
        """The loss of a batch; its objectives are logged too."""
        loss = super().training_step(batch, batch_idx)
        terms = {f"train/{name}": term.detach() for name, term in self._terms.items()}
        self.log_dict(terms, batch_size=len(batch), sync_dist=True)
        return loss

    def evaluate(self, batch: VideoBatch) -> Autoencoded:
        """The same as in validation and test: through windows if `eval_window` is set, and with slots merged."""
        return self.merged(super().evaluate(batch))

    @property
    def piece_frames(self) -> int:
        """All of a video where slots are merged: which ones are alike shows in all of it."""
        return super().piece_frames if self.merge_slots is None else WHOLE

    def merged(self, out: Autoencoded) -> Autoencoded:
        """Masks and attention of slots that are alike, merged if `merge_slots` is set."""
        if self.merge_slots is None:
            return out
        groups = merged_slots(out.slots, self.merge_slots)
        masks, attention = (None if one is None else merge_shares(one, groups) for one in (out.masks, out.attention))
        return replace(out, masks=masks, attention=attention)

    def score(self, batch: VideoBatch, scores: DiscoveryScores) -> Tensor:
        """Scores the frames, the decoder's masks, and the attention if slots compete for the tokens."""
        out = self.evaluate(batch)
        if self.paints_frames:
            scores.update_frames(self.frames(out.decoded).float(), batch.pixels.float())
        self._score_masks(out, batch, scores)
        loss = self.loss(out, batch)
        scores.update_terms(self._terms, len(batch))
        return loss

    @property
    def _objectives(self) -> dict[str, Objective]:
        return dict(self.objectives.items())  # type: ignore[arg-type]

    def _channels(self) -> dict[str, slice | None]:
        """The channels of the decoder's output that are each objective's own."""
        found: dict[str, slice | None] = {}
        start = 0
        for name, term in self._objectives.items():
            found[name] = slice(start, start + term.paints) if term.paints else None
            start += term.paints
        return found

    @property
    def _image_channels(self) -> slice | None:
        shown = [name for name, term in self._objectives.items() if term.reconstructs]
        return self._channels()[shown[0]] if shown else None

    def _target(self, read: VideoBatch) -> Tensor:
        return 2 * read.pixels - 1 if self.pixels == "signed" and not self.learns_features else read.pixels

    def _components(self, batch: VideoBatch, slots: Tensor) -> Tensor | None:
        return super()._components(batch, slots) if self.paints_frames else None
