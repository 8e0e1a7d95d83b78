"""Slots of scenes from several posed cameras, from which what other cameras see is painted ray by ray."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float, Integer
from torch import Tensor
from torch.nn import functional as F
from torch.optim import AdamW

from slotbench.figures.view_sheets import turn_video, view_sheet, view_video, without_sheet
from slotbench.interfaces import DataSpec, Decoded, PartError, Segmentation, Segmenter, VideoBatch
from slotbench.metrics.contingency import masks_to_labels
from slotbench.metrics.mask_metrics import mask_headline
from slotbench.metrics.scores import Score
from slotbench.metrics.view_scores import NovelViewScores
from slotbench.tasks.factories import CoreFactory, DecoderFactory, EncoderFactory, OptimizerFactory, ScheduleFactory
from slotbench.tasks.frame_losses import at_least_float32
from slotbench.tasks.metric_weights import MetricWeights
from slotbench.tasks.optimisation import Decay, WarmupCosine
from slotbench.tasks.part_checks import check_whole_frames
from slotbench.tasks.slot_task import SlotTask

__all__ = ["NovelViewAutoencoding", "ViewsPainted"]

Images = Float[Tensor, "batch time views channels height width"]

_TURN = 24
"""Frames of a turn around a scene."""


_TOLD_APART = {
    "scene": "objects told apart over cameras and time: FG-ARI per scene",
    "step": "over cameras alone: FG-ARI per step",
    "video": "over time alone: FG-ARI per video",
    "frame": "in a single image: FG-ARI per frame",
}


@dataclass
class ViewsPainted(Segmentation):
    """What was painted from the slots of clips.

    Attributes:
        decoded: in training of the rays that were drawn, as one row; otherwise of all cameras, the shown ones first.
        seen: what the cameras have seen along the same rays.
        masks: in evaluation, of the shown cameras; 0 where the background has more of a pixel than any slot.
    """

    decoded: Decoded = field(kw_only=True)
    seen: VideoBatch = field(kw_only=True)


class NovelViewAutoencoding(SlotTask, Segmenter):
    """Encodes some of the cameras that see a scene, and paints what all of them see, ray by ray, from a few slots.

    The loss is the mean squared error of the colours of `rays_per_step` pixels of each step, drawn at random from all
    cameras; in validation and test it is that of all pixels, painted in pieces, and the number of shown cameras may be
    another. `NovelViewScores` names the scores; baselines are the data set's (`held_out_baselines`).

    Source: PSB, Sections 3.2 and 5.2 and Appendix D.4; which rays are drawn, the paper does not say.

    Args:
        encoder: makes an encoder that `takes_views` from the `VideoSpec` of the cameras that are shown.
        decoder: makes a decoder that `paints_rays` from the core's `SlotSpec` and the `VideoSpec` of an image.
        rays_per_step: rays of each step of a clip that are painted in training, drawn with replacement.
        contrast_share: share of these that are drawn in proportion to the squared difference from the image's mean
            colour; it falls linearly to 0 at the end of a training.
        rays_at_once: most rays that are painted at once in evaluation; it changes memory and time, and no value.
        baseline_clips: the first clips of each evaluation set, on which baselines are scored; 0 for none.
        slot_pictures: also show each clip's last step without one slot after the other, and a turn around it.
    """

    monitor = ("val/loss", "min")

    def __init__(
        self,
        encoder: EncoderFactory,
        core: CoreFactory,
        decoder: DecoderFactory,
        optimizer: OptimizerFactory = AdamW,
        schedule: ScheduleFactory = WarmupCosine,
        rays_per_step: int = 256,
        contrast_share: float = 0.0,
        rays_at_once: int = 4096,
        baseline_clips: int = 200,
        init_from: str | None = None,
        data_spec: DataSpec | None = None,
        decay: Decay = "matrices",
        metric_weights: MetricWeights = MetricWeights(),
        slot_pictures: bool = False,
    ):
        if data_spec is not None:
            check_whole_frames(data_spec, "NovelViewAutoencoding paints the images of cameras", "MultiCameraLike")
            if data_spec.input.num_views < 2:
                raise ValueError("NovelViewAutoencoding reads several cameras per step, and this data has one")
        for name, count in {"rays_per_step": rays_per_step, "rays_at_once": rays_at_once}.items():
            if count < 1:
                raise ValueError(f"{name} is {count}; expected 1 or more")
        if not 0 <= contrast_share <= 1:
            raise ValueError(f"contrast_share is {contrast_share}; expected a share from 0 to 1")
        super().__init__(encoder, core, decoder, optimizer, schedule, init_from, data_spec, decay)
        if not self.decoder.paints_rays:
            raise PartError(f"the decoder {type(self.decoder).__name__} paints whole images: choose SlotMixerDecoder")
        self.rays_per_step, self.rays_at_once = rays_per_step, rays_at_once
        self.contrast_share = contrast_share
        self.slot_pictures = slot_pictures
        metric_weights.check(self.data_spec.input)
        self.metric_weights = metric_weights
        self.declare_scores(*(NovelViewScores(baseline_clips) for _ in range(2)))

    @property
    def reported(self) -> tuple[Score, ...]:
        """Quality of held-out cameras, objects told apart over cameras and time, and occupancy, beside baselines.

        FG-ARI is of samples that show two objects or more: of others, as many views are, it is 1 if there is one slot.
        """
        needs = "masks of the objects"
        return (
            Score("psnr/held_out", "held-out cameras: PSNR per image, dB"),
            Score("psnr_foreground/held_out", "held-out cameras: PSNR of the pixels of objects, dB", needs=needs),
            *(mask_headline("fg_ari_several", "decoder", label, scope) for scope, label in _TOLD_APART.items()),
            mask_headline("miou", "decoder", "masks that fit: mIoU per scene", "scene"),
            mask_headline("mbo", "decoder", "the best slot of each object: mBO per scene", "scene"),
            mask_headline("ari", "decoder", "with the background: ARI per scene", "scene"),
            Score("largest_slot/decoder", "share of the largest slot", higher_is_better=False),
        )

    def forward(self, batch: VideoBatch) -> ViewsPainted:
        """Slots of every step, and what the decoder paints: in training of some rays, otherwise of all cameras."""
        slots = self.tracked(self.encoded(batch)).slots
        everything = batch.all_views()
        if self.training:
            seen = everything.take_rays(self._drawn(batch))
            return ViewsPainted(slots, decoded=self.decoded(slots, seen), seen=seen)
        decoded = self.paint(slots, everything)
        masks = _masks(decoded)
        masks = None if masks is None else masks[:, :, : batch.num_views]
        return ViewsPainted(slots, masks=masks, decoded=decoded, seen=everything)

    def evaluate(self, batch: VideoBatch) -> ViewsPainted:
        """The same as in validation and test."""
        return self(batch)

    def paint(self, slots: Float[Tensor, "batch time slots dim"], batch: VideoBatch) -> Decoded:
        """Whole images along the rays of `batch`, painted in pieces, with masks and depth if the decoder has them."""
        rays = batch.require("rays")
        steps, views, size = rays.shape[:2], rays.shape[2], rays.shape[-2:]
        pixels = torch.arange(views * size.numel(), device=rays.device).expand(*steps, -1)
        row = batch.take_rays(pixels)
        count = max(1, self.rays_at_once // steps.numel())
        pieces, shares = [], []
        for start in range(0, pixels.shape[-1], count):
            there = {name: getattr(row, name)[..., start : start + count] for name in ("frames", "rays")}
            pieces.append(self.decoded(slots, replace(row, masks=None, **there)))
            shares.append(there["rays"].shape[-1] / pixels.shape[-1])

        def joined(name: str) -> Tensor | None:
            values = [getattr(piece, name) for piece in pieces]
            if any(value is None for value in values):
                return None
            flat = torch.cat(values, dim=-1)[:, :, 0].squeeze(-2)
            return rearrange(flat, "b t ... (v h w) -> b t v ... h w", v=views, h=size[0], w=size[1])

        painted = joined("reconstruction")
        assert painted is not None
        losses = {
            name: sum(share * piece.losses[name] for share, piece in zip(shares, pieces, strict=True))
            for name in pieces[0].losses
        }
        others = {name: joined(name) for name in ("masks", "depth", "background")}
        return Decoded(painted, losses=losses, **others)

    def loss(self, output: ViewsPainted, batch: VideoBatch) -> Float[Tensor, ""]:
        """Mean squared error of the colours along the rays that were painted, plus the decoder's own terms."""
        painted, seen = at_least_float32(output.decoded.reconstruction), at_least_float32(output.seen.pixels)
        return output.decoded.add_losses(F.mse_loss(painted, seen))

    def score(self, batch: VideoBatch, scores: NovelViewScores) -> Tensor:
        """Scores the images of held-out and of shown cameras, the masks of all, and depth."""
        out = self.evaluate(batch)
        shown, painted = batch.num_views, self.images(out)
        cameras = {"shown": (batch, painted[:, :, :shown])}
        if batch.held_out is not None:
            cameras["held_out"] = (batch.held_out, painted[:, :, shown:])
        for name, (seen, images) in cameras.items():
            scores.update_images(name, images, seen.pixels.float(), seen.masks)
        if scores.wants_references and scores.baseline_clips and (held_out := batch.held_out) is not None:
            for name, images in self._data.held_out_baselines(batch).items() if self._data is not None else ():
                scores.update_images("held_out", images, held_out.pixels.float(), held_out.masks, name)
        if (depth := out.decoded.depth) is not None:
            parts = {"shown": depth[:, :, :shown], "held_out": depth[:, :, shown:]}
            for name, (seen, _) in cameras.items():
                if (true := seen.objects.get("depth")) is not None:
                    scores.update_depth(name, parts[name].float(), true.float())
        if (labels := _labels(out.decoded)) is not None:
            scores.update_views(labels, out.slots.shape[2], out.seen.masks, shown)
            if out.seen.masks is not None:
                scores.update_baselines(out.seen, out.slots.shape[2])
        return self.loss(out, batch)

    def images(self, out: ViewsPainted) -> Images:
        """What was painted, in [0, 1]."""
        return out.decoded.reconstruction.float().clamp(0, 1)

    def predict(self, batch: VideoBatch) -> dict[str, Tensor]:
        """The slots, and of all cameras images, masks (0 where the background has most) and depth, if there are any."""
        out = self.evaluate(batch)
        views, held_out = batch.objects.get("views"), batch.held_out
        if views is not None and held_out is not None:
            views = torch.cat([views, held_out.objects["views"]], dim=1)
        if views is None:
            views = torch.arange(out.seen.num_views, device=batch.time.device).expand(len(batch), -1)
        clips, order = torch.arange(len(batch), device=views.device)[:, None], views.argsort(1)
        painted = {"frames": self.images(out), "masks": _masks(out.decoded), "depth": out.decoded.depth}
        of_cameras = {
            name: value[clips, :, order].transpose(1, 2) for name, value in painted.items() if value is not None
        }
        return {"slots": out.slots, "shown": views[:, : batch.num_views], **of_cameras}

    def attention_masks(
        self, attention: Float[Tensor, "batch time slots tokens"], size: tuple[int, int]
    ) -> Float[Tensor, "batch time slots height width"] | None:
        """None: the tokens of several cameras are on no grid."""
        return None

    def pictures(self, batch: VideoBatch) -> dict[str, np.ndarray]:
        """A sheet per clip: all cameras at the first, the middle and the last step; with `slot_pictures` one more."""
        out = self._seen(batch)
        steps = sorted({0, batch.num_steps // 2, batch.num_steps - 1})
        sheets = {f"clip_{i}": view_sheet(**clip, steps=steps) for i, clip in enumerate(self._clips(out, batch))}
        if not self.slot_pictures:
            return sheets
        last, slots = out.seen.slice_time(batch.num_steps - 1, batch.num_steps), out.slots[:, -1:]
        others = [[other for other in range(slots.shape[2]) if other != slot] for slot in range(slots.shape[2])]
        without = torch.stack([self._painted(slots[:, :, kept], last)[:, 0] for kept in others], dim=1)
        for i, (frames, painted) in enumerate(zip(last.pixels[:, 0], self.images(out)[:, -1], strict=True)):
            sheets[f"clip_{i}_without"] = without_sheet(frames, painted, without[i], batch.num_views)
        return sheets

    def videos(self, batch: VideoBatch) -> dict[str, np.ndarray]:
        """Of each clip, all cameras: frames, what is painted, the slots and the truth; with `slot_pictures` a turn."""
        out = self._seen(batch)
        videos = {f"clip_{i}": view_video(**clip) for i, clip in enumerate(self._clips(out, batch))}
        around = getattr(self._data, "turntable", None) if self.slot_pictures else None
        if around is None:
            return videos
        decoded = self.paint(out.slots[:, -1:].expand(-1, _TURN, -1, -1), around(batch, _TURN))
        labels = _labels(decoded)
        for i, images in enumerate(decoded.reconstruction.float().clamp(0, 1)):
            videos[f"turn_{i}"] = turn_video(images[:, 0], None if labels is None else labels[i, :, 0])
        return videos

    def _seen(self, batch: VideoBatch) -> ViewsPainted:
        with self.deterministic_sampling(batch, 0):
            return self.evaluate(batch)

    def _painted(self, slots: Tensor, batch: VideoBatch) -> Images:
        return self.paint(slots, batch).reconstruction.float().clamp(0, 1)

    def _clips(self, out: ViewsPainted, batch: VideoBatch) -> list[dict[str, Any]]:
        """The arguments of a figure of each clip."""
        shown: dict[str, Tensor | None] = {"frames": out.seen.pixels, "painted": self.images(out)}
        shown |= {"labels": _labels(out.decoded), "true_masks": out.seen.masks}
        counts = {"num_slots": out.slots.shape[2], "shown": batch.num_views}
        return [
            {name: None if values is None else values[i] for name, values in shown.items()} | counts
            for i in range(len(batch))
        ]

    def _drawn(self, batch: VideoBatch) -> Integer[Tensor, "batch time rays"]:
        """Which pixels are painted in training, counted through the cameras that are shown and those held out."""
        return _draw(self._pixel_weights(batch.all_views()).flatten(2), self.rays_per_step)

    def _pixel_weights(self, batch: VideoBatch) -> Float[Tensor, "batch time views height width"]:
        """How often pixels are drawn, over the mean of their step."""
        share = self.contrast_share * (1 - self.progress) if self.is_attached else self.contrast_share
        frames = at_least_float32(batch.pixels)
        if not share:
            return torch.ones_like(frames[:, :, :, 0])
        contrast = (frames - frames.mean(dim=(-2, -1), keepdim=True)).square().sum(dim=-3)
        return share * contrast / contrast.mean(dim=(2, 3, 4), keepdim=True).clamp(min=1e-12) + (1 - share)


def _draw(weights: Float[Tensor, "batch time pixels"], count: int) -> Integer[Tensor, "batch time drawn"]:
    drawn = torch.multinomial(weights.flatten(0, 1) + 1e-12, max(count, 1), replacement=True)[:, :count]
    return drawn.unflatten(0, weights.shape[:2])


def _masks(decoded: Decoded) -> Float[Tensor, "batch time views slots height width"] | None:
    if decoded.masks is None or decoded.background is None:
        return decoded.masks
    background = decoded.background.unsqueeze(-3)
    shares = decoded.masks * (1 - background)
    return shares * (shares.amax(-3, keepdim=True) >= background)


def _labels(decoded: Decoded) -> Integer[Tensor, "batch time views height width"] | None:
    masks = _masks(decoded)
    return None if masks is None else masks_to_labels(masks)
