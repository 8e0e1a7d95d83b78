"""Prediction of a tokenizer's codes of the next frame, evaluated by autoregressive roll-out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import AdamW

from slotbench.data.base import check_choices
from slotbench.interfaces import AutoregressiveDecoder, DataSpec, Decoded, PartError, Tokenizer, VideoBatch
from slotbench.metrics.scores import Score
from slotbench.nn.gumbel import draw_categories
from slotbench.tasks import factories
from slotbench.tasks.codes.chosen_tokenizer import (
    check_stored_codes,
    fit_frozen_tokenizer,
    frame_codes,
    frozen_tokenizer,
)
from slotbench.tasks.codes.tokenizing import CodeSum
from slotbench.tasks.frame_losses import at_least_float32
from slotbench.tasks.metric_weights import MetricWeights
from slotbench.tasks.optimisation import Decay, WarmupCosine
from slotbench.tasks.part_checks import check_logits, check_whole_frames
from slotbench.tasks.rollouts.conditions import Conditions, RolloutOptions
from slotbench.tasks.rollouts.rollout import Feedback
from slotbench.tasks.rollouts.rollout_task import RolloutTask
from slotbench.tasks.rollouts.scores import RolloutScores
from slotbench.tasks.slot_task import frame_by_frame

__all__ = ["CodePrediction", "CodeRolloutTask"]


class CodeRolloutTask(RolloutTask):
    """A task of roll-outs whose model predicts the codes of a frozen tokenizer; a subclass sets `tokenizer`.

    Scores stand beside an oracle, the true frames as the tokenizer brings them back.
    """

    tokenizer: Tokenizer

    @property
    def parts(self) -> Mapping[str, nn.Module]:
        """Encoder, core, decoder and tokenizer."""
        return {**super().parts, "tokenizer": self.tokenizer}

    def train(self, mode: bool = True) -> CodeRolloutTask:
        """Into training mode or out of it, without the tokenizer, which is frozen."""
        super().train(mode)
        self.tokenizer.eval()
        return self

    def on_fit_start(self) -> None:
        """Fits a tokenizer that is fitted before the training."""
        super().on_fit_start()
        fit_frozen_tokenizer(self.tokenizer, self.trainer)

    def on_train_batch_start(self, batch: VideoBatch, batch_idx: int) -> None:
        """Checks that codes which the data set stores are this tokenizer's."""
        super().on_train_batch_start(batch, batch_idx)
        if batch_idx == 0:
            check_stored_codes(self.tokenizer, batch)

    def score(self, batch: VideoBatch, scores: Any) -> Tensor:
        """Scores the roll-out of a batch, of which each frame is encoded once."""
        check_stored_codes(self.tokenizer, batch)
        return super().score(replace(batch, codes=frame_codes(self.tokenizer, batch)), scores)

    def _references(self, batch: VideoBatch) -> dict[str, Tensor]:
        future = frame_codes(self.tokenizer, batch)[:, self.context : self.context + self.horizon]
        return super()._references(batch) | {
            "oracle|frames from their true codes": self.tokenizer.decode(future).float()
        }


