"""Prediction of a tokenizer's codes from slots, frame by frame: SLATE, STEVE, and PSB with STEVE's decoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn, no_grad
from torch.nn import functional as F
from torch.optim import AdamW, Optimizer

from slotbench.data.base import check_choices
from slotbench.interfaces import AutoregressiveDecoder, CodeEncoder, DataSpec, Decoded, PartError, Tokenized, VideoBatch
from slotbench.metrics.contingency import resized_masks
from slotbench.metrics.mask_metrics import mask_headline, mask_headlines
from slotbench.metrics.scores import Score
from slotbench.tasks import factories
from slotbench.tasks.autoencoding import Autoencoded, AutoencodingTask, frame_size
from slotbench.tasks.codes.chosen_tokenizer import chosen_tokenizer, fit_frozen_tokenizer
from slotbench.tasks.codes.code_scores import CodeScores
from slotbench.tasks.codes.mask_decoding import MaskDecoding, hidden_gradients
from slotbench.tasks.codes.tokenizing import CodeSum, fit_tokenizer, reconstruction_loss
from slotbench.tasks.frame_losses import at_least_float32
from slotbench.tasks.optimisation import Decay, WarmupCosine
from slotbench.tasks.optimised_module import ClipBy
from slotbench.tasks.part_checks import check_whole_frames, check_window
from slotbench.tasks.slot_task import frame_by_frame

__all__ = ["CodeAutoencoding"]


class CodeAutoencoding(AutoencodingTask):
    """Slots of each frame, from which a decoder predicts the codes that a tokenizer has for it, one after the other.

    The decoder is given the true codes in training, and samples them where frames are shown. No gradient of the slots'
    loss reaches the tokenizer, which is trained before and frozen (`tokenizer_run`), fitted at the start
    (`PatchKMeans`), or trained here too (`DVAE`), as in STEVE's code, where one bound clips all gradients together.

    `CodeScores` names the scores. A `mask_decoder` paints frames from the slots, whose gradient it has no part in; the
    best checkpoint is then that of the highest `val/psnr_mask_decoder/frame`.

    Source: Singh et al., "Illiterate DALL-E Learns to Compose" (SLATE), ICLR 2022 (encoder `CodeEmbeddingEncoder`, core
    `SlotAttention`); "Simple Unsupervised Object-Centric Learning for Complex and Naturalistic Videos" (STEVE), NeurIPS
    2022 (core `SAVi`); PSB (Singh et al., 2024), Appendix D.3.2 (core `PSB`).

    Args:
        encoder: makes an encoder from the frames' `VideoSpec` with the tokenizer's `code_spec` as its `codes`.
        decoder: makes an `AutoregressiveDecoder` from the core's `SlotSpec` and the tokenizer's `code_spec`.
        tokenizer_run: run folder or checkpoint of a `FrameTokenization` whose tokenizer is used as it is.
        tokenizer: makes a tokenizer from the frames' `VideoSpec`, which is trained or fitted here.
        part_rates: learning rates of parts by name, such as {"decoder.slot_map": 1.0e-4}; the longer of two names
            holds.
        constant_parts: parts whose learning rate the schedule leaves alone.
        clip_by: what `trainer.gradient_clip_val` bounds: the "norm" of all gradients, or the "largest" number in them.
        loss_sum: "mean" for the mean cross-entropy of codes (and error of pixels); "frame" for sums over a frame's.
        sampled_clips: the first clips of each evaluation set, whose frames are sampled and compared; 0 for none.
        temperature: of sampled codes; 0 for the most likely code of each cell, given those before it.
        eval_window: in evaluation, each step is computed from the last `eval_window` frames alone (PSB).
        baseline_clips: the first clips of each evaluation set, on which the masks' baselines are scored.
        mask_decoder: makes a decoder of frames with masks, such as `SpatialBroadcastDecoder`; None for none.
    """

    monitor: tuple[str, Literal["min", "max"]] | None = ("val/loss", "min")

    def __init__(
        self,
        encoder: factories.EncoderFactory,
        core: factories.CoreFactory,
        decoder: factories.DecoderFactory,
        tokenizer_run: str | None = None,
        tokenizer: factories.TokenizerFactory | None = None,
        optimizer: factories.OptimizerFactory = AdamW,
        schedule: factories.ScheduleFactory = WarmupCosine,
        part_rates: dict[str, float] | None = None,
        constant_parts: tuple[str, ...] = (),
        clip_by: ClipBy = "norm",
        loss_sum: CodeSum = "mean",
        sampled_clips: int = 200,
        temperature: float = 0.0,
        eval_window: int | None = None,
        baseline_clips: int = 200,
        init_from: str | None = None,
        data_spec: DataSpec | None = None,
        decay: Decay = "matrices",
        mask_decoder: factories.DecoderFactory | None = None,
    ):
        built, codes = None, None
        if data_spec is not None:
            check_whole_frames(data_spec, "CodeAutoencoding predicts codes of the frames that it reads", "MOViLike")
            built = chosen_tokenizer("CodeAutoencoding", tokenizer_run, tokenizer, data_spec.input)
            codes = DataSpec(replace(data_spec.input, codes=built.code_spec), built.code_spec)
        super().__init__(encoder, core, decoder, optimizer, schedule, init_from, data_spec, decay, codes)
        assert built is not None  # without a data_spec the line above raises
        check_choices(clip_by=(clip_by, ClipBy), loss_sum=(loss_sum, CodeSum))
        check_window(self.core, eval_window)
        if not isinstance(self.decoder, AutoregressiveDecoder):
            raise PartError(f"CodeAutoencoding needs an AutoregressiveDecoder; got {type(self.decoder).__name__}")
        if isinstance(self.encoder, CodeEncoder) and self.decoder.tables is not None:
            self.encoder.share(self.decoder.tables)
        self.tokenizer = built
        frame = self.data_spec.input
        self.mask_decoder = None if mask_decoder is None else MaskDecoding(mask_decoder, self.core.slot_spec, frame)
        if mask_decoder is not None:
            # of slots that are not trained any more the cross-entropy stays the same
            self.monitor = ("val/psnr_mask_decoder/frame", "max")
        self.trains_tokenizer = any(parameter.requires_grad for parameter in built.parameters())
        self.part_rates, self.constant_parts = part_rates or {}, constant_parts
        self.clip_by, self.loss_sum = clip_by, loss_sum
        self.eval_window = eval_window
        self.sampled_clips, self.temperature = sampled_clips, temperature
        self.declare_scores(*(CodeScores(built.code_spec.channels, baseline_clips) for _ in range(2)))

    @property
    def parts(self) -> Mapping[str, nn.Module]:
        """Encoder, core, decoder, tokenizer, and the decoder of masks if there is one."""
        masks = {} if self.mask_decoder is None else {"mask_decoder": self.mask_decoder.decoder}
        return {**super().parts, "tokenizer": self.tokenizer, **masks}

    @property
    def reported(self) -> tuple[Score, ...]:
        """Object discovery as elsewhere; cross-entropy and whether slots help; quality of frames beside its bound."""
        masks = [mask_headline("fg_ari", "attention", "the same of the core's attention: FG-ARI")]
        if self.mask_decoder is not None:
            masks.append(mask_headline("fg_ari", "mask_decoder", "the same of the mask decoder: FG-ARI"))
        return (
            *mask_headlines("fg_ari", "miou", "mbo"),
            *masks,
            Score("cross_entropy", "codes: cross-entropy, nats per code", higher_is_better=False),
            Score("slot_gap", "nats per code lost with another clip's slots (0: not used)"),
            Score("psnr/frame", "frames from slots: PSNR per frame, dB"),
            Score("psnr_tokenizer/frame", "frames from true codes: PSNR per frame, dB"),
        )

    def train(self, mode: bool = True) -> CodeAutoencoding:
        """Into training mode or out of it, without a tokenizer that is frozen."""
        super().train(mode)
        if not self.trains_tokenizer:
            self.tokenizer.eval()
        return self

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: int | float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clips the gradients of the mask decoder by themselves, by the same bound."""
        if self.mask_decoder is None or gradient_clip_val is None or gradient_clip_algorithm == "value":
            super().configure_gradient_clipping(optimizer, gradient_clip_val, gradient_clip_algorithm)
            return
        with hidden_gradients(self.mask_decoder):
            super().configure_gradient_clipping(optimizer, gradient_clip_val, gradient_clip_algorithm)
        self.mask_decoder.clip(float(gradient_clip_val), self.clip_by)

    def on_fit_start(self) -> None:
        """Fits a tokenizer that is fitted before the training."""
        super().on_fit_start()
        fit = fit_tokenizer if self.trains_tokenizer else fit_frozen_tokenizer
        fit(self.tokenizer, self.trainer)

    def on_train_batch_start(self, batch: VideoBatch, batch_idx: int) -> None:
        """Tells a tokenizer that is trained here which step it is."""
        super().on_train_batch_start(batch, batch_idx)
        if self.trains_tokenizer:
            self.tokenizer.at_step(self.global_step)

    @frame_by_frame
    def forward(self, batch: VideoBatch) -> Autoencoded:
        """Slots of every frame, and the logits of its codes."""
        if not self.training:
            return super().forward(batch)
        terms, read = {}, batch
        if self.trains_tokenizer:
            tokenized = self.tokenizer(batch.pixels)
            read, terms["tokenizer"] = _coded(batch, tokenized.codes), self._tokenizer_loss(tokenized, batch)
        else:
            read = self.read(batch)
        out = self._decode(batch, read, self.tracked(self.encoded(read), self.core.first_state(batch)))
        if self.mask_decoder is not None:
            terms["mask_decoder"] = self.mask_decoder.loss(out.slots, read)
        return replace(out, decoded=replace(out.decoded, losses=out.decoded.losses | terms))

    def loss(self, output: Autoencoded, batch: VideoBatch) -> Float[Tensor, ""]:
        """Cross-entropy of the codes, plus the decoder's own terms, and in training those of what is trained too."""
        logits, codes = output.decoded.reconstruction.flatten(0, 1), output.read.require("target")
        # classes last, as the decoder has them in memory
        rows = at_least_float32(logits.movedim(1, -1).flatten(0, -2))
        value = F.cross_entropy(rows, codes.flatten())
        return output.decoded.add_losses(value * (codes[0, 0].numel() if self.loss_sum == "frame" else 1))

    def score(self, batch: VideoBatch, scores: CodeScores) -> Tensor:
        """Scores masks and codes, and of the first clips of the set sampled frames."""
        out = self.evaluate(batch)
        more = {}
        if self.mask_decoder is not None:
            painted = self.mask_decoder(out.slots, out.read)
            more["mask_decoder"] = resized_masks(painted.masks, frame_size(batch))
            scores.update_painted("mask_decoder", painted.reconstruction.float().clamp(0, 1), batch.pixels.float())
        self._score_masks(out, batch, scores, more)
        other = None
        if len(batch) > 1:
            # neighbours may be cut out of one video
            exchanged = out.slots.roll(len(batch) // 2, 0)
            other = self.decoder(exchanged, out.read).reconstruction
        scores.update_codes(out.read.require("target"), out.decoded.reconstruction, other)
        self._score_frames(out, batch, scores)
        return self.loss(out, batch)

    def frames(self, decoded: Decoded) -> Float[Tensor, "batch time channels height width"]:
        """Frames of the most likely code of each cell; after a call, given the true codes before it."""
        return self.tokenizer.decode(decoded.reconstruction.argmax(2))

    def painted(self, out: Autoencoded) -> Float[Tensor, "batch time channels height width"]:
        """Frames of codes that are sampled from the slots alone."""
        return self.sample(out.slots)

    @no_grad()
    def sample(
        self, slots: Float[Tensor, "batch time slots dim"], temperature: float | None = None
    ) -> Float[Tensor, "batch time channels height width"]:
        """Frames in [0, 1] from slots."""
        assert isinstance(self.decoder, AutoregressiveDecoder)
        codes, _ = self.decoder.sample(slots, None, self.temperature if temperature is None else temperature)
        return self.tokenizer.decode(codes)

    def _score_frames(self, out: Autoencoded, batch: VideoBatch, scores: CodeScores) -> None:
        numbers = range(len(batch)) if batch.index is None else batch.index.tolist()
        first = [place for place, number in enumerate(numbers) if number < self.sampled_clips]
        if self.sampled_clips:
            true = batch.pixels[first].float()
            sampled = decoded = true  # of no clips: every process has the same scores, whichever clips it has
            if first:
                sampled = self.sample(out.slots[first]).float()
                decoded = self.tokenizer.decode(out.read.require("target")[first]).float()
            scores.update_frames(sampled, true)
            scores.update_painted("tokenizer", decoded, true)

    def read(self, batch: VideoBatch) -> VideoBatch:
        """The batch with the codes of its frames as the target."""
        with no_grad():
            return _coded(batch, self.tokenizer.encode(batch.pixels))

    def _tokenizer_loss(self, tokenized: Tokenized, batch: VideoBatch) -> Tensor:
        value = sum(tokenized.losses.values(), start=batch.pixels.new_zeros(()))
        if tokenized.reconstruction is None:
            return value
        return value + reconstruction_loss(tokenized.reconstruction, batch.pixels, self.loss_sum)


def _coded(batch: VideoBatch, codes: Tensor) -> VideoBatch:
    return replace(batch, codes=codes, target=codes, target_time=batch.time, target_masks=None)
