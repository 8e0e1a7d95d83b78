"""TECO: prediction of a tokenizer's codes through discrete latents of each frame, with a MaskGit prior."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn
from torch.nn import functional as F
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
    State,
    TemporalCore,
    Tokenizer,
    TokenSpec,
    VideoBatch,
    VideoSpec,
)
from slotbench.nn.action_embedding import ActionEmbedding
from slotbench.nn.linear import lecun_linear
from slotbench.nn.mask_git import MaskGit
from slotbench.nn.parameters import without_decay
from slotbench.nn.vector_quantisation import CosineQuantiser
from slotbench.tasks.codes.frozen_tokenizer import fit_frozen_tokenizer, frame_codes, frozen_tokenizer
from slotbench.tasks.frame_losses import at_least_float32
from slotbench.tasks.given_weights import GivenWeights
from slotbench.tasks.optimisation import WarmupCosine
from slotbench.tasks.optimised_module import Decay
from slotbench.tasks.part_checks import check_logits, check_whole_frames
from slotbench.tasks.rollouts.rollout import PIECE, Feedback, check_context
from slotbench.tasks.rollouts.rollout_task import RolloutTask

__all__ = ["TECO", "Forecast"]

_HIDDEN = -2.0
"""Stands in the place of a latent that is hidden from the core."""


@dataclass
class Forecast(Decoded):
    """Logits of the codes of some frames, with the codes and which of them count.

    Attributes:
        codes: the true codes of these frames.
        counted: the frames that have a part in the loss.
    """

    codes: Integer[Tensor, "batch frames rows cols"] = field(kw_only=True)
    counted: Bool[Tensor, "batch frames"] = field(kw_only=True)


class TECO(RolloutTask):
    """Learns to predict the codes of the next frame through discrete latents, of which a prior draws those to come.

    A frozen tokenizer has codes for each frame, and vectors for the codes. An encoder reads the vectors of a frame
    together with those of the frame before (a learned one before the first), and a quantiser makes the latents of them,
    as many as the encoder has cells. The core reads latents and actions up to frame t - 1; from its slots a MaskGit has
    the distribution of the latents of frame t, and from slots and latents the decoder has logits of the codes. The
    latents of frame 0, which nothing predicts, stay as the encoder makes them.

    The loss is the cross-entropy of the codes, summed over the cells of a frame, plus the prior's, plus the two terms
    of the quantiser. In a roll-out the latents are drawn, the most likely code of each cell is painted, and the latents
    themselves are fed back: no predicted frame is read again, and a core with a state of fixed size does the same work
    for every frame.

    Scores of the roll-out are those of `VideoPrediction`.

    Source: Yan, Hafner, James, Abbeel, "Temporally Consistent Transformers for Video Generation", ICML 2023 (core
    `FrameTransformer`); Smith et al., "Convolutional State Space Models for Long-Range Spatiotemporal Modeling",
    NeurIPS 2023, Appendix D (TECO-ConvS5, TECO-S5, TECO-ConvSSM) and its code.

    Arguments that are not explained here are those of `VideoPrediction`.

    Args:
        encoder: makes an encoder from the `VideoSpec` of two joined maps of code vectors, such as
            `ResNetEncoder(rescale=False)`.
        core: makes a core that keeps the grid, from the `TokenSpec` of latents joined with the action's embedding.
        decoder: makes a decoder from the `SlotSpec` of slots joined with latents and the tokenizer's `code_spec`; its
            channels are logits of the codes.
        tokenizer_run: run folder or checkpoint of a `FrameTokenization` whose tokenizer is used as it is.
        tokenizer: makes a tokenizer that is fitted before the training, such as `PatchKMeans`.
        prior: makes the prior from the `SlotSpec` of the core and the `VideoSpec` of the latents' codes.
        latent_dim: width of a latent.
        num_latent_codes: codes of the latents.
        latent_code_dim: width in which they are compared.
        action_dim: width of the embedding of an action, which all cells are given; 0 for none.
        drop_loss: share of the frames that a training clip has no loss of: so many fewer are drawn at random, with
            replacement; the core reads all.
        last_frame_twice: with `drop_loss`, draw the last frame twice as often as each other one, which the authors'
            code does by an index that is one too large.
        drop_actions: share of the training clips whose actions are masked.
        eval_actions: read the actions in evaluation; False masks them.
        frame_mask: frames from this one on are hidden from the core where actions are given: it reads -2 in the place
            of their latents. Such clips have a loss of the frames from this one on alone, and their roll-outs, too,
            read no latents from there on.

    Raises:
        ValueError: the data are no whole frames, not one tokenizer is given, or an argument cannot be.
        PartError: the core keeps no grid, or the tokenizer has no table of codes or would have to be trained.
        UserError: `tokenizer_run` holds no tokenizer of such frames.
    """

    monitor = ("val/rollout_mse", "min")

    def __init__(
        self,
        encoder: Callable[[VideoSpec], Encoder],
        core: Callable[[TokenSpec], TemporalCore],
        decoder: Callable[[SlotSpec, VideoSpec], Decoder],
        tokenizer_run: str | None = None,
        tokenizer: Callable[[VideoSpec], Tokenizer] | None = None,
        prior: Callable[[SlotSpec, VideoSpec], MaskGit] = MaskGit,
        optimizer: Callable[[Iterable], Optimizer] = AdamW,
        schedule: Callable[[Optimizer, int], LRScheduler] = WarmupCosine,
        latent_dim: int = 32,
        num_latent_codes: int = 256,
        latent_code_dim: int = 32,
        action_dim: int = 16,
        drop_loss: float = 0.0,
        last_frame_twice: bool = False,
        drop_actions: float = 0.0,
        eval_actions: bool = True,
        frame_mask: int | None = None,
        context: int = 10,
        horizon: int = 20,
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
        built, sizes = None, None
        if data_spec is not None:
            check_whole_frames(data_spec, "TECO predicts codes of the frames that it reads", "MovingMNIST")
            built = frozen_tokenizer("TECO", tokenizer_run, tokenizer, data_spec.input)
            vectors = replace(built.code_spec, channels=2 * built.embedding_dim)
            sizes = DataSpec(vectors, built.code_spec)
        super().__init__(
            encoder,
            lambda tokens: core(replace(tokens, dim=latent_dim + action_dim)),
            lambda slots, frame: decoder(replace(slots, dim=slots.dim + latent_dim), frame),
            optimizer,
            schedule,
            init_from,
            data_spec,
            decay,
            sizes,
        )
        assert built is not None  # without a data_spec the line above raises
        self.tokenizer = built
        self._check_parts()
        _check_shares(drop_loss=drop_loss, drop_actions=drop_actions)
        if frame_mask is not None and frame_mask < 1:
            raise ValueError(f"frame_mask is {frame_mask}; expected a number of frames that are read, at least 1")
        self.drop_loss, self.last_frame_twice = drop_loss, last_frame_twice
        self.drop_actions, self.eval_actions, self.frame_mask = drop_actions, eval_actions, frame_mask
        self._make_latents(latent_dim, CosineQuantiser(latent_dim, num_latent_codes, latent_code_dim), prior)
        self.actions = ActionEmbedding(self.data_spec.input.num_actions, action_dim) if action_dim else None
        weights = GivenWeights(lpips_weights, lpips_heads, fvd_weights)
        self.declare_rollouts(context, horizon, "probability", weights, quantise, report_horizons, group_size)

    def _check_parts(self) -> None:
        tokens, slots = self.encoder.token_spec, self.core.slot_spec
        if tokens.grid is None or slots.grid != tokens.grid:
            raise PartError(
                f"TECO joins each slot with the latent of its cell, and the core {type(self.core).__name__} makes "
                f"{slots.num_slots} slots on the grid {slots.grid} of {tokens.num_tokens} cells on the grid "
                f"{tokens.grid}: choose a core that keeps the grid, such as ConvS5, and ResNetEncoder"
            )
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
        """Encoder, core, decoder, prior and tokenizer."""
        return {**super().parts, "prior": self.prior, "tokenizer": self.tokenizer}

    def train(self, mode: bool = True) -> TECO:
        """Into training mode or out of it, without the tokenizer."""
        super().train(mode)
        self.tokenizer.eval()
        return self

    def on_fit_start(self) -> None:
        """Fits a tokenizer that is fitted before the training."""
        super().on_fit_start()
        fit_frozen_tokenizer(self.tokenizer, self.trainer)

    def forward(self, batch: VideoBatch) -> Forecast:
        """Logits of the codes of frames 1 to the last, from the latents of these frames and slots of those before.

        In training with `drop_loss`, of some of these frames.

        Raises:
            ValueError: clips of a single frame, or of none that `frame_mask` leaves a loss of.
        """
        if batch.num_steps < 2:
            raise ValueError("predicting the next frame takes clips of at least 2 frames, and these have 1")
        codes = frame_codes(self.tokenizer, batch)
        latents = self._latents(codes)
        drawn = self.quantiser(latents)
        read = torch.cat([latents[:, :1], drawn.vectors[:, 1:]], dim=1)
        actions = self._actions(batch)
        tokens = self._tokens(self._hidden(read, actions), actions)
        slots = self.core(tokens[:, :-1]).slots
        chosen, counted = self._chosen(batch.num_steps - 1, actions, codes)

        def frames(values: Tensor) -> Tensor:
            return values[torch.arange(len(values), device=values.device)[:, None], chosen]

        slots, true = frames(slots), frames(drawn.codes[:, 1:])
        decoded = self.decoder(torch.cat([slots, frames(drawn.vectors[:, 1:])], dim=-1))
        prior = self.prior.loss(true.flatten(0, 1), slots.flatten(0, 1), counted.flatten())
        losses = {**decoded.losses, "prior": prior, **drawn.losses}
        return Forecast(decoded.reconstruction, losses=losses, codes=frames(codes[:, 1:]), counted=counted)

    def loss(self, output: Forecast, batch: VideoBatch) -> Float[Tensor, ""]:
        """Cross-entropy of the codes in nats, summed over a frame, mean over frames and clips; plus the other terms."""
        logits = at_least_float32(output.reconstruction).flatten(0, 1)
        error = F.cross_entropy(logits, output.codes.flatten(0, 1), reduction="none").sum((1, 2))
        counted = output.counted.to(error)
        per_clip = (error.view_as(counted) * counted).sum(1) / counted.sum(1)
        return output.add_losses(per_clip.mean())

    def frames(self, decoded: Decoded) -> Float[Tensor, "batch time channels height width"]:
        """Frames of the most likely code of each cell."""
        return self.tokenizer.decode(decoded.reconstruction.argmax(2))

    def rollout_steps(
        self,
        batch: VideoBatch,
        context: int | None = None,
        horizon: int | None = None,
        feedback: Feedback | None = None,
        components: bool = False,
        watch: Callable[[CoreOutput], object] = lambda _: None,
    ) -> Iterator[Decoded]:
        """Reads `context` frames of the batch, then draws the latents of `horizon` frames one by one, and paints them.

        Actions are read for the predicted frames, too. `feedback` and `components` have no meaning here.

        Raises:
            ValueError: the clips are shorter than the context.
        """
        context, horizon = context or self.context, horizon or self.horizon
        check_context(batch, context)
        actions = self._actions(batch)
        state: State | None = None
        before: Tensor | None = None
        for start in range(0, context, PIECE):
            piece = slice(start, min(start + PIECE, context))
            codes = frame_codes(self.tokenizer, batch.slice_time(piece.start, piece.stop))
            read = self._latents(codes, before)
            first = read[:, : 1 - min(start, 1)]
            read = torch.cat([first, self.quantiser(read).vectors[:, first.shape[1] :]], dim=1)
            hidden = self._hidden(read, actions, start)
            out = self.core(self._tokens(hidden, None if actions is None else actions[:, piece]), state)
            slots, state, before = out.slots[:, -1:], out.state, codes[:, -1:]
            watch(out)
        return self._go_on(slots, state, actions, context, horizon, watch)

    def _go_on(
        self,
        slots: Tensor,
        state: State,
        actions: Tensor | None,
        context: int,
        horizon: int,
        watch: Callable[[CoreOutput], object],
    ) -> Iterator[Decoded]:
        one_step, decode = self.core.prepared(), self.decoder.prepared()
        for frame in range(context, context + horizon):
            latents = self.quantiser.embed(self.prior.sample(slots[:, 0]))[:, None]
            yield Decoded(self.frames(decode(torch.cat([slots, latents], dim=-1))))
            if frame + 1 < context + horizon:
                hidden = self._hidden(latents, actions, frame)
                out = one_step(self._tokens(hidden, None if actions is None else actions[:, frame : frame + 1]), state)
                slots, state = out.slots, out.state
                watch(out)

    def _latents(
        self, codes: Integer[Tensor, "batch time rows cols"], before: Integer[Tensor, "batch 1 rows cols"] | None = None
    ) -> Float[Tensor, "batch time tokens latent_dim"]:
        """Latents before they are quantised.

        Args:
            codes: of successive frames.
            before: of the frame before the first, if there is one.
        """
        vectors = self.tokenizer.embed(codes)
        first = self.first_frame.expand(len(codes), 1, -1, -1, -1) if before is None else self.tokenizer.embed(before)
        pairs = torch.cat([torch.cat([first.to(vectors), vectors[:, :-1]], dim=1), vectors], dim=2)
        time = torch.arange(codes.shape[1], device=codes.device).expand(len(codes), -1)
        return self.latent_map(self.encoder(VideoBatch(pairs, time)))

    def _actions(self, batch: VideoBatch) -> Float[Tensor, "batch time num_actions"] | None:
        """Actions of every step, zeros in clips whose actions are masked; None where the data set has none."""
        if self.actions is None or not self.actions.num_actions:
            return None
        actions = batch.require("actions")
        if self.training and self.drop_actions:
            kept = torch.rand(len(actions), 1, 1, device=actions.device) >= self.drop_actions
            actions = actions * kept
        return actions if self.training or self.eval_actions else torch.zeros_like(actions)

    def _tokens(
        self, latents: Float[Tensor, "batch time tokens latent_dim"], actions: Tensor | None
    ) -> Float[Tensor, "batch time tokens dim"]:
        """What the core reads: the latents, each beside the embedding of the action of its step."""
        if self.actions is None:
            return latents
        embedded = self.actions(actions, *latents.shape[:2])
        return torch.cat([latents, embedded[:, :, None].expand(-1, -1, latents.shape[2], -1).to(latents)], dim=-1)

    def _hidden(self, latents: Tensor, actions: Tensor | None, start: int = 0) -> Tensor:
        """The latents of successive frames from index `start` on, without those that `frame_mask` hides."""
        if self.frame_mask is None or actions is None:
            return latents
        late = start + torch.arange(latents.shape[1], device=latents.device) >= self.frame_mask
        return latents.masked_fill((_has_actions(actions)[:, None] & late)[..., None, None], _HIDDEN)

    def _chosen(
        self, predicted: int, actions: Tensor | None, codes: Tensor
    ) -> tuple[Integer[Tensor, "batch frames"], Bool[Tensor, "batch frames"]]:
        """(which of the predicted frames get logits, which of these count), both for each clip."""
        first = torch.zeros(len(codes), 1, dtype=torch.long, device=codes.device)
        if self.frame_mask is not None and actions is not None:
            if self.frame_mask > predicted:
                raise ValueError(
                    f"frame_mask is {self.frame_mask}, and the loss is that of frames from there on: clips of "
                    f"{predicted + 1} frames have none; lower it, or make the clips longer"
                )
            first = torch.where(_has_actions(actions)[:, None], self.frame_mask - 1, first)
        if self.training and self.drop_loss:
            drawn = max(1, int((1 - self.drop_loss) * predicted + 1e-6))
            share = torch.rand(len(codes), drawn, device=codes.device)
            frames = first + (share * (predicted + self.last_frame_twice - first)).long().clamp(
                max=predicted - 1 - first
            )
            return frames, torch.ones_like(frames, dtype=torch.bool)
        frames = torch.arange(predicted, device=codes.device).expand(len(codes), -1)
        return frames, frames >= first


def _has_actions(actions: Float[Tensor, "batch time num_actions"]) -> Bool[Tensor, " batch"]:
    """Which clips have an action that is not masked."""
    return actions.flatten(1).any(1)


def _check_shares(**shares: float) -> None:
    for name, share in shares.items():
        if not 0 <= share < 1:
            raise ValueError(f"{name} is {share}; expected a share from 0 to below 1")