class CodePrediction(CodeRolloutTask):
    """Learns to predict the codes of the next frame, and is evaluated by its autoregressive roll-out.

    The encoder reads the vectors of a frame's codes (`Tokenizer.embed`), and the decoder gives logits of the next
    frame's. In a roll-out the codes of each cell are drawn, independently of each other, their vectors are read next,
    and the tokenizer paints the frame. `cross_entropy` is that of the codes in nats, without smoothing (`NextCodes`).

    Source: Smith et al., "Convolutional State Space Models for Long-Range Spatiotemporal Modeling", NeurIPS 2023,
    appendix D.5 and its code, the models of DMLab; sums as there with `loss_sum: frame`.

    Args:
        encoder: makes an encoder from the `VideoSpec` of code vectors, such as `ResNetEncoder(rescale=False)`.
        decoder: makes a decoder from the core's `SlotSpec` and the tokenizer's `code_spec`.
        tokenizer_run: run folder or checkpoint of a `FrameTokenization` whose tokenizer is used.
        tokenizer: makes a tokenizer from the frames' `VideoSpec`, which is fitted here if it has to be.
        label_smoothing: share of the target that is spread over all codes.
        loss_sum: "mean" over all codes, or the sum over those of a "frame" and the mean over frames.
        temperature: of the codes that are drawn; 0 for the most likely one of each cell.
    """

    monitor = ("val/loss", "min")

    def __init__(
        self,
        encoder: factories.EncoderFactory,
        core: factories.CoreFactory,
        decoder: factories.DecoderFactory,
        tokenizer_run: str | None = None,
        tokenizer: factories.TokenizerFactory | None = None,
        optimizer: factories.OptimizerFactory = AdamW,
        schedule: factories.ScheduleFactory = WarmupCosine,
        label_smoothing: float = 0.01,
        loss_sum: CodeSum = "frame",
        temperature: float = 1.0,
        rollout: RolloutOptions = RolloutOptions(),
        init_from: str | None = None,
        data_spec: DataSpec | None = None,
        decay: Decay = "matrices",
        metric_weights: MetricWeights = MetricWeights(),
        conditions: Conditions = Conditions(),
    ):
        built, read = None, None
        if data_spec is not None:
            check_whole_frames(data_spec, "CodePrediction predicts the codes of the frames that it reads", "Maze")
            built = frozen_tokenizer("CodePrediction", tokenizer_run, tokenizer, data_spec.input)
            codes = built.code_spec
            vectors = replace(
                data_spec.input, codes=None, channels=built.embedding_dim, height=codes.height, width=codes.width
            )
            read = DataSpec(vectors, codes)
        super().__init__(encoder, core, decoder, optimizer, schedule, init_from, data_spec, decay, read)
        assert built is not None  # without a data_spec the line above raises
        check_choices(loss_sum=(loss_sum, CodeSum))
        check_logits(self.decoder, "its output is logits of codes here: give")
        if isinstance(self.decoder, AutoregressiveDecoder):
            raise PartError(f"{type(self.decoder).__name__} predicts one cell after the other: choose ResNetDecoder")
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing is a share from 0 to below 1; got {label_smoothing}")
        if temperature < 0:
            raise ValueError(f"temperature is {temperature}; expected 0 for the most likely code, or more")
        self.tokenizer = built
        self.label_smoothing, self.temperature = label_smoothing, temperature
        self.loss_sum: CodeSum = loss_sum
        self.declare_rollouts(rollout, metric_weights, conditions, num_codes=built.code_spec.channels)

    @property
    def reported(self) -> tuple[Score, ...]:
        """Scores of the roll-out, and the cross-entropy of the codes."""
        label = "codes given the true frames before: cross-entropy, nats per code"
        return (*super().reported, Score("cross_entropy", label, higher_is_better=False))

    def read(self, batch: VideoBatch) -> VideoBatch:
        """The batch with codes of its frames, and the vectors of these in the place of the frames."""
        codes = frame_codes(self.tokenizer, batch)
        # masks and rays are of the frames' pixels
        return replace(batch, frames=self._vectors(codes), codes=codes, masks=None, rays=None)

    @frame_by_frame
    def forward(self, batch: VideoBatch) -> Decoded:
        """Logits of the codes of every frame but the first, "batch time-1 codes rows cols"."""
        if batch.num_steps < 2:
            raise ValueError("predicting the next frame takes clips of at least 2 frames, and these have 1")
        read = self.read(batch)
        return self.decode(self.tracked(self.encoded(read.slice_time(0, batch.num_steps - 1))), read)

    @frame_by_frame
    def loss(self, output: Decoded, batch: VideoBatch) -> Float[Tensor, ""]:
        """Cross-entropy of the codes of every frame but the first, plus the decoder's own terms."""
        logits, codes = at_least_float32(output.reconstruction), frame_codes(self.tokenizer, batch)[:, 1:]

        def of(steps: slice, clips: Tensor | None) -> Tensor:
            rows, true = (x[:, steps] if clips is None else x[clips, steps] for x in (logits, codes))
            # classes last, as the decoder has them in memory
            flat = rows.movedim(2, -1).flatten(0, -2)
            return F.cross_entropy(flat, true.flatten(), label_smoothing=self.label_smoothing)

        value = self.conditions.mean_loss(of, batch)
        return output.add_losses(value * (codes[0, 0].numel() if self.loss_sum == "frame" else 1))

    def training_loss(self, batch: VideoBatch) -> Tensor:
        """The loss of a clip, of which actions may be dropped or frames hidden."""
        coded = replace(self.conditions.of_training(batch), codes=frame_codes(self.tokenizer, batch))
        return self.loss(self(coded), coded)

    def forced_loss(
        self, batch: VideoBatch, watch: Callable[[Decoded, VideoBatch], object] = lambda *_: None
    ) -> Tensor:
        """The teacher-forced loss of a batch; of long clips piece by piece."""
        return super().forced_loss(self.read(batch), watch)

    def watch_forced(self, scores: RolloutScores, output: Decoded, batch: VideoBatch) -> None:
        """Scores the predicted codes that the loss is of, and of which frame the last code is known."""
        super().watch_forced(scores, output, batch)
        codes = frame_codes(self.tokenizer, batch)
        hidden = 0 if batch.hidden is None else int(batch.hidden[0].sum())
        first = codes.shape[1] - hidden if hidden else 1
        true = codes[:, first:]
        before = codes[:, first - 1 : first].expand_as(true) if hidden else codes[:, :-1]
        assert scores.codes is not None
        parts = (output.reconstruction[:, first - 1 :], true, before)
        scores.codes.update(*(part.flatten(0, 1) for part in parts))

    def frames(self, decoded: Decoded) -> Float[Tensor, "batch time channels height width"]:
        """Frames of codes that are drawn by the decoder's logits."""
        return self.tokenizer.decode(self.draw(decoded.reconstruction))

    def next_frame(self, decoded: Decoded, feedback: Feedback) -> tuple[Tensor, Tensor]:
        """The frame of codes that are drawn, and the vectors of these."""
        codes = self.draw(decoded.reconstruction)
        return self.tokenizer.decode(codes), self._vectors(codes)

    def draw(self, logits: Float[Tensor, "batch time codes rows cols"]) -> Integer[Tensor, "batch time rows cols"]:
        """A code of each cell by its logits, the most likely one where the temperature is 0."""
        return draw_categories(logits.movedim(2, -1), self.temperature)

    def _predicted(self, batch: VideoBatch, context: int, *how: Any) -> Iterator[Decoded]:
        """Reads the vectors of the context, then draws the codes of the horizon."""
        return super()._predicted(self.read(batch), context, *how)

    def _vectors(
        self, codes: Integer[Tensor, "batch time rows cols"]
    ) -> Float[Tensor, "batch time embedding_dim rows cols"]:
        return self.tokenizer.embed(codes).to(next(self.encoder.parameters()).dtype)
