"""Reconstruction of frames by a tokenizer alone, before slots are trained on its codes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import AdamW

from slotbench.data.base import check_choices
from slotbench.figures.slot_panels import frame_panel
from slotbench.interfaces import DataSpec, PartError, Tokenized, VideoBatch
from slotbench.metrics.lpips import LPIPS
from slotbench.metrics.scores import Score
from slotbench.nn.patch_codebook import cut_patches, fit_codebook, join_patches, nearest_entries
from slotbench.tasks.codes.adversarial import Adversary
from slotbench.tasks.codes.code_scores import FrameScores
from slotbench.tasks.codes.tokenizing import (
    CodeSum,
    FrameError,
    checked_tokenizer,
    fit_tokenizer,
    reconstruction_loss,
    training_frames,
)
from slotbench.tasks.factories import OptimizerFactory, ScheduleFactory, TokenizerFactory
from slotbench.tasks.metric_weights import MetricWeights
from slotbench.tasks.optimisation import Decay, WarmupCosine
from slotbench.tasks.part_checks import check_whole_frames
from slotbench.tasks.task import Task

__all__ = ["FrameTokenization"]


class FrameTokenization(Task):
    """Trains a tokenizer to bring frames back from their codes, each frame on its own; there are no slots.

    Its run folder is then named as `tokenizer_run`. `FrameScores` names the scores; baselines that need no tokenizer
    are `mean_frame`, of `baseline_frames` training frames, `mean_colours` of each cell, and `k_means` patches.

    Source: Singh et al. (STEVE), NeurIPS 2022, which trains the tokenizer with the slots; alone first, as in the code
    of SlotFormer and SlotDiffusion (Wu et al., 2023). `frame_error: absolute` with `perceptual_weight: 1` and
    `adversarial_weight: 0.8` is the loss of VQ-GAN (Esser et al., CVPR 2021), with LPIPS of AlexNet for that of VGG.

    Args:
        tokenizer: makes a tokenizer from the frames' `VideoSpec`.
        loss_sum: "mean" for the mean error of pixels; "frame" for the sum over a frame's, as in STEVE.
        baseline_frames: training frames that `mean_frame` and `k_means` are of; 0 for no baselines.
        frame_error: "squared", or "absolute", of frames mapped to [-1, 1].
        perceptual_weight: of LPIPS between frames and what is painted; it needs `metric_weights`.
        metric_weights: files of the network of LPIPS.
        adversarial_weight: of the discriminator's judgement beside an adaptive weight; 0 for no discriminator.
        adversarial_start: step from which on the discriminator is trained and counts.
    """

    monitor = ("val/mse/frame", "min")

    def __init__(
        self,
        tokenizer: TokenizerFactory,
        optimizer: OptimizerFactory = AdamW,
        schedule: ScheduleFactory = WarmupCosine,
        loss_sum: CodeSum = "mean",
        baseline_frames: int = 1000,
        init_from: str | None = None,
        data_spec: DataSpec | None = None,
        decay: Decay = "matrices",
        frame_error: FrameError = "squared",
        perceptual_weight: float = 0.0,
        metric_weights: MetricWeights = MetricWeights(),
        adversarial_weight: float = 0.0,
        adversarial_start: int = 10_000,
    ):
        super().__init__(optimizer, schedule, init_from, data_spec, decay)
        check_whole_frames(self.data_spec, "FrameTokenization reconstructs the frames that it reads", "MOViLike")
        check_choices(loss_sum=(loss_sum, CodeSum), frame_error=(frame_error, FrameError))
        self.tokenizer = checked_tokenizer(tokenizer(self.data_spec.input))
        self.loss_sum: CodeSum = loss_sum
        self.baseline_frames = baseline_frames
        self.frame_error: FrameError = frame_error
        self.perceptual_weight = perceptual_weight
        self.metric_weights = metric_weights
        self.adversary = self._adversary(adversarial_weight, adversarial_start)
        if (metric_weights.lpips is None) != (perceptual_weight == 0):
            raise ValueError(
                f"perceptual_weight is {perceptual_weight} and metric_weights.lpips is {metric_weights.lpips}: give "
                "both, or neither"
            )
        metric_weights.check(self.data_spec.input)
        # not a submodule: no checkpoint holds its weights
        self._lpips: tuple[LPIPS, ...] = ()
        self._terms: dict[str, Tensor] = {}
        self.declare_scores(*(FrameScores(self.tokenizer.code_spec.channels) for _ in range(2)))
        self._references: dict[str, Tensor] = {}
        # what is fitted and not trained has nothing for the optimiser, and a training has one
        trained = any(parameter.requires_grad for parameter in self.tokenizer.parameters())
        self.nothing = None if trained else nn.Parameter(torch.zeros(()))

    @property
    def parts(self) -> Mapping[str, nn.Module]:
        """The tokenizer, and the discriminator if there is one."""
        adversary = {} if self.adversary is None else {"discriminator": self.adversary.discriminator}
        return {"tokenizer": self.tokenizer, **adversary}

    @property
    def reported(self) -> tuple[Score, ...]:
        """PSNR beside its baselines, and the use of the codes."""
        return (
            Score("psnr/frame", "frames from codes: PSNR per frame, dB"),
            Score("perplexity", f"codes in use, of {self.tokenizer.code_spec.channels}: perplexity"),
            Score("dead_codes", "codes that no cell has", higher_is_better=False),
        )

    def forget_references(self) -> None:
        """Forgets baselines, and the training frames that they are of."""
        super().forget_references()
        self._references = {}

    def setup(self, stage: str) -> None:
        """Reads the weights of LPIPS for a stage that has a loss."""
        super().setup(stage)
        lpips = self.metric_weights.load_lpips() if stage != "predict" else None
        self._lpips = () if lpips is None else (lpips,)

    def on_fit_start(self) -> None:
        """Fits what is fitted before the training."""
        super().on_fit_start()
        fit_tokenizer(self.tokenizer, self.trainer)

    def on_train_batch_start(self, batch: VideoBatch, batch_idx: int) -> None:
        """Tells the tokenizer which step it is."""
        super().on_train_batch_start(batch, batch_idx)
        self.tokenizer.at_step(self.global_step)

    def forward(self, batch: VideoBatch) -> Tokenized:
        """Codes of every frame, and what is to be compared with it."""
        return self.tokenizer(batch.pixels)

    def loss(self, output: Tokenized, batch: VideoBatch) -> Float[Tensor, ""]:
        """Error of the frames, plus the tokenizer's own terms, and in training those of the discriminator."""
        painted = output.reconstruction
        if painted is None:
            painted = self.tokenizer.decode(output.codes)
        error = reconstruction_loss(painted, batch.pixels, self.loss_sum, self.frame_error)
        for lpips in self._lpips:
            distance = lpips.to(painted.device)(painted, batch.pixels).mean()
            error = error + self.perceptual_weight * distance
        self._terms = dict(output.losses)
        if self.adversary is not None and self.training:
            frames = [part.flatten(0, -4) for part in (painted, batch.pixels)]
            assert self.tokenizer.last_layer is not None
            self._terms |= self.adversary(*frames, error, self.tokenizer.last_layer, self.global_step)
        error = error if self.nothing is None else error + 0 * self.nothing
        return sum(self._terms.values(), start=error)

    def training_step(self, batch: VideoBatch, batch_idx: int) -> Tensor:
        """The loss of a batch; with a discriminator its terms are logged too."""
        loss = super().training_step(batch, batch_idx)
        if self.adversary is not None:
            self.log_dict({f"train/{name}": value.detach() for name, value in self._terms.items()}, batch_size=1)
        return loss

    def score(self, batch: VideoBatch, scores: FrameScores) -> Tensor:
        """Scores frames decoded from codes, the first time beside baselines."""
        output = self(batch)
        painted = self.tokenizer.decode(output.codes).float()
        wanted = scores.wants_references and self.baseline_frames > 0
        scores.update(painted, batch.pixels.float(), output.codes, self._baselines(batch) if wanted else {})
        return self.loss(output, batch)

    def predict(self, batch: VideoBatch) -> dict[str, Tensor]:
        """The codes, and the frames decoded from them."""
        codes = self.tokenizer.encode(self.as_batch(batch).pixels)
        return {"codes": codes, "frames": self.tokenizer.decode(codes)}

    def pictures(self, batch: VideoBatch) -> dict[str, np.ndarray]:
        """A panel per clip: frames, and the same decoded from their codes."""
        painted = self.predict(batch)["frames"]
        return {
            f"clip_{i}": frame_panel({"frame": batch.pixels[i], "from codes": painted[i]}) for i in range(len(batch))
        }

    def _adversary(self, weight: float, start: int) -> Adversary | None:
        if not weight:
            return None
        if self.tokenizer.last_layer is None:
            raise PartError(f"adversarial_weight: {type(self.tokenizer).__name__} has no last_layer: choose VQGAN")
        frame = self.data_spec.input
        return Adversary(frame.channels, min(frame.height, frame.width), weight, start)

    def _baselines(self, batch: VideoBatch) -> dict[str, Tensor]:
        """What simple ways make of the frames of a batch."""
        frames = batch.pixels.float()
        spec = self.tokenizer.code_spec
        size = frames.shape[-1] // spec.width
        if size * spec.width != frames.shape[-1] or size * spec.height != frames.shape[-2]:
            return {}  # cells of another form have no patches
        if not self._references and (seen := training_frames(self.trainer, self.baseline_frames)) is not None:
            patches = cut_patches(seen, size).flatten(0, -2)
            self._references = {"mean": seen.mean(0), "codebook": fit_codebook(patches, spec.channels)}
        cut = cut_patches(frames, size)
        values = size * size
        flat = cut.unflatten(-1, (-1, values)).mean(-1, keepdim=True).expand(*cut.shape[:-1], -1, values).flatten(-2)
        found = {"mean_colours": join_patches(flat, size)}
        if self._references:
            known = {name: value.to(frames) for name, value in self._references.items()}
            found["mean_frame"] = known["mean"].expand_as(frames)
            nearest = known["codebook"][nearest_entries(cut, known["codebook"])]
            found["k_means"] = join_patches(nearest, size)
        return found
