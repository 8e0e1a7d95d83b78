"""Reconstruction of frames, or of their features, from slots, evaluated by the segmentation that the slots make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F
from torch.optim import AdamW

from slotbench.data.base import check_choices
from slotbench.interfaces import DataSpec, VideoBatch, VideoSpec
from slotbench.metrics.discovery_scores import DiscoveryScores
from slotbench.metrics.mask_metrics import mask_headlines
from slotbench.metrics.scores import Score
from slotbench.pretrained.feature_extractor import FeatureExtractor
from slotbench.tasks.autoencoding import Autoencoded, AutoencodingTask, features_as_frames
from slotbench.tasks.factories import CoreFactory, DecoderFactory, EncoderFactory, OptimizerFactory, ScheduleFactory
from slotbench.tasks.frame_losses import at_least_float32
from slotbench.tasks.metric_weights import MetricWeights
from slotbench.tasks.optimisation import Decay, WarmupCosine
from slotbench.tasks.part_checks import check_whole_frames, check_window

__all__ = ["Pixels", "SlotAutoencoding"]

Pixels = Literal["unit", "signed"]
"""The range of pixels that a decoder paints: [0, 1] or [-1, 1]."""


class SlotAutoencoding(AutoencodingTask):
    """Reconstructs every frame, or its features, from a few slots, and is scored by what each slot has taken.

    The loss is the mean squared error of the reconstruction. Evaluation scores the decoder's masks and the attention of
    slots that compete for tokens, per video and per frame, beside baselines; `DiscoveryScores` has the names.

    Source: SlotSSM, Section 7.3 and PSB, Section 5.1.1 (video); attention normalisation, Appendices E and F (CLEVR with
    `pixels="signed"`, features of MOVi-C).

    Args:
        encoder: makes an encoder from the `VideoSpec` of what is read: frames, or features if there are any.
        decoder: makes a decoder from the core's `SlotSpec` and the `VideoSpec` of what is reconstructed.
        pixels: the range of pixels that the decoder paints and the loss reads: "unit", [0, 1], or "signed", [-1, 1].
        features: makes a frozen network from the frames' `VideoSpec`, whose features take the place of pixels. Not
            needed for data that brings features.
        eval_window: in evaluation, each step is computed from the last `eval_window` frames alone (PSB).
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
    ):
        extractor, read = None, None
        if data_spec is not None:
            check_whole_frames(data_spec, "SlotAutoencoding reconstructs the frames that it reads", "MOViLike")
            extractor = features(data_spec.input) if features is not None else None
            read = extractor.spec if extractor is not None else data_spec.features
        # the parts never know whether they see pixels or features
        parts = None if read is None else DataSpec(input=read, target=read)
        super().__init__(encoder, core, decoder, optimizer, schedule, init_from, data_spec, decay, parts)
        check_choices(pixels=(pixels, Pixels))
        check_window(self.core, eval_window)
        self.pixels: Pixels = pixels
        self.extractor = extractor
        self.learns_features = read is not None
        self.eval_window = eval_window
        metric_weights.check(self.data_spec.input)
        self.metric_weights = metric_weights
        self.declare_scores(*(DiscoveryScores(baseline_clips) for _ in range(2)))

    @property
    def reported(self) -> tuple[Score, ...]:
        """Segmentation per video beside baselines, occupancy, and the quality of frames, if it is frames."""
        scores = (
            *mask_headlines(),
            Score("largest_slot/decoder", "share of the largest slot", higher_is_better=False),
        )
        return scores if self.learns_features else (*scores, Score("psnr/frame", "reconstruction: PSNR per frame, dB"))

    def read(self, batch: VideoBatch) -> VideoBatch:
        """The batch that the encoder reads: with features in the place of frames, where features are learned."""
        return features_as_frames(batch, self.encoder, self.extractor) if self.learns_features else batch

    def image(
        self, painted: Float[Tensor, "*batch channels height width"]
    ) -> Float[Tensor, "*batch channels height width"] | None:
        """The decoder's output as images in [0, 1]; None if it is features."""
        if self.learns_features:
            return None
        return ((painted + 1) / 2 if self.pixels == "signed" else painted).clamp(0, 1)

    def loss(self, output: Autoencoded, batch: VideoBatch) -> Float[Tensor, ""]:
        """Mean squared error over clips, frames, channels and pixels (or features), plus the decoder's own terms."""
        target, painted = self._target(output.read), output.decoded.reconstruction
        return output.decoded.add_losses(F.mse_loss(at_least_float32(painted), at_least_float32(target)))

    def score(self, batch: VideoBatch, scores: DiscoveryScores) -> Tensor:
        """Scores the frames, the decoder's masks, and the attention if slots compete for the tokens."""
        out = self.evaluate(batch)
        if not self.learns_features:
            scores.update_frames(self.frames(out.decoded).float(), batch.pixels.float())
        self._score_masks(out, batch, scores)
        return self.loss(out, batch)

    def _target(self, read: VideoBatch) -> Tensor:
        return 2 * read.pixels - 1 if self.pixels == "signed" and not self.learns_features else read.pixels

    def _components(self, batch: VideoBatch, slots: Tensor) -> Tensor | None:
        return None if self.learns_features else super()._components(batch, slots)
