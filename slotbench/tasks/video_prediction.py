"""Next-frame prediction, evaluated by autoregressive roll-out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LRScheduler

from slotbench.interfaces import (
    CoreOutput,
    DataSpec,
    Decoded,
    Decoder,
    Encoder,
    PartError,
    SlotSpec,
    TemporalCore,
    TokenSpec,
    VideoBatch,
    VideoSpec,
)
from slotbench.tasks.frame_losses import FrameLoss, LossSum, frame_loss, squash
from slotbench.tasks.given_weights import GivenWeights
from slotbench.tasks.optimisation import WarmupCosine
from slotbench.tasks.optimised_module import Decay
from slotbench.tasks.part_checks import check_choices, check_logits, check_whole_frames
from slotbench.tasks.pieces import frame_by_frame
from slotbench.tasks.rollouts.conditions import Conditions
from slotbench.tasks.rollouts.rollout import Feedback
from slotbench.tasks.rollouts.rollout_task import RolloutTask

__all__ = ["VideoPrediction"]


@dataclass
class Predicted(Decoded):
    """What a decoder made of the slots of a prediction, and of those of the frames that were read.

    Attributes:
        current: the frames that were read, from the slots that the core made of each alone.
    """

    current: Decoded = field(kw_only=True)


class VideoPrediction(RolloutTask):
    """Learns to predict the next frame, and is evaluated by its autoregressive roll-out.

    Training is teacher-forced: from the slots after frame t, frame t + 1 is decoded. In evaluation the model reads
    `context` true frames and then predicts `horizon` frames, each from the one it predicted before, through the state
    that the core carries. Nothing true is read after the context.

    Scores of the roll-out (`RolloutScores` has their names) are mean squared error, PSNR and SSIM, of each step of the
    horizon too, beside three baselines and, where the data set can say how its simulator continues
    (`SlotDataModule.oracle_predictions`), oracles. The test also takes the clips in groups, for the spread over groups,
    feeds back thresholded frames (`rollout_mse_thresholded`) where `loss` is "bce", logs `sampling_fps`, frames
    predicted per second by all processes without the reading of the context, and from the user's weights adds
    `rollout_lpips` and `rollout_fvd`, the latter between whole videos.

    Source: SlotSSM §7.1 (loss "bce"); ConvS5, Section 4.1 and its code (loss "l1_l2", `loss_sum` "rows", `quantise`);
    Lin, "Modular Neural Networks for Video Prediction", 2022, Eq 3.30 (loss "mse", `loss_sum` "frames").
    In SlotSSM, what is fed back, the scale of the error, and how time indices beyond the training clips are met are not
    stated.

    Arguments that are not explained here are those of `SlotTask` and `RolloutTask`.

    Args:
        loss: "bce", cross-entropy between pixel and logit, "mse", squared error of the decoder's output itself, or
            "l1_l2", absolute and squared error of its tanh against frames in [-1, 1]. A decoder that bounds its image
            to [0, 1] itself takes "mse".
        l1_share: weight of the absolute error in "l1_l2", in [0, 1]; the squared error has the rest. Where a model
            of small objects stays at black, 0 lets it leave (`slotbench.tasks.frame_losses.frame_loss`).
        loss_sum: mean over "pixels", sum over a row's pixels and channels and mean over "rows", or mean over pixels and
            sum over "frames".
        feedback: what goes back in: the predicted "probability", or with "threshold" black or white, whichever is
            nearer.
        max_time_offset: in training, the clock of each clip starts at a random step from 0 to this, so that the time
            indices of a roll-out longer than the training clips are not new to the encoder.
        object_scores: also score what becomes of the objects, where the data has masks: see `ObjectScores`.
        reconstruct_share: weight w of the reconstruction of each frame that is read, by the same decoder, from the
            slots that the core made of that frame alone (`CoreOutput.frame_slots`); the loss is then w times its error
            and 1 - w times that of the prediction. 0 for the prediction alone, as in the thesis; 0.5 in other runs of
            its author's code. For cores that have such slots (`OCRIM`).

    Raises:
        ValueError: the target is not a frame like the input, or an argument cannot be.
    """

    monitor = ("val/rollout_mse", "min")

    def __init__(
        self,
        encoder: Callable[[VideoSpec], Encoder],
        core: Callable[[TokenSpec], TemporalCore],
        decoder: Callable[[SlotSpec, VideoSpec], Decoder],
        optimizer: Callable[[Iterable], Optimizer] = AdamW,
        schedule: Callable[[Optimizer, int], LRScheduler] = WarmupCosine,
        loss: FrameLoss = "bce",
        l1_share: float = 0.5,
        loss_sum: LossSum = "pixels",
        context: int = 10,
        horizon: int = 20,
        feedback: Feedback = "probability",
        max_time_offset: int = 0,
        report_horizons: tuple[int, ...] = (),
        quantise: bool = False,
        init_from: str | None = None,
        data_spec: DataSpec | None = None,
        decay: Decay = "matrices",
        lpips_weights: str | None = None,
        lpips_heads: str | None = None,
        fvd_weights: str | None = None,
        group_size: int = 256,
        object_scores: bool = False,
        reconstruct_share: float = 0.0,
        drop_actions: float = 0.0,
        frame_mask: int | None = None,
        eval_actions: bool = True,
        short_context: int | None = None,
    ):
        super().__init__(encoder, core, decoder, optimizer, schedule, init_from, data_spec, decay)
        reason = "VideoPrediction feeds what it predicts back in, so the target must be a frame like the input"
        check_whole_frames(self.data_spec, reason, "BouncingBalls")
        check_choices(loss=(loss, FrameLoss), loss_sum=(loss_sum, LossSum))
        if not 0 <= l1_share <= 1:
            raise ValueError(f"l1_share is the weight of the absolute error, in [0, 1]; got {l1_share}")
        if not 0 <= reconstruct_share < 1:
            raise ValueError(
                f"reconstruct_share is the weight of the reconstruction, from 0 to below 1; got {reconstruct_share}"
            )
        if max_time_offset < 0:
            raise ValueError(f"max_time_offset is {max_time_offset}; expected a number of frames, at least 0")
        if loss != "mse":
            check_logits(self.decoder, f"loss={loss!r} squashes it again: set loss='mse', or give")
        self.loss_kind: FrameLoss = loss
        self.l1_share = l1_share
        self.reconstruct_share = reconstruct_share
        self.loss_sum: LossSum = loss_sum
        self.sums_frames = loss_sum == "frames"
        self.max_time_offset = max_time_offset
        weights = GivenWeights(lpips_weights, lpips_heads, fvd_weights)
        scored = (quantise, report_horizons, group_size, loss == "bce", object_scores)
        conditions = Conditions(drop_actions, frame_mask, eval_actions)
        self.declare_rollouts(context, horizon, feedback, weights, *scored, conditions, short_context)

    @frame_by_frame
    def forward(self, batch: VideoBatch) -> Decoded:
        """Decodes the prediction of frame t + 1 from the slots after frame t, for every frame but the last.

        Returns:
            what the loss reads, for "bce" logits and for "mse" pixels, "batch time-1 channels height width".

        Raises:
            ValueError: clips of a single frame.
        """
        if batch.num_steps < 2:
            raise ValueError("predicting the next frame takes clips of at least 2 frames, and these have 1")
        out = self.tracked(self.encoded(batch.slice_time(0, batch.num_steps - 1)))
        return self.decode(out, batch)

    def decode(self, output: CoreOutput, batch: VideoBatch) -> Decoded:
        """The prediction of every frame but the first; with `reconstruct_share` the frames before it, too.

        Raises:
            PartError: frames are to be reconstructed, and the core has no slots that the decoder can read.
        """
        predicted, share = super().decode(output, batch), self.reconstruct_share
        if not share:
            return predicted
        _check_frame_slots(self.core, output)
        current = self.decoder(output.frame_slots, batch.slice_time(0, batch.num_steps - 1))
        own = {name: (1 - share) * term for name, term in predicted.losses.items()}
        own |= {f"{name}/frame_slots": share * term for name, term in current.losses.items()}
        return Predicted(predicted.reconstruction, predicted.masks, predicted.components, own, current=current)

    @frame_by_frame
    def loss(self, output: Decoded, batch: VideoBatch) -> Float[Tensor, ""]:
        """Loss of the prediction of every frame but the first, by `frame_loss`, plus the decoder's own terms."""
        value = self._error(output, batch.pixels[:, 1:], batch)
        if isinstance(output, Predicted):
            current = self._error(output.current, batch.pixels[:, :-1], batch)
            value = torch.lerp(value, current, self.reconstruct_share)
        return output.add_losses(value)

    def _error(self, painted: Decoded, true: Tensor, batch: VideoBatch) -> Tensor:
        def of(steps: slice, clips: Tensor | None) -> Tensor:
            output, frames = painted.reconstruction[:, steps], true[:, steps]
            if clips is not None:
                output, frames = output[clips], frames[clips]
            return frame_loss(output, frames, self.loss_kind, self.l1_share, self.loss_sum)

        return self.conditions.mean_loss(of, batch)

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


def _check_frame_slots(core: TemporalCore, output: CoreOutput) -> None:
    """Refuses a core whose slots of a frame are not there, or are of another width than its slots."""
    name = type(core).__name__
    if output.frame_slots is None:
        raise PartError(
            f"reconstruct_share reconstructs each frame from the slots that the core made of it alone, and {name} "
            "returns no CoreOutput.frame_slots: set model.reconstruct_share to 0, or take OCRIM with num_inputs"
        )
    widths = output.frame_slots.shape[-1], output.slots.shape[-1]
    if widths[0] != widths[1]:
        raise PartError(
            f"reconstruct_share has one decoder read both, and the slots that {name} makes of a frame are {widths[0]} "
            f"wide and its own {widths[1]}: give OCRIM a head_dim, or make both as wide"
        )
