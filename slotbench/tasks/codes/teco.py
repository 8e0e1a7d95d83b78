"""TECO: prediction of a tokenizer's codes through discrete latents of each frame, with a MaskGit prior."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import AdamW

from slotbench.data.base import check_choices
from slotbench.interfaces import DataSpec, Decoded, PartError, SlotSpec, State, VideoBatch, VideoSpec
from slotbench.nn.action_embedding import ActionEmbedding, hide_steps
from slotbench.nn.linear import lecun_linear
from slotbench.nn.mask_git import MaskGit
from slotbench.nn.parameters import without_decay
from slotbench.nn.vector_quantisation import CosineQuantiser
from slotbench.tasks import factories
from slotbench.tasks.codes.chosen_tokenizer import frame_codes, frozen_tokenizer
from slotbench.tasks.codes.code_prediction import CodeRolloutTask
from slotbench.tasks.frame_losses import at_least_float32
from slotbench.tasks.metric_weights import MetricWeights
from slotbench.tasks.optimisation import Decay, WarmupCosine
from slotbench.tasks.part_checks import check_logits, check_whole_frames, part_of
from slotbench.tasks.rollouts.conditions import Conditions, RolloutOptions
from slotbench.tasks.rollouts.rollout import PIECE, Feedback, Watch

__all__ = ["TECO", "Forecast"]

MaskedLoss = Literal["all", "hidden"]


@dataclass
class Forecast(Decoded):
    """Logits of the codes of some frames, with the true codes and which of these frames count in the loss."""

    codes: Integer[Tensor, "batch frames rows cols"] = field(kw_only=True)
    counted: Bool[Tensor, "batch frames"] = field(kw_only=True)


class TECO(CodeRolloutTask):
    """Learns to predict the codes of the next frame through discrete latents, of which a prior draws those to come.

    An encoder reads the vectors of a frame's codes beside those of the frame before, and a quantiser makes latents of
    them, one per cell. The core reads latents and actions up to frame t - 1; from its slots a MaskGit has the
    distribution of the latents of frame t, and from slots and latents the decoder has logits of codes. The loss is the
    cross-entropy of the codes, summed over a frame, plus the prior's and the quantiser's. In a roll-out latents are
    drawn and fed back.

    Source: Yan, Hafner, James, Abbeel, "Temporally Consistent Transformers for Video Generation", ICML 2023 (core
    `FrameTransformer`); Smith et al., "Convolutional State Space Models for Long-Range Spatiotemporal Modeling",
    NeurIPS 2023, Appendix D (TECO-ConvS5, TECO-S5, TECO-ConvSSM) and its code.

    Args:
        encoder: makes an encoder from the `VideoSpec` of two joined maps of code vectors.
        core: makes a core that keeps the grid, from the `TokenSpec` of latents joined with the action's embedding.
        decoder: makes a decoder of logits from the `SlotSpec` of slots joined with latents and the `code_spec`.
        tokenizer_run: run folder or checkpoint of a `FrameTokenization` whose tokenizer is used as it is.
        tokenizer: makes a tokenizer that is fitted before the training, such as `PatchKMeans`.
        prior: makes the prior from the `SlotSpec` of the core and the `VideoSpec` of the latents' codes.
        latent_dim: width of a latent.
        num_latent_codes: codes of the latents.
        latent_code_dim: width in which they are compared.
        action_dim: width of the embedding of an action, which all cells are given; 0 for none.
        drop_loss: share of the frames that a training clip has no loss of; the others are drawn with replacement.
        conditions: see `Conditions`; the core reads the latents of a hidden frame as -2.
        label_smoothing: share of the target code that is spread over all codes.
        quantiser_weight: of the two terms of the quantiser, means over all numbers of the unit vectors.
        masked_loss: which frames have a loss where `conditions` hide some: "all", as the code ran, or the "hidden"
            ones alone.
    """

    monitor = ("val/rollout_mse", "min")
    hides_frames: ClassVar[bool] = True

    def __init__(
        self,
        encoder: factories.EncoderFactory,
        core: factories.CoreFactory,
        decoder: factories.DecoderFactory,
        tokenizer_run: str | None = None,
        tokenizer: factories.TokenizerFactory | None = None,
        prior: Callable[[SlotSpec, VideoSpec], MaskGit] = MaskGit,
        optimizer: factories.OptimizerFactory = AdamW,
        schedule: factories.ScheduleFactory = WarmupCosine,
        latent_dim: int = 32,
        num_latent_codes: int = 256,
        latent_code_dim: int = 32,
        action_dim: int = 16,
        drop_loss: float = 0.0,
        rollout: RolloutOptions = RolloutOptions(),
        init_from: str | None = None,
        data_spec: DataSpec | None = None,
        decay: Decay = "matrices",
        metric_weights: MetricWeights = MetricWeights(),
        conditions: Conditions = Conditions(),
        label_smoothing: float = 0.01,
        quantiser_weight: float = 1.0,
        masked_loss: MaskedLoss = "all",
    ):
        built, sizes = None, None
        if data_spec is not None:
            check_whole_frames(data_spec, "TECO predicts codes of the frames that it reads", "MovingMNIST")
            built = frozen_tokenizer("TECO", tokenizer_run, tokenizer, data_spec.input)
            vectors = replace(built.code_spec, channels=2 * built.embedding_dim)
            sizes = DataSpec(vectors, built.code_spec)
        self.unsaved = [name for name, part in (("core", core), ("decoder", decoder)) if isinstance(part, nn.Module)]
        parts = (
            encoder,
            lambda tokens: part_of(core, "core", replace(tokens, dim=latent_dim + action_dim)),
            lambda slots, frame: part_of(decoder, "decoder", replace(slots, dim=slots.dim + latent_dim), frame),
        )
        super().__init__(*parts, optimizer, schedule, init_from, data_spec, decay, sizes)
        assert built is not None  # without a data_spec the line above raises
        self.tokenizer = built
        self._check_parts()
        for name, share in (("drop_loss", drop_loss), ("label_smoothing", label_smoothing)):
            if not 0 <= share < 1:
                raise ValueError(f"{name} is a share from 0 to below 1; got {share}")
        check_choices(masked_loss=(masked_loss, MaskedLoss))
        self.drop_loss, self.label_smoothing, self.quantiser_weight = drop_loss, label_smoothing, quantiser_weight
        self.masked_loss: MaskedLoss = masked_loss
        self._make_latents(latent_dim, CosineQuantiser(latent_dim, num_latent_codes, latent_code_dim), prior)
        self.actions = ActionEmbedding(self.data_spec.input.num_actions, action_dim) if action_dim else None
        self.declare_rollouts(rollout, metric_weights, conditions)

    def _check_parts(self) -> None:
        tokens, slots = self.encoder.token_spec, self.core.slot_spec
        if tokens.grid is None or slots.grid != tokens.grid:
            raise PartError(f"TECO needs a core that keeps the grid, such as ConvS5; got {type(self.core).__name__}")
        check_logits(self.decoder, "its output is logits of codes here: give")

    def _make_latents(
        self, dim: int, quantiser: CosineQuantiser, prior: Callable[[SlotSpec, VideoSpec], MaskGit]
    ) -> None:
        codes, tokens = self.tokenizer.code_spec, self.encoder.token_spec
        first = torch.randn(self.tokenizer.embedding_dim, codes.height, codes.width)
        self.first_frame = without_decay(nn.Parameter(0.02 * first))
        self.latent_map = lecun_linear(tokens.dim, dim)
        self.quantiser = quantiser
        assert tokens.grid is not None
        self.prior = prior(self.core.slot_spec, VideoSpec(len(quantiser.codebook), *tokens.grid))

    @property
    def parts(self) -> Mapping[str, nn.Module]:
        """Encoder, core, decoder, tokenizer and prior."""
        return {**super().parts, "prior": self.prior}

    def forward(self, batch: VideoBatch) -> Forecast:
        """Logits of the codes of frames 1 to the last, from the latents of these frames and slots of those before."""
        if batch.num_steps < 2:
            raise ValueError("predicting the next frame takes clips of at least 2 frames, and these have 1")
        codes = frame_codes(self.tokenizer, batch)
        latents = self._latents(codes)
        drawn = self.quantiser(latents)
        read = torch.cat([latents[:, :1], drawn.vectors[:, 1:]], dim=1)
        slots = self.tracked(self._tokens(read, batch)[:, :-1]).slots
        chosen, counted = self._chosen(batch)

        def frames(values: Tensor) -> Tensor:
            return values[torch.arange(len(values), device=values.device)[:, None], chosen]

        slots, true = frames(slots), frames(drawn.codes[:, 1:])
        decoded = self.decoded(torch.cat([slots, frames(drawn.vectors[:, 1:])], dim=-1))
        prior = self.prior.loss(true.flatten(0, 1), slots.flatten(0, 1), counted.flatten())
        terms = {name: self.quantiser_weight * term for name, term in drawn.losses.items()}
        losses = {**decoded.losses, "prior": prior, **terms}
        return Forecast(decoded.reconstruction, losses=losses, codes=frames(codes[:, 1:]), counted=counted)

    def loss(self, output: Forecast, batch: VideoBatch) -> Float[Tensor, ""]:
        """Cross-entropy of the codes in nats, summed over a frame, mean over frames and clips; plus the other terms."""
        logits, codes = at_least_float32(output.reconstruction).flatten(0, 1), output.codes.flatten(0, 1)
        error = F.cross_entropy(logits, codes, reduction="none", label_smoothing=self.label_smoothing).sum((1, 2))
        counted = output.counted.to(error)
        per_clip = (error.view_as(counted) * counted).sum(1) / counted.sum(1)
        return output.add_losses(per_clip.mean())

    def frames(self, decoded: Decoded) -> Float[Tensor, "batch time channels height width"]:
        """Frames of the most likely code of each cell."""
        return self.tokenizer.decode(decoded.reconstruction.argmax(2))

    def _predicted(
        self, batch: VideoBatch, context: int, horizon: int, feedback: Feedback, components: bool, watch: Watch
    ) -> Iterator[Decoded]:
        """Reads the context, then draws the latents of `horizon` frames one by one, and paints them."""
        state: State | None = None
        before: Tensor | None = None
        for start in range(0, context, PIECE):
            piece = batch.slice_time(start, min(start + PIECE, context))
            codes = frame_codes(self.tokenizer, piece)
            latents = self._latents(codes, before)
            first = latents[:, : int(start == 0)]
            read = torch.cat([first, self.quantiser(latents).vectors[:, first.shape[1] :]], dim=1)
            out = self.core(self._tokens(read, piece), state)
            slots, state, before = out.slots[:, -1:], out.state, codes[:, -1:]
            watch(out)

        def go_on(slots: Tensor, state: State) -> Iterator[Decoded]:
            steps = range(context, context + horizon)
            for step in steps:
                latents = self.quantiser.embed(self.prior.sample(slots[:, 0]))[:, None]
                yield Decoded(self.frames(self.decoder(torch.cat([slots, latents], dim=-1))))
                if step + 1 in steps:
                    out = self.core(self._tokens(latents, batch.slice_time(step, step + 1)), state)
                    slots, state = out.slots, out.state
                    watch(out)

        return go_on(slots, state)

    def _latents(
        self, codes: Integer[Tensor, "batch time rows cols"], before: Integer[Tensor, "batch 1 rows cols"] | None = None
    ) -> Float[Tensor, "batch time tokens latent_dim"]:
        """Latents before they are quantised."""
        vectors = self.tokenizer.embed(codes)
        first = self.first_frame.expand(len(codes), 1, -1, -1, -1) if before is None else self.tokenizer.embed(before)
        pairs = torch.cat([torch.cat([first.to(vectors), vectors[:, :-1]], dim=1), vectors], dim=2)
        time = torch.arange(codes.shape[1], device=codes.device).expand(len(codes), -1)
        return self.latent_map(self.encoded(VideoBatch(pairs, time)))

    def _tokens(
        self, latents: Float[Tensor, "batch time tokens latent_dim"], batch: VideoBatch
    ) -> Float[Tensor, "batch time tokens dim"]:
        """What the core reads: the latents that are not hidden, each beside the embedding of the action of its step."""
        latents = hide_steps(latents, batch.hidden)
        return latents if self.actions is None else self.actions.beside(latents, batch.actions)

    def _chosen(self, batch: VideoBatch) -> tuple[Integer[Tensor, "batch frames"], Bool[Tensor, "batch frames"]]:
        """(which of the predicted frames get logits, which of these count), both for each clip."""
        predicted, device = batch.num_steps - 1, batch.time.device
        first = torch.zeros(len(batch), 1, dtype=torch.long, device=device)
        if batch.hidden is not None and self.masked_loss == "hidden":
            assert self.conditions.frame_mask is not None
            first = torch.where(batch.hidden.any(1, keepdim=True), self.conditions.frame_mask - 1, first)
        if self.training and self.drop_loss:
            drawn = max(1, int((1 - self.drop_loss) * predicted + 1e-6))
            share = torch.rand(len(batch), drawn, device=device)
            frames = (first + (share * (predicted - first)).long()).clamp(max=predicted - 1)
            return frames, torch.ones_like(frames, dtype=torch.bool)
        frames = torch.arange(predicted, device=device).expand(len(batch), -1)
        return frames, frames >= first
