"""One label per clip from the slots of its last step, with the groups and baselines that say what it took."""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F
from torch.optim import AdamW

from slotbench.data.base import check_choices
from slotbench.figures.charts import absence_chart
from slotbench.figures.labels import label_sheet
from slotbench.interfaces import DataSpec, Decoded, Segmentation, Segmenter, VideoBatch
from slotbench.metrics.contingency import resized_masks
from slotbench.metrics.label_scores import LabelScores
from slotbench.metrics.scores import Score
from slotbench.tasks.autoencoding import features_as_frames
from slotbench.tasks.factories import CoreFactory, DecoderFactory, EncoderFactory, OptimizerFactory, ScheduleFactory
from slotbench.tasks.frame_losses import at_least_float32
from slotbench.tasks.optimisation import Decay, WarmupCosine
from slotbench.tasks.part_checks import check_logits
from slotbench.tasks.slot_task import SlotTask

__all__ = ["ClipClassification"]

Labels = Literal["classes", "cells"]
Frozen = Literal["nothing", "encoder", "encoder and core"]


class ClipClassification(SlotTask, Segmenter):
    """Classifies a clip from the slots of its last step; the loss is the cross-entropy of the label.

    The label is a class image of one pixel, the last target of the clip; `LabelScores` names the scores. `init_from`
    takes over encoder and core of a run that was pre-trained, and `frozen` leaves them as they are.

    Source: SlotSSM, section 7.4 (CATER, snitch localisation), which trains on the last label alone.

    Args:
        encoder: makes an encoder from the `VideoSpec` of what is read: frames, or features if the data brings them.
        decoder: makes what reads the slots of a step, such as `ClassTokenDecoder`.
        labels: what the classes are: "cells" of a square grid, numbered row by row, or mere "classes".
        dense_targets: also learn from the targets of earlier steps.
        frozen: what keeps the weights that it starts from: "nothing", the "encoder", or "encoder and core".
    """

    monitor = ("val/loss", "min")

    def __init__(
        self,
        encoder: EncoderFactory,
        core: CoreFactory,
        decoder: DecoderFactory,
        optimizer: OptimizerFactory = AdamW,
        schedule: ScheduleFactory = WarmupCosine,
        labels: Labels = "cells",
        dense_targets: bool = False,
        frozen: Frozen = "nothing",
        init_from: str | None = None,
        data_spec: DataSpec | None = None,
        decay: Decay = "matrices",
    ):
        if data_spec is not None and (data_spec.target.height, data_spec.target.width) != (1, 1):
            raise ValueError("ClipClassification needs a target of one pixel, the label: choose CATERLike")
        check_choices(labels=(labels, Labels), frozen=(frozen, Frozen))
        parts = None
        if data_spec is not None and data_spec.features is not None:
            parts = DataSpec(input=data_spec.features, target=data_spec.target)
        super().__init__(encoder, core, decoder, optimizer, schedule, init_from, data_spec, decay, parts)
        check_logits(self.decoder, "ClipClassification takes logits of classes: give")
        self.labels: Labels = labels
        self.dense_targets = dense_targets
        self.frozen: Frozen = frozen
        num_classes = self.data_spec.target.channels
        self.declare_scores(*(LabelScores(num_classes, labels == "cells") for _ in range(2)))
        if frozen != "nothing":
            self.encoder.requires_grad_(False)
        if frozen == "encoder and core":
            self.core.requires_grad_(False)

    @property
    def reported(self) -> tuple[Score, ...]:
        """Top-1 of all clips and of the groups, L1 of cells, the loss."""
        scores = [Score("top1", "label: Top-1")]
        if self.labels == "cells":
            scores += [
                Score("top1/covered_moved", "memory: Top-1, covered and moved"),
                Score("top1/covered_still", "covered and still: Top-1"),
                Score("top1/free", "sight: Top-1, not covered"),
                Score("l1", "cells away: L1", higher_is_better=False),
            ]
        return (*scores, Score("loss", "cross-entropy", higher_is_better=False))

    def forward(self, batch: VideoBatch) -> Decoded:
        """Logits "batch 1 classes 1 1" of the last step; in training with `dense_targets`, of all with a target."""
        due = (batch.require("target_time")[0] - batch.time[0, 0]).tolist()
        read = self._read(batch)
        slots = self.tracked(self.encoded(read)).slots
        # the label belongs to the clip, whichever step of it comes last
        wanted = due if self.training and self.dense_targets else [batch.num_steps - 1]
        return self.decoded(slots[:, wanted], read)

    def evaluate(self, batch: VideoBatch) -> Segmentation:
        """The slots of every step, of which a label reads the last; for probing. There are no masks of a decoder."""
        out = self.core(self.encoder(self._read(batch)))
        attention = out.attention if out.attention_kind == "assignment" else None
        return Segmentation(out.slots, attention, None, out.attention_kind)

    def attention_masks(
        self, attention: Float[Tensor, "batch time slots tokens"], size: tuple[int, int]
    ) -> Float[Tensor, "batch time slots height width"] | None:
        """Attention over tokens as masks of `size` (height, width); None if tokens are no cells of the frames."""
        grid = self.encoder.token_spec.grid
        of_frames = grid is not None and self.data_spec.features is None
        return resized_masks(attention.unflatten(-1, grid), size) if of_frames else None

    def loss(self, output: Decoded, batch: VideoBatch) -> Float[Tensor, ""]:
        """Cross-entropy of the last targets, those that were decoded, plus the decoder's own terms."""
        logits = at_least_float32(output.reconstruction.flatten(0, 1)).flatten(1)
        wanted = batch.require("target")[:, -output.reconstruction.shape[1] :].flatten().long()
        return output.add_losses(F.cross_entropy(logits, wanted))

    def score(self, batch: VideoBatch, scores: LabelScores) -> Tensor:
        """Scores the last target."""
        decoded = self(batch)
        scores.update(decoded.reconstruction[:, -1].flatten(1), batch)
        return self.loss(decoded, batch)

    def predict(self, batch: VideoBatch) -> dict[str, Tensor]:
        """The predicted class and the probabilities of all classes, of each clip."""
        probabilities = self(batch).reconstruction[:, -1].flatten(1).softmax(1)
        return {"classes": probabilities.argmax(1), "probabilities": probabilities}

    def pictures(self, batch: VideoBatch) -> dict[str, np.ndarray]:
        """A row per clip: frames, states of the snitch, the true and the predicted cell."""
        with self.deterministic_sampling(batch, 0):
            read = self._read(batch)
            slots = self.core(self.encoder(read)).slots
            logits = self.decoder(slots[:, -1:], read).reconstruction[:, -1].flatten(1)
        return {"predictions": label_sheet(batch, logits, self.labels == "cells")}

    def plots(self) -> dict[str, np.ndarray]:
        """Top-1 against the frames since the snitch was last seen, beside the baselines, where the data knows them."""
        found = self.scores_of(self._stage).over_absence()
        return {"absence": absence_chart(found)} if len(found.get("model", ())) > 1 else {}

    def _read(self, batch: VideoBatch) -> VideoBatch:
        """The batch that the encoder reads: with features in the place of frames, where the data brings them."""
        return batch if self.data_spec.features is None else features_as_frames(batch, self.encoder)
