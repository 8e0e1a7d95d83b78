"""Next-frame prediction, evaluated by autoregressive roll-out."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import AdamW

from slotbench.data.base import check_choices
from slotbench.interfaces import DataSpec, Decoded, VideoBatch
from slotbench.tasks.factories import CoreFactory, DecoderFactory, EncoderFactory, OptimizerFactory, ScheduleFactory
from slotbench.tasks.frame_losses import FrameLoss, LossSum, frame_loss, squash
from slotbench.tasks.metric_weights import MetricWeights
from slotbench.tasks.optimisation import Decay, WarmupCosine
from slotbench.tasks.part_checks import check_logits, check_whole_frames
from slotbench.tasks.rollouts.conditions import Conditions, RolloutOptions
from slotbench.tasks.rollouts.rollout import Feedback
from slotbench.tasks.rollouts.rollout_task import RolloutTask
from slotbench.tasks.slot_task import frame_by_frame

__all__ = ["VideoPrediction"]


class VideoPrediction(RolloutTask):
    """Learns to predict the next frame, and is evaluated by its autoregressive roll-out.

    Training is teacher-forced: frame t + 1 is decoded from the slots after frame t. In evaluation the model reads
    `context` true frames and then predicts `horizon` frames, each from the one it predicted before. `RolloutScores`
    names the scores; the test also feeds back thresholded frames (loss "bce").

    Source: SlotSSM §7.1 (loss "bce"; feedback, scale of the error and later time indices are not stated); ConvS5,
    Section 4.1 and its code (loss "l1_l2", `loss_sum` "rows", `quantise`); Lin, "Modular Neural Networks for Video
    Prediction", 2022, Eq 3.30 (loss "mse", `loss_sum` "frames").

    Args:
        loss: "bce" of logits, "mse" of the decoder's output itself, which a decoder bounded to [0, 1] takes, or "l1_l2"
            of its tanh against frames in [-1, 1].
        l1_share: weight of the absolute error in "l1_l2", in [0, 1]; see `frame_loss`.
        loss_sum: mean over "pixels", sum over the pixels of a row and mean over "rows", or mean over the pixels and sum
            over the "frames".
        feedback: what is read next: the predicted "probability", or its "threshold", black or white.
        max_time_offset: in training, the clock of each clip starts at a random step from 0 to this.
        object_scores: also score what becomes of the objects, where the data has masks: see `ObjectScores`.
    """

    monitor = ("val/rollout_mse", "min")

    def __init__(
        self,
        encoder: EncoderFactory,
        core: CoreFactory,
        decoder: DecoderFactory,
        optimizer: OptimizerFactory = AdamW,
        schedule: ScheduleFactory = WarmupCosine,
        loss: FrameLoss = "bce",
        l1_share: float = 0.5,
        loss_sum: LossSum = "pixels",
        rollout: RolloutOptions = RolloutOptions(),
        feedback: Feedback = "probability",
        max_time_offset: int = 0,
        init_from: str | None = None,
        data_spec: DataSpec | None = None,
        decay: Decay = "matrices",
        metric_weights: MetricWeights = MetricWeights(),
        object_scores: bool = False,
        conditions: Conditions = Conditions(),
    ):
        super().__init__(encoder, core, decoder, optimizer, schedule, init_from, data_spec, decay)
        reason = "VideoPrediction feeds what it predicts back in, so the target must be a frame like the input"
        check_whole_frames(self.data_spec, reason, "BouncingBalls")
        check_choices(loss=(loss, FrameLoss), loss_sum=(loss_sum, LossSum))
        if not 0 <= l1_share <= 1:
            raise ValueError(f"l1_share is the weight of the absolute error, in [0, 1]; got {l1_share}")
        if max_time_offset < 0:
            raise ValueError(f"max_time_offset is {max_time_offset}; expected a number of frames, at least 0")
        if loss != "mse":
            check_logits(self.decoder, f"loss={loss!r} squashes it again: set loss='mse', or give")
        self.loss_kind: FrameLoss = loss
        self.l1_share = l1_share
        self.loss_sum: LossSum = loss_sum
        self.sums_frames = loss_sum == "frames"
        self.max_time_offset = max_time_offset
        self.declare_rollouts(rollout, metric_weights, conditions, feedback, loss == "bce", object_scores)

    @frame_by_frame
    def forward(self, batch: VideoBatch) -> Decoded:
        """Decodes the prediction of frame t + 1 from the slots after frame t, for every frame but the last."""
        if batch.num_steps < 2:
            raise ValueError("predicting the next frame takes clips of at least 2 frames, and these have 1")
        out = self.tracked(self.encoded(batch.slice_time(0, batch.num_steps - 1)))
        return self.decode(out, batch)

    @frame_by_frame
    def loss(self, output: Decoded, batch: VideoBatch) -> Float[Tensor, ""]:
        """Loss of the prediction of every frame but the first, by `frame_loss`, plus the decoder's own terms."""

        def of(steps: slice, clips: Tensor | None) -> Tensor:
            painted, frames = output.reconstruction[:, steps], batch.pixels[:, 1:][:, steps]
            if clips is not None:
                painted, frames = painted[clips], frames[clips]
            return frame_loss(painted, frames, self.loss_kind, self.l1_share, self.loss_sum)

        return output.add_losses(self.conditions.mean_loss(of, batch))

    def training_loss(self, batch: VideoBatch) -> Tensor:
        """The loss of a clip; with `max_time_offset` its clock starts at a random step."""
        batch = self.conditions.of_training(batch)
        if self.max_time_offset:
            offset = torch.randint(self.max_time_offset + 1, (len(batch), 1), device=batch.time.device)
            batch = replace(batch, time=batch.time + offset)
        return self.loss(self(batch), batch)

    def frames(self, decoded: Decoded) -> Float[Tensor, "batch time channels height width"]:
        """What the decoder painted, as frames in [0, 1]."""
        return squash(decoded.reconstruction, self.loss_kind)
