"""Look at some frames, then go on alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import ClassVar, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LRScheduler

from slotbench.interfaces import (
    DataSpec,
    Decoded,
    Decoder,
    Encoder,
    SlotSpec,
    TemporalCore,
    TokenSpec,
    VideoBatch,
    VideoSpec,
)
from slotbench.nn.aggregation import sum_over_processes
from slotbench.tasks.base import Decay, Headline, SlotTask
from slotbench.tasks.frame_losses import FrameLoss, LossSum, frame_loss, squash
from slotbench.tasks.given_weights import GivenWeights
from slotbench.tasks.pictures import draw_horizon, paint_rollout
from slotbench.tasks.rollout import Feedback, roll_out
from slotbench.tasks.rollout_groups import RolloutGroups, summarise_groups
from slotbench.tasks.rollout_pictures import rollout_sheet
from slotbench.tasks.rollout_report import curve_values, floors_of, horizon_panels, oracles_of, rollout_headlines
from slotbench.tasks.rollout_scores import Curves, RolloutScores, simple_answers
from slotbench.tasks.schedule import WarmupCosine

__all__ = ["VideoPrediction"]

Stage = Literal["val", "test"]

_PIECE = 32
"""Frames that an evaluation holds at once, however long the clip."""


class VideoPrediction(SlotTask):
    """Learns to predict the next frame, and is tested by going on alone from its own predictions.

    Training is teacher-forced: from the slots after frame t, frame t + 1 is decoded. In evaluation the model looks at
    `context` true frames and then predicts `horizon` frames, each from the one it predicted before, through the state
    that the core carries. Nothing true is read after the context.

    Scores of the roll-out: `rollout_mse` (mean over pixels), `rollout_psnr` and `rollout_ssim` (per frame, then mean),
    each also by step of the horizon (`rollout_mse/step_07`; about a hundred of the steps if there are more) and over
    the first frames (`rollout_mse/first_400`), `rollout_mse_per_frame` (summed over the pixels of a frame) and
    `rollout_capped` (share of frames without any error, whose PSNR is set to 100 dB). Frames too small
    for the window of SSIM have none. Their floors, from the same clips: repeat the last context frame, black, the
    context's mean grey. Beside them, as `<stage>/oracle/...`, what knows the data set's simulator
    (`SlotDataModule.continuations`), which is no trivial answer. The test also
    feeds back thresholded frames (`rollout_mse_thresholded`) where `loss` is "bce", and logs `sampling_fps`, frames
    predicted per second of wall time by all clips of a batch, and all processes, together, without the reading of the
    context.

    The test also takes the clips in groups: mean and spread over groups (`rollout_psnr/group_mean`, `/group_std`). From
    the user's weights it adds `rollout_lpips`, with floors, and `rollout_fvd`, between whole videos, context included.

    Source: SlotSSM §7.1 (loss "bce"); ConvS5, Section 4.1 and its code (loss "l1_l2", `loss_sum` "rows", `quantise`).
    In SlotSSM, what is fed back, the scale of the error, and how time indices beyond the training clips are met are not
    stated.

    Args:
        encoder: makes an encoder from the input's `VideoSpec`.
        core: makes a temporal core from the encoder's `TokenSpec`.
        decoder: makes a decoder from the core's `SlotSpec` and the target's `VideoSpec`.
        optimizer: makes an optimiser from parameter groups; what decays, `decay` says.
        schedule: makes a learning-rate schedule from the optimiser and the number of steps of the whole training.
        loss: "bce", cross-entropy between pixel and logit, "mse", squared error of the decoder's output itself, or
            "l1_l2", absolute and squared error of its tanh against frames in [-1, 1].
        l1_share: weight of the absolute error in "l1_l2", in [0, 1]; the squared error has the rest.
        loss_sum: mean over "pixels", or sum over a row's pixels and channels and mean over "rows".
        context: true frames that a roll-out starts from.
        horizon: frames that it predicts.
        feedback: what goes back in: the predicted "probability", or with "threshold" black or white, whichever is
            nearer.
        max_time_offset: in training, the clock of each clip starts at a random step from 0 to this, so that the time
            indices of a roll-out longer than the training clips are not new to the encoder.
        report_horizons: also log the mean scores of so many first frames of the horizon, where it has as many.
        quantise: score frames truncated to bytes, predicted and true; what is fed back stays as it is.
        init_from: a run folder or a checkpoint whose weights to start from, where name and shape match.
        data_spec: sizes of the input and of the target; the command line takes it from the data.
        decay: what weight decay is for, "matrices" or "all" parameters.
        lpips_weights: a file with AlexNet's features, for LPIPS; see `GivenWeights`.
        lpips_heads: a file with LPIPS's heads, if they are not in `lpips_weights`.
        fvd_weights: a file with I3D, for FVD.
        group_size: clips per group in the test.

    Raises:
        ValueError: the target is not a frame like the input, or an argument cannot be.
    """

    monitor: ClassVar[tuple[str, Literal["min", "max"]] | None] = ("val/rollout_mse", "min")

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
    ):
        super().__init__(encoder, core, decoder, optimizer, schedule, init_from, data_spec, decay)
        frame, target = self.data_spec.input, self.data_spec.target
        sizes = [(spec.channels, spec.height, spec.width) for spec in (frame, target)]
        if frame.patches_per_side != 1 or sizes[0] != sizes[1]:
            raise ValueError(
                f"VideoPrediction feeds what it predicts back in, so the target must be a frame like the input; this "
                f"data gives {frame} and wants {target}: choose a data set of whole frames, for example BouncingBalls"
            )
        chosen = {"loss": (loss, FrameLoss), "loss_sum": (loss_sum, LossSum), "feedback": (feedback, Feedback)}
        for name, (given, choices) in chosen.items():
            if given not in get_args(choices):
                raise ValueError(f"no {name} named {given!r}; choose one of {', '.join(get_args(choices))}")
        if not 0 <= l1_share <= 1:
            raise ValueError(f"l1_share is the weight of the absolute error, in [0, 1]; got {l1_share}")
        counts = {"context": (context, 1), "horizon": (horizon, 1), "max_time_offset": (max_time_offset, 0)}
        for name, (count, least) in counts.items():
            if count < least:
                raise ValueError(f"{name} is {count}; expected a number of frames, at least {least}")
        self.loss_kind: FrameLoss = loss
        self.l1_share = l1_share
        self.loss_sum: LossSum = loss_sum
        self.context = context
        self.horizon = horizon
        self.feedback: Feedback = feedback
        self.max_time_offset = max_time_offset
        self.report_horizons = report_horizons
        self.given_weights = GivenWeights(lpips_weights, lpips_heads, fvd_weights)
        self.given_weights.check(target.channels, min(sizes[0][1:]), context + horizon)
        self.groups = RolloutGroups(horizon, group_size, report_horizons)
        of_stage: dict[Stage, RolloutGroups | None] = {"val": None, "test": self.groups}
        self.scores = nn.ModuleDict(
            {stage: RolloutScores(horizon, sizes[0][1:], quantise, groups) for stage, groups in of_stage.items()}
        )
        self.floors: dict[Stage, dict[str, Curves]] = {"val": {}, "test": {}}
        self.oracles: dict[Stage, dict[str, Curves]] = {"val": {}, "test": {}}
        self._latest: Curves = {}
        self._sampled_frames, self._sampling_seconds = 0, 0.0

    def setup(self, stage: str) -> None:
        """Reads the weights of LPIPS and FVD: for a test to use them, before a training to see that they are there."""
        super().setup(stage)
        if stage in ("fit", "test"):
            lpips, i3d = self.given_weights.load_lpips(), self.given_weights.load_i3d()
            if stage == "test":
                self.groups.embed_with(i3d)
                if lpips is not None:
                    self._scores("test").add_lpips(lpips)

    def forward(self, batch: VideoBatch) -> Decoded:
        """Decodes the prediction of frame t + 1 from the slots after frame t, for every frame but the last.

        Returns:
            what the loss reads, for "bce" logits and for "mse" pixels, "batch time-1 channels height width".

        Raises:
            ValueError: clips of a single frame.
        """
        if batch.num_steps < 2:
            raise ValueError("predicting the next frame takes clips of at least 2 frames, and these have 1")
        out = self.core(self.encoder(batch.slice_time(0, batch.num_steps - 1)))
        return self.decoder(out.slots, batch.slice_time(1, batch.num_steps))

    def frames(self, decoded: Decoded) -> Float[Tensor, "batch time channels height width"]:
        """What the decoder painted, as frames in [0, 1]."""
        return squash(decoded.reconstruction, self.loss_kind)

    def rollout(
        self,
        batch: VideoBatch,
        context: int | None = None,
        horizon: int | None = None,
        feedback: Feedback | None = None,
    ) -> Decoded:
        """The frames of `rollout_steps`, together: "batch horizon channels height width", with the decoder's masks."""
        steps = list(self.rollout_steps(batch, context, horizon, feedback))
        masks = [step.masks for step in steps if step.masks is not None]
        frames = torch.cat([step.reconstruction for step in steps], dim=1)
        return Decoded(frames, torch.cat(masks, dim=1) if masks else None)

    def rollout_steps(
        self,
        batch: VideoBatch,
        context: int | None = None,
        horizon: int | None = None,
        feedback: Feedback | None = None,
    ) -> Iterator[Decoded]:
        """Reads `context` frames of the batch, then predicts `horizon` frames one by one, as `roll_out` says.

        What is not given is the task's own.
        """
        parts = (self.encoder, self.core, self.decoder)
        context, horizon = context or self.context, horizon or self.horizon
        return roll_out(parts, self.frames, batch, context, horizon, feedback or self.feedback, _PIECE)

    def loss(self, decoded: Decoded, batch: VideoBatch) -> Float[Tensor, ""]:
        """Loss of the prediction of every frame but the first, by `frame_loss`, plus the decoder's own terms."""
        value = frame_loss(decoded.reconstruction, batch.frames[:, 1:], self.loss_kind, self.l1_share, self.loss_sum)
        for term in decoded.losses.values():
            value = value + term
        return value

    def training_step(self, batch: VideoBatch, batch_idx: int) -> Tensor:
        """One batch's loss."""
        if self.max_time_offset:
            offset = torch.randint(self.max_time_offset + 1, (len(batch), 1), device=batch.time.device)
            batch = replace(batch, time=batch.time + offset)
        loss = self.loss(self(batch), batch)
        self.log_training_loss(loss, len(batch))
        return loss

    def validation_step(self, batch: VideoBatch, batch_idx: int) -> None:
        """Loss and roll-out on the validation set."""
        with self.drawn_alike(batch, batch_idx):
            self._score("val", batch)

    def test_step(self, batch: VideoBatch, batch_idx: int) -> None:
        """Loss and roll-out on the test set, with thresholded feedback too."""
        with self.drawn_alike(batch, batch_idx):
            self._score("test", batch)
            if self.loss_kind == "bce":
                true = self._future(batch)
                pieces = self._pieces(batch, "threshold")
                self._scores("test").update(({"thresholded": part}, true[:, at]) for at, part in pieces)

    def predict_step(self, batch: VideoBatch, batch_idx: int) -> dict[str, Tensor]:
        """The predicted frames and which steps they are, and each slot's share in each pixel, if the decoder tells."""
        with self.drawn_alike(batch, batch_idx):
            decoded = self.rollout(batch)
        steps = batch.time[:, :1] + torch.arange(self.context, self.context + self.horizon, device=batch.time.device)
        out = {"frames": decoded.reconstruction, "steps": steps}
        return out if decoded.masks is None else out | {"masks": decoded.masks}

    def on_validation_epoch_end(self) -> None:
        """Logs the scores, the first time with their floors."""
        self._close("val")

    def on_test_epoch_end(self) -> None:
        """Logs the scores, the first time with their floors."""
        self._close("test")

    def headlines(self) -> list[Headline]:
        """Error, PSNR and SSIM of the roll-out; LPIPS and FVD, or what they need."""
        stage, names = self._last_stage, self._scores(self._last_stage).names
        floors, oracles = self.floors[stage], self.oracles[stage]
        return rollout_headlines(stage, self.horizon, names, floors, oracles, self.given_weights, self.groups.clips)

    def pictures(self, batch: VideoBatch) -> dict[str, np.ndarray]:
        """Per clip: what followed, what was predicted, both over one another, and which slot painted each pixel."""
        with self.drawn_alike(batch, 0):
            return {"rollouts": rollout_sheet(batch.frames, self.rollout(batch), self.context)}

    def videos(self, batch: VideoBatch) -> dict[str, np.ndarray]:
        """Roll-outs of the first two clips, beside what really followed."""
        clips = batch.map(lambda value: value[:2])
        with self.drawn_alike(clips, 0):
            predicted, last = self.rollout(clips).reconstruction, self.context + self.horizon
        return {f"rollout_{i}": paint_rollout(clips.frames[i, :last], predicted[i]) for i in range(len(clips))}

    def plots(self) -> dict[str, np.ndarray]:
        """Each score against the step of the horizon, beside floors and oracles, as of the last evaluation."""
        if not self._latest:
            return {}
        stage = self._last_stage
        names = self._scores(stage).names
        return {"horizon": draw_horizon(horizon_panels(names, self._latest, self.floors[stage], self.oracles[stage]))}

    @property
    def _last_stage(self) -> Stage:
        return "test" if self.floors["test"] else "val"

    def _future(self, batch: VideoBatch) -> Float[Tensor, "batch horizon channels height width"]:
        future = batch.frames[:, self.context : self.context + self.horizon]
        if future.shape[1] < self.horizon:
            raise ValueError(
                f"evaluation takes context + horizon = {self.context} + {self.horizon} frames and the clips have "
                f"{batch.num_steps}: set data.eval_frames to at least {self.context + self.horizon}, or lower "
                "model.context or model.horizon"
            )
        return future

    def _score(self, stage: Stage, batch: VideoBatch) -> None:
        true = self._future(batch)
        self.add_loss(stage, self._forced_loss(batch), len(batch))
        beside = {} if self.floors[stage] else self._frames_beside(batch)  # they do not change
        pieces = (
            ({"": part} | {name: frames[:, at] for name, frames in beside.items()}, true[:, at])
            for at, part in self._pieces(batch)
        )
        self._scores(stage).update(pieces, batch.frames[:, : self.context], batch.index)

    def _forced_loss(self, batch: VideoBatch) -> Tensor:
        """The loss of the whole clip, piece by piece."""
        total, state, steps = torch.zeros((), device=self.device), None, batch.num_steps - 1
        for start in range(0, steps, _PIECE):
            piece = batch.slice_time(start, min(start + _PIECE, steps) + 1)
            out = self.core(self.encoder(piece.slice_time(0, piece.num_steps - 1)), state)
            decoded = self.decoder(out.slots, piece.slice_time(1, piece.num_steps))
            total = total + self.loss(decoded, piece) * ((piece.num_steps - 1) / steps)
            state = out.state
        return total

    def _frames_beside(self, batch: VideoBatch) -> dict[str, Tensor]:
        """What is scored beside the model: trivial answers, and what knows the simulator."""
        simple = simple_answers(batch.frames[:, : self.context], self.horizon)
        data = getattr(self.trainer, "datamodule", None)
        knowing = {} if data is None else data.continuations(batch, self.context, self.horizon)
        return {f"floor|{name}": frames for name, frames in simple.items()} | {
            f"oracle|{name}": frames for name, frames in knowing.items()
        }

    def _pieces(self, batch: VideoBatch, feedback: Feedback | None = None) -> Iterator[tuple[slice, Tensor]]:
        """Pieces of the roll-out with where they lie in the horizon; the time they take is added up."""
        steps, done = self.rollout_steps(batch, feedback=feedback), 0
        while done < self.horizon:
            begin = self._now()
            piece = torch.cat([step.reconstruction for step in islice(steps, _PIECE)], dim=1)
            self._sampling_seconds += self._now() - begin
            self._sampled_frames += piece.shape[0] * piece.shape[1]
            yield slice(done, done + piece.shape[1]), piece
            done += piece.shape[1]

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def _scores(self, stage: Stage) -> RolloutScores:
        scores = self.scores[stage]
        assert isinstance(scores, RolloutScores)
        return scores

    def _close(self, stage: Stage) -> None:
        loss, curves = self.close_loss(stage), self._scores(stage).close()
        speed = self._sampled_frames / max(self._sampling_seconds, 1e-9)
        self._sampled_frames, self._sampling_seconds = 0, 0.0
        if self.trainer.sanity_checking:
            return
        logged = curve_values(curves, self.report_horizons)
        self._latest = curves[""]
        self.floors[stage] = floors_of(curves) or self.floors[stage]
        self.oracles[stage] = oracles_of(curves) or self.oracles[stage]
        frame = self.data_spec.target
        logged["rollout_mse_per_frame"] = logged["rollout_mse"] * frame.channels * frame.height * frame.width
        if stage == "test":
            groups = self.groups.close()
            logged |= summarise_groups(groups, "rollout_")
            logged |= {"rollout_groups": len(groups["mse"]), "rollout_group_clips": self.groups.clips}
            logged["sampling_fps"] = float(sum_over_processes(torch.tensor(speed, device=self.device)))
        self.log_scores(stage, loss | {name: float(value) for name, value in logged.items()})
