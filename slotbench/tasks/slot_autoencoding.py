"""Take clips apart into slots, and put them together again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float
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
    SlotSpec,
    TemporalCore,
    TokenSpec,
    VideoBatch,
    VideoSpec,
)
from slotbench.metrics.contingency import masks_to_labels
from slotbench.metrics.discovery_scores import DiscoveryScores
from slotbench.metrics.lpips import LPIPS
from slotbench.metrics.segmentation_floors import segmentation_names, simple_segmentations
from slotbench.nn.feature_extractor import FeatureExtractor
from slotbench.tasks.autoencoded import Autoencoded, frame_size, resized_masks
from slotbench.tasks.base import Decay, Headline, SlotTask
from slotbench.tasks.frame_losses import at_least_float32
from slotbench.tasks.given_weights import GivenWeights
from slotbench.tasks.reading_on import Bookmark, Windowed, piece_frames, read_on
from slotbench.tasks.schedule import WarmupCosine
from slotbench.tasks.slot_pictures import slot_panel, slot_video
from slotbench.tasks.slot_recording import SlotRecording

__all__ = ["Autoencoded", "Pixels", "SlotAutoencoding"]

Stage = Literal["val", "test"]
Pixels = Literal["unit", "signed"]
"""The range of pixels that a decoder paints: [0, 1] or [-1, 1]."""


class SlotAutoencoding(SlotTask):
    """Reconstructs every frame, or its features, from a few slots, and is scored by what each slot has taken.

    Nothing is labelled in training: the loss is the mean squared error of the reconstruction. Evaluation scores two
    segmentations, the decoder's masks and the core's attention over the tokens (if slots compete for them there), per
    video and per frame, against the true instances where the data has them, beside segmentations that learn nothing.
    `largest_slot` and `live_slots` show a collapse into one slot, which the loss does not; `collapsed` is the share of
    clips that have.

    Names: see `DiscoveryScores`; `val/fg_ari/video/decoder` is the FG-ARI per video of the decoder's masks.

    Slots that are drawn are drawn in evaluation by the number of the clip, so that the same weights score the same each
    time, with any batches and any number of processes.

    Source: SlotSSM, Section 7.3 and PSB, Section 5.1.1 (video); attention normalisation, Appendices E and F (CLEVR with
    `pixels="signed"`, features of MOVi-C).

    Args:
        encoder: makes an encoder from the `VideoSpec` of what is read: frames, or features if there are any.
        core: makes a temporal core from the encoder's `TokenSpec`.
        decoder: makes a decoder from the core's `SlotSpec` and the `VideoSpec` of what is reconstructed.
        optimizer: makes an optimiser from parameter groups; what decays, `decay` says.
        schedule: makes a learning-rate schedule from the optimiser and the number of steps of the whole training.
        pixels: the range that the decoder paints pixels in, "unit" for [0, 1] or "signed" for [-1, 1]; the loss is
            measured in it. Features are reconstructed as they are.
        features: makes a frozen network from the frames' `VideoSpec`, whose features are read and reconstructed in
            place of pixels. Not needed for data that brings features.
        eval_window: in evaluation, each step is computed from the last `eval_window` frames alone, for cores that can
            (PSB); for clips longer than those of the training.
        floor_clips: clips of each evaluation set that the floors are scored on, the first ones; 0 for no floors.
        init_from: a run folder or a checkpoint whose weights to start from, where name and shape match.
        data_spec: sizes of the input and of the target; the command line takes it from the data.
        decay: what weight decay is for, "matrices" or "all" parameters.
        lpips_weights: a file with AlexNet's features, for LPIPS in the test; see `GivenWeights`.
        lpips_heads: a file with LPIPS's heads, if they are not in `lpips_weights`.

    Raises:
        ValueError: the target is not a frame like the input, an argument cannot be, or the core has no window.
    """

    monitor: ClassVar[tuple[str, Literal["min", "max"]] | None] = ("val/loss", "min")

    def __init__(
        self,
        encoder: Callable[[VideoSpec], Encoder],
        core: Callable[[TokenSpec], TemporalCore],
        decoder: Callable[[SlotSpec, VideoSpec], Decoder],
        optimizer: Callable[[Iterable], Optimizer] = AdamW,
        schedule: Callable[[Optimizer, int], LRScheduler] = WarmupCosine,
        pixels: Pixels = "unit",
        features: Callable[[VideoSpec], FeatureExtractor] | None = None,
        eval_window: int | None = None,
        floor_clips: int = 200,
        init_from: str | None = None,
        data_spec: DataSpec | None = None,
        decay: Decay = "matrices",
        lpips_weights: str | None = None,
        lpips_heads: str | None = None,
    ):
        extractor, read = None, None
        if data_spec is not None:
            frame, target = data_spec.input, data_spec.target
            if frame.patches_per_side != 1 or any(
                getattr(frame, size) != getattr(target, size) for size in ("channels", "height", "width")
            ):
                raise ValueError(
                    f"SlotAutoencoding reconstructs the frames that it reads; this data gives {frame} and wants "
                    f"{target}: choose a data set of whole frames, for example MOViLike"
                )
            extractor = features(frame) if features is not None else None
            read = extractor.spec if extractor is not None else data_spec.features
        # the parts never know whether they see pixels or features
        parts = None if read is None else DataSpec(input=read, target=read)
        super().__init__(encoder, core, decoder, optimizer, schedule, init_from, data_spec, decay, parts)
        frame = self.data_spec.input
        if pixels not in get_args(Pixels):
            raise ValueError(f"no pixels named {pixels!r}; choose one of {', '.join(get_args(Pixels))}")
        if floor_clips < 0:
            raise ValueError(f"floor_clips is {floor_clips}; expected a number of clips, or 0 for no floors")
        if eval_window is not None and (eval_window < 1 or not isinstance(self.core, Windowed)):
            raise ValueError(
                f"eval_window={eval_window} asks {type(self.core).__name__} to read the last {eval_window} frames at "
                "each step: give at least 1, and a core that can (PSB), or leave it out"
            )
        self.pixels: Pixels = pixels
        self.extractor = extractor
        self.learns_features = read is not None
        self.eval_window = eval_window
        self.floor_clips = floor_clips
        self.given_weights = GivenWeights(lpips_weights, lpips_heads)
        self.given_weights.check(frame.channels, min(frame.height, frame.width), 1)
        self.scores = nn.ModuleDict({stage: DiscoveryScores() for stage in get_args(Stage)})
        self.floors: dict[Stage, dict[str, float]] = {"val": {}, "test": {}}
        self._clips_done = 0
        self._last_stage: Stage = "val"
        self._said_what_is_not_scored = False
        # not a submodule: no checkpoint holds its weights
        self._lpips: tuple[LPIPS, ...] = ()
        self._bookmark: Bookmark | None = None

    def setup(self, stage: str) -> None:
        """Reads the weights of LPIPS: for a test to use them, before a training to see that they are there."""
        super().setup(stage)
        if stage in ("fit", "test"):
            lpips = self.given_weights.load_lpips()
            self._lpips = (lpips,) if lpips is not None and stage == "test" else ()

    def forward(self, batch: VideoBatch) -> Autoencoded:
        """Slots of every frame, and what the decoder makes of them."""
        return self._autoencode(batch, self._read(batch))

    def evaluate(self, batch: VideoBatch) -> Autoencoded:
        """The same as in validation and test: through windows, if `eval_window` is set."""
        return self._autoencode(batch, self._read(batch), self.eval_window)

    def target(self, batch: VideoBatch) -> Float[Tensor, "batch time channels rows cols"]:
        """What is to be reconstructed, in the decoder's range."""
        return self._target(self._read(batch))

    def frames(self, decoded: Decoded) -> Float[Tensor, "batch time channels height width"]:
        """What the decoder painted, as frames in [0, 1].

        Raises:
            ValueError: it painted features.
        """
        if self.learns_features:
            raise ValueError("this task reconstructs features, which are no frames")
        return self._unit(decoded.reconstruction)

    def attention_masks(
        self, attention: Float[Tensor, "batch time slots tokens"], size: tuple[int, int]
    ) -> Float[Tensor, "batch time slots height width"] | None:
        """Attention over tokens as masks of `size` (height, width), bilinear; None if the tokens are on no grid."""
        grid = self.encoder.token_spec.grid
        return None if grid is None else resized_masks(attention.unflatten(-1, grid), size)

    def loss(self, decoded: Decoded, target: Float[Tensor, "batch time channels rows cols"]) -> Float[Tensor, ""]:
        """Mean squared error over clips, frames, channels and pixels (or features), plus the decoder's own terms."""
        value = F.mse_loss(at_least_float32(decoded.reconstruction), at_least_float32(target))
        for term in decoded.losses.values():
            value = value + term
        return value

    def training_step(self, batch: VideoBatch, batch_idx: int) -> Tensor:
        """One batch's loss."""
        read = self._read(batch)
        loss = self.loss(self.decoder(self.core(self.encoder(read)).slots, read), self._target(read))
        self.log_training_loss(loss, len(batch))
        return loss

    def validation_step(self, batch: VideoBatch, batch_idx: int) -> None:
        """Scores on the validation set."""
        self._score("val", batch, batch_idx)

    def test_step(self, batch: VideoBatch, batch_idx: int) -> None:
        """Scores on the test set."""
        self._score("test", batch, batch_idx)

    def predict_step(self, batch: VideoBatch, batch_idx: int) -> dict[str, Tensor]:
        """The slots, their shares in each pixel, the one that wins it, and the reconstructed frames, if it is frames.

        A piece of a video that goes on with the one before it gives what the whole video would.
        """
        with self.drawn_alike(batch, batch_idx):
            out = self._go_on(batch)
        found = {"slots": out.slots}
        if out.masks is not None:
            found |= {"masks": out.masks, "labels": masks_to_labels(out.masks, frame_size(batch))}
        attention = None if out.attention is None else self.attention_masks(out.attention, frame_size(batch))
        if attention is not None:
            found["attention"] = attention
        return found if self.learns_features else found | {"frames": self.frames(out.decoded)}

    @property
    def piece_frames(self) -> int:
        """Videos are read piece by piece in prediction, each with the core's state after the one before."""
        return piece_frames(self.core)

    def recording(self, folder: Path, frames: int, save: Sequence[str] = ()) -> SlotRecording:
        """Gathers what `predict_step` makes of the pieces of one video."""
        components = None if self.learns_features else self._components
        return SlotRecording(folder, frames, components, keep_soft_masks="soft_masks" in save)

    def on_validation_epoch_end(self) -> None:
        """Logs the scores, the first time with their floors."""
        self._close("val")

    def on_test_epoch_end(self) -> None:
        """Logs the scores, the first time with their floors."""
        self._close("test")

    def headlines(self) -> list[Headline]:
        """FG-ARI, mIoU and ARI per video, beside what segmentations score that learn nothing; quality and occupancy."""
        stage = self._last_stage

        def headline(metric: str, label: str) -> Headline:
            prefix = f"floor/{metric}/"
            found = {n.removeprefix(prefix): v for n, v in self.floors[stage].items() if n.startswith(prefix)}
            return Headline(f"{stage}/{metric}/decoder", label, found)

        scores = [
            headline("fg_ari/video", "objects told apart: FG-ARI per video"),
            headline("miou/video", "masks that fit: mIoU per video"),
            headline("ari/video", "with the background: ARI per video"),
        ]
        share = Headline(f"{stage}/largest_slot/decoder", "share of the largest slot", {}, higher_is_better=False)
        if self.learns_features:
            return [*scores, share]
        return [*scores, share, Headline(f"{stage}/psnr/frame", "reconstruction: PSNR per frame, dB")]

    def pictures(self, batch: VideoBatch) -> dict[str, np.ndarray]:
        """A panel per clip: frames, reconstruction, slots over the frames, and each slot's own picture."""
        with self.drawn_alike(batch, 0):
            out = self.evaluate(batch)
        if out.masks is None:
            return {}
        components = out.decoded.components
        painted = None if self.learns_features else self.frames(out.decoded)
        attention = None if out.attention is None else self.attention_masks(out.attention, frame_size(batch))
        return {
            f"clip_{i}": slot_panel(
                batch.frames[i],
                None if painted is None else painted[i],
                out.masks[i],
                None if components is None or self.learns_features else self._unit(components[i]),
                None if batch.masks is None else batch.masks[i],
                None if attention is None else attention[i],
            )
            for i in range(len(batch))
        }

    def videos(self, batch: VideoBatch) -> dict[str, np.ndarray]:
        """Of each clip, side by side: frames, reconstruction, slots over the frames, and the truth."""
        with self.drawn_alike(batch, 0):
            out = self.evaluate(batch)
        if out.masks is None:
            return {}
        painted = None if self.learns_features else self.frames(out.decoded)
        return {
            f"clip_{i}": slot_video(
                batch.frames[i],
                None if painted is None else painted[i],
                out.masks[i],
                None if batch.masks is None else batch.masks[i],
            )
            for i in range(len(batch))
        }

    def _read(self, batch: VideoBatch) -> VideoBatch:
        """The batch that the encoder reads: with features in the place of frames, where features are learned."""
        if not self.learns_features:
            return batch
        if self.extractor is not None:
            found = self.extractor(batch.frames)
        else:
            found = batch.require("features").to(next(self.encoder.parameters()).dtype)
        # what has a pixel for each of the frames' does not go with them
        return replace(batch, frames=found, features=None, masks=None, rays=None)

    def _go_on(self, batch: VideoBatch) -> Autoencoded:
        """A clip, or the next piece of the video that was read last."""
        read = self._read(batch)
        state = None if self._bookmark is None else self._bookmark.state_for(batch)
        out, state = read_on(self.core, self.encoder(read), state, self.eval_window)
        self._bookmark = Bookmark.after(batch, state) if len(batch) == 1 else None
        return self._decode(batch, read, out)

    def _components(self, batch: VideoBatch, slots: Tensor) -> Tensor | None:
        components = self.decoder(slots, self._read(batch)).components
        return None if components is None else self._unit(components)

    def _autoencode(self, batch: VideoBatch, read: VideoBatch, window: int | None = None) -> Autoencoded:
        tokens = self.encoder(read)
        if window is None or tokens.shape[1] <= window:
            out = self.core(tokens)
        else:
            assert isinstance(self.core, Windowed)
            out = self.core.sliding_window(tokens, window)
        return self._decode(batch, read, out)

    def _decode(self, batch: VideoBatch, read: VideoBatch, out: CoreOutput) -> Autoencoded:
        decoded = self.decoder(out.slots, read)
        masks = None if decoded.masks is None else resized_masks(decoded.masks, frame_size(batch))
        # what slots have merely read is no segmentation: several may read the same token
        attention = out.attention if out.attention_kind == "assignment" else None
        return Autoencoded(out.slots, attention, decoded, masks, out.attention_kind)

    def _target(self, read: VideoBatch) -> Tensor:
        return 2 * read.frames - 1 if self.pixels == "signed" and not self.learns_features else read.frames

    def _unit(self, painted: Tensor) -> Tensor:
        return ((painted + 1) / 2 if self.pixels == "signed" else painted).clamp(0, 1)

    def _score(self, stage: Stage, batch: VideoBatch, batch_idx: int) -> None:
        scores, size = self._scores(stage), frame_size(batch)
        read = self._read(batch)
        with self.drawn_alike(batch, batch_idx):
            out = self._autoencode(batch, read, self.eval_window)
        if out.attention_kind == "reading" and not self._said_what_is_not_scored:
            self._said_what_is_not_scored = True
            self.print(
                f"the attention of {type(self.core).__name__} is not scored: its slots do not compete for tokens, so "
                "it says what each slot has read, which is no segmentation"
            )
        self.add_loss(stage, self.loss(out.decoded, self._target(read)), len(batch))
        if not self.learns_features:
            lpips = self._lpips[0].to(self.device) if self._lpips else None
            scores.update_frames(self.frames(out.decoded).float(), batch.frames.float(), lpips)
        attention = None if out.attention is None else self.attention_masks(out.attention, size)
        for name, masks in {"decoder": out.masks, "attention": attention}.items():
            if masks is not None:
                scores.update_masks(name, masks_to_labels(masks, size), masks.shape[2], batch.masks)
        if batch.masks is not None and not self.floors[stage]:  # they do not change
            self._score_floors(scores, batch, out.slots.shape[2])

    def _score_floors(self, scores: DiscoveryScores, batch: VideoBatch, num_slots: int) -> None:
        """Scores trivial segmentations of those clips of the batch that are among the first of the set."""
        index = batch.index
        if index is None:  # clips that come from no loader of ours
            index = self._clips_done + torch.arange(len(batch))
        if self._clips_done == 0 and self.floor_clips:
            scores.expect_floors(segmentation_names(num_slots), batch.frames)
        self._clips_done += len(batch)
        among = index.to(batch.frames.device) < self.floor_clips
        if among.any():
            first = batch.map(lambda value: value[among])
            for name, labels in simple_segmentations(first.frames.float(), num_slots).items():
                scores.update_floor(name, labels, first.require("masks"))

    def _scores(self, stage: Stage) -> DiscoveryScores:
        scores = self.scores[stage]
        assert isinstance(scores, DiscoveryScores)
        return scores

    def _close(self, stage: Stage) -> None:
        loss, values = self.close_loss(stage), self._scores(stage).compute()
        self._scores(stage).reset()
        self._clips_done = 0
        if self.trainer.sanity_checking:
            return
        self._last_stage = stage
        if not self.floors[stage]:
            self.floors[stage] = {name: value for name, value in values.items() if name.startswith("floor/")}
        self.log_scores(stage, loss | values)
