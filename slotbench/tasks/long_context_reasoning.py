"""Classification of the pixels of an image that follows from a long sequence."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float, Integer
from torch import Tensor
from torch.nn import functional as F
from torch.optim import AdamW

from slotbench.figures.painting import IN_VIDEO, Painted, paint_classes, paint_slots, resize, size_within
from slotbench.figures.sheets import Row, contact_sheet, film_strip
from slotbench.interfaces import DataSpec, Decoded, Reasoner, State, VideoBatch, detach_state
from slotbench.metrics.balls import BallScores, last_colours_seen
from slotbench.metrics.contingency import masks_to_labels
from slotbench.metrics.scores import Score
from slotbench.nn.distributed import sum_over_processes
from slotbench.tasks.factories import CoreFactory, DecoderFactory, EncoderFactory, OptimizerFactory, ScheduleFactory
from slotbench.tasks.frame_losses import at_least_float32
from slotbench.tasks.optimisation import Decay, WarmupCosine
from slotbench.tasks.part_checks import check_logits
from slotbench.tasks.slot_task import SlotTask

__all__ = ["LongContextReasoning"]

_TICKS = 30  # frames of a video for which the context is shown


class LongContextReasoning(SlotTask, Reasoner):
    """Long-context reasoning: classifies every pixel of a target image after the whole sequence has been read.

    Source: SlotSSM §7.2 and appendix B-C (Blinking Color Balls), which trains on the last image alone, without weights.
    `dense_targets` and `class_weights` bring a small model off two plateaus within minutes.

    Args:
        dense_targets: also decode after every earlier context frame, and learn from what its answer would be.
        class_weights: weight of each class in the loss early in training; None for equal weights.
        anneal: shares of the training between which `class_weights` go linearly to 1.
        chunk_steps: read the sequence in chunks of so many steps, carrying the state; None reads it at once.
        truncate_gradient: stop the gradient where chunks meet.
        loss_reduction: "mean" over pixels, or "sum" over pixels and mean over images (equation 39).
    """

    monitor = ("val/loss", "min")
    reported = (
        Score("ball_iou", "where: ball-pixel IoU"),
        Score("colour_accuracy", "what: colour accuracy, coloured balls"),
        Score("colour_accuracy_not_last", "memory: the same where the last colour is wrong"),
        Score("colour_accuracy_rules_disagree", "rule: the same where Earliest and Most Frequent differ"),
    )
    early_weights: Float[Tensor, " classes"]

    def __init__(
        self,
        encoder: EncoderFactory,
        core: CoreFactory,
        decoder: DecoderFactory,
        optimizer: OptimizerFactory = AdamW,
        schedule: ScheduleFactory = WarmupCosine,
        dense_targets: bool = False,
        class_weights: list[float] | None = None,
        anneal: tuple[float, float] = (0.3, 0.45),
        chunk_steps: int | None = None,
        truncate_gradient: bool = False,
        loss_reduction: Literal["mean", "sum"] = "mean",
        init_from: str | None = None,
        data_spec: DataSpec | None = None,
        decay: Decay = "matrices",
    ):
        super().__init__(encoder, core, decoder, optimizer, schedule, init_from, data_spec, decay)
        self.num_classes = self.data_spec.target.channels
        if self.num_classes < 3:
            raise ValueError("LongContextReasoning needs a target of 3 classes or more: choose BlinkingBalls")
        check_logits(self.decoder, "LongContextReasoning takes logits of classes: give")
        if class_weights is not None and len(class_weights) != self.num_classes:
            raise ValueError(f"class_weights has {len(class_weights)} values; the data has {self.num_classes} classes")
        if not 0 <= anneal[0] <= anneal[1] <= 1:
            raise ValueError(f"anneal is two shares of the training, in [0, 1] and in order; got {anneal}")
        if chunk_steps is not None and chunk_steps < 1:
            raise ValueError(f"chunk_steps is a number of steps from 1 on, or null to read at once; got {chunk_steps}")
        self.dense_targets = dense_targets
        self.anneal = anneal
        self.chunk_steps = chunk_steps
        self.truncate_gradient = truncate_gradient
        self.loss_reduction = loss_reduction
        weights = torch.tensor(class_weights) if class_weights is not None else torch.ones(self.num_classes)
        self.register_buffer("early_weights", weights, persistent=False)
        self.declare_scores(self.answer_scores(), self.answer_scores())

    def forward(self, batch: VideoBatch) -> Decoded:
        """Decodes the slots of every step after which a target is due; in training without `dense_targets`, the last.

        Returns:
            logits "batch targets classes height width".
        """
        due = (batch.require("target_time")[0] - batch.time[0, 0]).tolist()
        every = self.dense_targets or not self.training
        wanted, length = due if every else due[-1:], self.chunk_steps or batch.num_steps
        state, slots = None, []
        for start in range(0, batch.num_steps, length):
            out = self.tracked(self.encoded(batch.slice_time(start, start + length)), state)
            here = [step - start for step in wanted if start <= step < start + length]
            if here:
                slots.append(out.slots[:, here])
            state = detach_state(out.state) if self.truncate_gradient else out.state
        return self.decoded(torch.cat(slots, dim=1), batch)

    def weights_now(self) -> Float[Tensor, " classes"]:
        """Class weights at this point of the training; those of its start in a loop without a trainer."""
        begin, end = self.anneal
        try:
            progress = self.progress
        except RuntimeError:  # without a trainer
            progress = 0.0
        early = 1.0 - min(1.0, max(0.0, (progress - begin) / max(end - begin, 1e-9)))
        return 1.0 + (self.early_weights - 1.0) * early

    def loss(self, output: Decoded, batch: VideoBatch) -> Float[Tensor, ""]:
        """Cross-entropy per pixel of the last target, plus the decoder's own terms."""
        targets = output.reconstruction.shape[1] if self.training and self.dense_targets else 1
        logits = at_least_float32(output.reconstruction[:, -targets:].flatten(0, 1))
        weights = self.weights_now().to(logits.dtype) if self.training else None
        wanted = batch.require("target")[:, -targets:].flatten(0, 1).long()
        value = F.cross_entropy(logits, wanted, weights, reduction=self.loss_reduction)
        if self.loss_reduction == "sum":
            value = value / len(logits)
        elif weights is not None:
            value = value * _share_of_weight(weights[wanted].sum())
        return output.add_losses(value)

    def score(self, batch: VideoBatch, scores: BallScores) -> Tensor:
        """Scores every target; the loss is that of the last."""
        decoded = self(batch)
        scores.update(decoded.reconstruction.argmax(2), batch)
        return self.loss(decoded, batch)

    def answer_scores(self) -> BallScores:
        """New scores of class images."""
        return BallScores(self.num_classes, self.data_spec.target.palette)

    def stream_answers(
        self, batch: VideoBatch, state: State | None
    ) -> tuple[Integer[Tensor, "batch targets height width"], State]:
        """The class images of the targets due within the next steps, and the core's state after those steps."""
        out = self.core(self.encoder(batch), state)
        due = batch.require("target_time")[0] - batch.time[0, 0]
        return self.decoder(out.slots[:, due], batch).reconstruction.argmax(2), out.state

    def predict(self, batch: VideoBatch) -> dict[str, Tensor]:
        """The predicted class image of the last target, its frame, and each slot's share in each pixel, if known."""
        decoded = self(batch)
        frame = batch.require("target_time")[:, -1:] // self.data_spec.input.steps_per_frame
        found = {"classes": decoded.reconstruction[:, -1].argmax(1), "steps": frame}
        return found if decoded.masks is None else found | {"masks": decoded.masks[:, -1]}

    def pictures(self, batch: VideoBatch) -> dict[str, np.ndarray]:
        """A row per clip: context frames, the panels of the answer, and which slot painted each pixel."""
        frames, answers = self._shown(batch)
        rows = [Row("", [*frames[i], *(images[i] for images in answers.values())]) for i in range(len(batch))]
        return {"predictions": contact_sheet(rows, [f"context {i + 1}" for i in range(frames.shape[1])] + [*answers])}

    def videos(self, batch: VideoBatch) -> dict[str, np.ndarray]:
        """Of each clip, side by side: context frames, then the answer beside the target and a baseline, held longer."""
        frames, answers = self._shown(batch)
        size, hold = size_within(torch.from_numpy(frames[0, 0, ..., 0]), *IN_VIDEO), max(1, _TICKS // frames.shape[1])
        found = {}
        for i, context in enumerate(frames):
            unknown = [np.zeros_like(context[0])] * len(context)
            panels = {"context": [*context, context[-1]]}
            panels |= {name: [*unknown, images[i]] for name, images in answers.items()}
            enlarged = {name: np.stack([resize(one, size) for one in video]) for name, video in panels.items()}
            found[f"prediction_{i}"] = film_strip(enlarged).repeat([hold] * len(context) + [3 * hold], axis=0)
        return found

    def _shown(self, batch: VideoBatch) -> tuple[np.ndarray, dict[str, list[Painted]]]:
        """The context frames "batch frames height width 3", and by name the images of the last target of each clip."""
        with self.deterministic_sampling(batch, 0):
            decoded = self(batch)
        predicted = decoded.reconstruction[:, -1].argmax(1)
        side = self.data_spec.input.patches_per_side
        whole = rearrange(batch.pixels, "b (f p q) c h w -> b f (p h) (q w) c", p=side, q=side)
        palette = self.data_spec.target.palette or tuple((40 * c,) * 3 for c in range(self.num_classes))
        classes = {"target": batch.require("target")[:, -1].long(), "prediction": predicted}
        if "last" in batch.objects:
            classes["last colour seen"] = last_colours_seen(batch)
        answers = {name: [paint_classes(one, palette) for one in images] for name, images in classes.items()}
        if decoded.masks is not None:
            slots = masks_to_labels(decoded.masks[:, -1])
            answers["slots"] = [paint_slots(*both) for both in zip(slots, predicted, strict=True)]
        return (whole.float() * 255).round().to(torch.uint8).cpu().numpy(), answers


def _share_of_weight(own: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """The weight of this process's pixels, over the mean of the processes' weights; 1 where there is one process."""
    total, processes = sum_over_processes(torch.stack([own, torch.ones_like(own)]))
    return own * processes / total
