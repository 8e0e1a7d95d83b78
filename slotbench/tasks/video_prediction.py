"""Look at some frames, then go on alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import ClassVar, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
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
from slotbench.metrics.frames import MAX_PSNR, SSIM_WINDOW, HorizonCurve, frame_mse, frame_psnr, frame_ssim
from slotbench.tasks.base import Headline, SlotTask
from slotbench.tasks.pictures import contact_sheet, draw_horizon, paint_frame, paint_overlay, paint_slots
from slotbench.tasks.schedule import WarmupCosine

__all__ = ["VideoPrediction"]

Stage = Literal["val", "test"]
Loss = Literal["bce", "mse"]
Feedback = Literal["probability", "threshold"]

_SCORES = {"mse": "squared error per pixel", "psnr": "PSNR, dB", "ssim": "SSIM"}


class VideoPrediction(SlotTask):
    """Learns to predict the next frame, and is tested by going on alone from its own predictions.

    Training is teacher-forced: from the slots after frame t, frame t + 1 is decoded. In evaluation the model looks at
    `context` true frames and then predicts `horizon` frames, each from the one it predicted before, through the state
    that the core carries. Nothing true is read after the context.

    Scores of the roll-out: `rollout_mse` (mean over pixels), `rollout_psnr` and `rollout_ssim` (per frame, then mean),
    each also by step of the horizon (`rollout_mse/step_07`), `rollout_mse_per_frame` (summed over the pixels of a
    frame) and `rollout_capped` (share of frames without any error, whose PSNR is set to 100 dB). Frames too small
    for the window of SSIM have none. Their floors, from the same clips: repeat the last context frame, black, the
    context's mean grey, and what the data set's simulator can say (`SlotDataModule.continuations`). The test also
    feeds back thresholded frames (`rollout_mse_thresholded`) where `loss` is "bce".

    Source: SlotSSM §7.1. Loss and protocol are the paper's; what is fed back, the scale of the error, and how time
    indices beyond the training clips are met are not stated there.

    Args:
        encoder: makes an encoder from the input's `VideoSpec`.
        core: makes a temporal core from the encoder's `TokenSpec`.
        decoder: makes a decoder from the core's `SlotSpec` and the target's `VideoSpec`.
        optimizer: makes an optimiser from parameter groups; matrices decay, everything else does not.
        schedule: makes a learning-rate schedule from the optimiser and the number of steps of the whole training.
        loss: "bce", cross-entropy between pixel and logit, or "mse", squared error of the decoder's output itself.
        context: true frames that a roll-out starts from.
        horizon: frames that it predicts.
        feedback: what goes back in: the predicted "probability", or with "threshold" black or white, whichever is
            nearer.
        max_time_offset: in training, the clock of each clip starts at a random step from 0 to this, so that the time
            indices of a roll-out longer than the training clips are not new to the encoder.
        init_from: a run folder or a checkpoint whose weights to start from, where name and shape match.
        data_spec: sizes of the input and of the target; the command line takes it from the data.

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
        loss: Loss = "bce",
        context: int = 10,
        horizon: int = 20,
        feedback: Feedback = "probability",
        max_time_offset: int = 0,
        init_from: str | None = None,
        data_spec: DataSpec | None = None,
    ):
        super().__init__(encoder, core, decoder, optimizer, schedule, init_from, data_spec)
        frame, target = self.data_spec.input, self.data_spec.target
        if frame.patches_per_side != 1 or (frame.channels, frame.height, frame.width) != (
            target.channels,
            target.height,
            target.width,
        ):
            raise ValueError(
                f"VideoPrediction feeds what it predicts back in, so the target must be a frame like the input; this "
                f"data gives {frame} and wants {target}: choose a data set of whole frames, for example BouncingBalls"
            )
        for name, given, choices in (("loss", loss, get_args(Loss)), ("feedback", feedback, get_args(Feedback))):
            if given not in choices:
                raise ValueError(f"no {name} named {given!r}; choose one of {', '.join(choices)}")
        counts = {"context": (context, 1), "horizon": (horizon, 1), "max_time_offset": (max_time_offset, 0)}
        for name, (count, least) in counts.items():
            if count < least:
                raise ValueError(f"{name} is {count}; expected a number of frames, at least {least}")
        self.loss_kind: Loss = loss
        self.context = context
        self.horizon = horizon
        self.feedback: Feedback = feedback
        self.max_time_offset = max_time_offset
        names = ["mse", "psnr", *(["ssim"] if min(frame.height, frame.width) >= SSIM_WINDOW else [])]
        self.score_names = tuple(names)
        self.curves = nn.ModuleDict({stage: nn.ModuleDict() for stage in get_args(Stage)})
        self.floors: dict[Stage, dict[str, dict[str, list[float]]]] = {"val": {}, "test": {}}
        self._latest: dict[str, list[float]] = {}

    def forward(self, batch: VideoBatch) -> Decoded:
        """Decodes the prediction of frame t + 1 from the slots after frame t, for every frame but the last.

        Returns:
            logits (loss "bce") or pixels (loss "mse"), "batch time-1 channels height width".

        Raises:
            ValueError: clips of a single frame.
        """
        if batch.num_steps < 2:
            raise ValueError("predicting the next frame takes clips of at least 2 frames, and these have 1")
        out = self.core(self.encoder(batch.slice_time(0, batch.num_steps - 1)))
        return self.decoder(out.slots, batch.slice_time(1, batch.num_steps))

    def frames(self, decoded: Decoded) -> Float[Tensor, "batch time channels height width"]:
        """What the decoder painted, as frames in [0, 1]."""
        painted = _at_least_float32(decoded.reconstruction)
        return painted.sigmoid() if self.loss_kind == "bce" else painted.clamp(0, 1)

    def rollout(
        self,
        batch: VideoBatch,
        context: int | None = None,
        horizon: int | None = None,
        feedback: Feedback | None = None,
    ) -> Decoded:
        """Reads `context` frames of the batch, then predicts `horizon` frames from its own predictions.

        Of the frames and the time of the batch, only the first `context` are read; actions, where there are any, are
        read for every predicted frame, because they are given and not predicted.

        Args:
            batch: clips of at least `context` frames.
            context: frames to read; the task's by default.
            horizon: frames to predict; the task's by default.
            feedback: what goes back in; the task's by default.

        Returns:
            frames in [0, 1] "batch horizon channels height width", with the decoder's masks.

        Raises:
            ValueError: the clips are shorter than the context.
        """
        context, horizon = context or self.context, horizon or self.horizon
        if batch.num_steps < context:
            raise ValueError(
                f"a roll-out from {context} context frames needs clips of at least as many, and these have "
                f"{batch.num_steps}: lower context, or make the clips longer"
            )
        out = self.core(self.encoder(batch.slice_time(0, context)))
        slots, state, start = out.slots[:, -1:], out.state, batch.time[:, context - 1 : context]
        predicted, masks = [], []
        for step in range(1, horizon + 1):
            decoded = self.decoder(slots)
            frame = self.frames(decoded)
            predicted.append(frame)
            if decoded.masks is not None:
                masks.append(decoded.masks)
            if step < horizon:
                seen = (frame > 0.5).to(frame) if (feedback or self.feedback) == "threshold" else frame
                here = context + step - 1
                actions = None if batch.actions is None else batch.actions[:, here : here + 1]
                out = self.core(self.encoder(VideoBatch(seen, start + step, actions=actions)), state)
                slots, state = out.slots, out.state
        return Decoded(torch.cat(predicted, dim=1), torch.cat(masks, dim=1) if masks else None)

    def loss(self, decoded: Decoded, batch: VideoBatch) -> Float[Tensor, ""]:
        """Mean over pixels and frames of the next frame's loss, plus the decoder's own terms."""
        painted = _at_least_float32(decoded.reconstruction)
        true = batch.frames[:, 1:].to(painted)
        if self.loss_kind == "bce":
            value = F.binary_cross_entropy_with_logits(painted, true)
        else:
            value = F.mse_loss(painted, true)
        for term in decoded.losses.values():
            value = value + term
        return value

    def training_step(self, batch: VideoBatch, batch_idx: int) -> Tensor:
        """One batch's loss."""
        if self.max_time_offset:
            offset = torch.randint(self.max_time_offset + 1, (len(batch), 1), device=batch.time.device)
            batch = replace(batch, time=batch.time + offset)
        loss = self.loss(self(batch), batch)
        self.log("train/loss", loss, prog_bar=True, batch_size=len(batch))
        return loss

    def validation_step(self, batch: VideoBatch, batch_idx: int) -> None:
        """Loss and roll-out on the validation set."""
        self._score("val", batch)

    def test_step(self, batch: VideoBatch, batch_idx: int) -> None:
        """Loss and roll-out on the test set, with thresholded feedback too."""
        self._score("test", batch)
        if self.loss_kind == "bce":
            predicted = self.rollout(batch, feedback="threshold").reconstruction
            self._curve("test", "mse_thresholded").update(frame_mse(predicted, self._future(batch)))

    def predict_step(self, batch: VideoBatch, batch_idx: int) -> dict[str, Tensor]:
        """The predicted frames, and each slot's share in each pixel, if the decoder tells."""
        decoded = self.rollout(batch)
        out = {"frames": decoded.reconstruction}
        return out if decoded.masks is None else out | {"masks": decoded.masks}

    def on_validation_epoch_end(self) -> None:
        """Logs the scores, the first time with their floors."""
        self._close("val")

    def on_test_epoch_end(self) -> None:
        """Logs the scores, the first time with their floors."""
        self._close("test")

    def headlines(self) -> list[Headline]:
        """Error, PSNR and SSIM of the roll-out."""
        stage: Stage = "test" if self.floors["test"] else "val"
        labels = {"mse": f"error: MSE per pixel, {self.horizon} frames ahead", "psnr": "PSNR in dB", "ssim": "SSIM"}
        return [
            Headline(
                f"{stage}/rollout_{name}",
                labels[name],
                {floor: float(np.mean(curves[name])) for floor, curves in self.floors[stage].items()},
                higher_is_better=name != "mse",
            )
            for name in self.score_names
        ]

    def pictures(self, batch: VideoBatch) -> dict[str, np.ndarray]:
        """Per clip: what followed, what was predicted, both over one another, and which slot painted each pixel."""
        decoded = self.rollout(batch)
        true = batch.frames[:, self.context : self.context + self.horizon]
        steps = range(0, self.horizon, max(1, math.ceil(self.horizon / 10)))
        labels = [f"seen {self.context}"] + [f"+{step + 1}" for step in steps]
        last, rows, names = self.context - 1, [], []
        for i in range(min(len(batch), 3)):
            predicted = decoded.reconstruction[i]
            seen = paint_frame(batch.frames[i, last])
            rows.append([seen, *(paint_frame(true[i, t]) for t in steps)])
            rows.append([seen, *(paint_frame(predicted[t]) for t in steps)])
            rows.append([seen, *(paint_overlay(true[i, t], predicted[t]) for t in steps)])
            names += ["truth", "prediction", "both"]
            if decoded.masks is not None:
                masks = decoded.masks[i].argmax(1)
                bright = [(predicted[t].mean(0) > 0.5).long() for t in steps]
                rows.append([seen, *(paint_slots(masks[t], b) for t, b in zip(steps, bright, strict=True))])
                names.append("slots")
        return {"rollouts": contact_sheet(rows, labels, names)}

    def plots(self) -> dict[str, np.ndarray]:
        """Each score against the step of the horizon, beside its floors, as of the last evaluation."""
        if not self._latest:
            return {}
        stage: Stage = "test" if self.floors["test"] else "val"
        panels = {
            _SCORES[name]: {"this run": self._latest[name]}
            | {floor: curves[name] for floor, curves in self.floors[stage].items()}
            for name in self.score_names
        }
        return {"horizon": draw_horizon(panels)}

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
        self.log(f"{stage}/loss", self.loss(self(batch), batch), on_epoch=True, batch_size=len(batch))
        self._update(stage, "", self.rollout(batch).reconstruction, true)
        if self.floors[stage]:
            return  # they do not change
        last = batch.frames[:, self.context - 1 : self.context].expand_as(true)
        # of all answers that say nothing about where, this grey has the least squared error
        grey = batch.frames[:, : self.context].mean(dim=(1, 3, 4), keepdim=True).expand_as(true)
        simple = {"copy the last frame": last, "black": torch.zeros_like(true), "grey, mean of the context": grey}
        data = getattr(self.trainer, "datamodule", None)
        if data is not None:
            simple |= data.continuations(batch, self.context, self.horizon)
        for name, frames in simple.items():
            self._update(stage, f"floor|{name}|", frames, true)

    def _update(self, stage: Stage, prefix: str, predicted: Tensor, true: Tensor) -> None:
        functions = {"mse": frame_mse, "psnr": frame_psnr, "ssim": frame_ssim}
        for name in self.score_names:
            values = functions[name](predicted, true)
            self._curve(stage, prefix + name).update(values)
            if name == "psnr" and not prefix:
                self._curve(stage, "capped").update((values >= MAX_PSNR).float())

    def _curve(self, stage: Stage, name: str) -> HorizonCurve:
        curves = self.curves[stage]
        assert isinstance(curves, nn.ModuleDict)
        if name not in curves:  # made on first use: which floors there are, the data tells
            curves[name] = HorizonCurve(self.horizon).to(self.device)
        curve = curves[name]
        assert isinstance(curve, HorizonCurve)
        return curve

    def _close(self, stage: Stage) -> None:
        curves = self.curves[stage]
        assert isinstance(curves, nn.ModuleDict)
        # .compute() gathers over processes, so every process takes part
        values = {name: curve.compute().tolist() for name, curve in curves.items() if curve.update_called}  # type: ignore[operator,union-attr]
        for curve in curves.values():
            curve.reset()  # type: ignore[operator]
        if self.trainer.sanity_checking:
            return
        found: dict[str, dict[str, list[float]]] = {}
        for key in [name for name in values if name.startswith("floor|")]:
            _, floor, name = key.split("|")
            found.setdefault(floor, {})[name] = values.pop(key)
        if found:
            self.floors[stage] = found
        self._latest = values
        scores = {f"rollout_{name}": float(np.mean(curve)) for name, curve in values.items()}
        frame = self.data_spec.target
        scores["rollout_mse_per_frame"] = scores["rollout_mse"] * frame.channels * frame.height * frame.width
        for floor, by_name in found.items():
            scores |= {f"floor/rollout_{name}/{floor}": float(np.mean(curve)) for name, curve in by_name.items()}
        for name in self.score_names:
            scores |= {f"rollout_{name}/step_{i + 1:02d}": value for i, value in enumerate(values[name])}
            for floor, by_name in found.items():
                scores |= {
                    f"floor/rollout_{name}/{floor}/step_{i + 1:02d}": value for i, value in enumerate(by_name[name])
                }
        self.log_dict({f"{stage}/{name}": value for name, value in scores.items()})


def _at_least_float32(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()
