"""Prediction of the depth of every frame from slots, evaluated by its errors and by what each slot has taken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.optim import AdamW

from slotbench.data.base import check_choices
from slotbench.errors import UserError, lines
from slotbench.interfaces import DataSpec, Decoded, VideoBatch, VideoSpec
from slotbench.metrics.depth.floor import floor_depth
from slotbench.metrics.depth.means import DepthMeans, counted_pixels
from slotbench.metrics.depth.scores import DepthScores
from slotbench.metrics.mask_metrics import mask_headlines
from slotbench.metrics.scores import Score
from slotbench.tasks.autoencoding import Autoencoded, AutoencodingTask
from slotbench.tasks.factories import CoreFactory, DecoderFactory, EncoderFactory, OptimizerFactory, ScheduleFactory
from slotbench.tasks.frame_losses import at_least_float32
from slotbench.tasks.optimisation import Decay, WarmupCosine
from slotbench.tasks.part_checks import check_logits, check_whole_frames

__all__ = ["DEPTH_TRANSFORMS", "DepthAutoencoding", "DepthTransform"]

Depth = Float[Tensor, "batch time height width"]


DepthTransformName = Literal["log", "inverse", "plain"]
"""ln(1 + d), 1 / d, or d."""


@dataclass(frozen=True)
class DepthTransform:
    """A monotonous map of depth to what is learned (`target`), and the way back (`inverse`)."""

    target: Callable[[Tensor], Tensor]
    inverse: Callable[[Tensor], Tensor]

    def depth(self, predicted: Float[Tensor, "*shape"], span: tuple[float, float]) -> Float[Tensor, "*shape"]:
        """Depth from a prediction, which may be any number; it is brought within the span."""
        # before the way back, where it is defined for them all; after it, where rounding may have left the span
        bounds = self.target(torch.tensor(span, dtype=torch.float64)).sort().values.tolist()
        return self.inverse(predicted.clamp(*bounds)).clamp(*span)

    def standardised(self, mean: float, std: float) -> DepthTransform:
        """The same, less `mean` and divided by `std`, which is above 0."""
        return DepthTransform(
            lambda depth: (self.target(depth) - mean) / std, lambda target: self.inverse(target * std + mean)
        )


DEPTH_TRANSFORMS: dict[DepthTransformName, DepthTransform] = {
    "log": DepthTransform(torch.log1p, torch.expm1),
    "inverse": DepthTransform(torch.reciprocal, torch.reciprocal),
    "plain": DepthTransform(lambda depth: depth, lambda target: target),
}
"""Source: SAVi++ (Elsayed et al., 2022) learns ln(1 + d)."""


class DepthAutoencoding(AutoencodingTask):
    """Predicts the depth of every frame from a few slots, and is scored by its errors and by what each slot has taken.

    The decoder has one channel. The loss is the mean squared error of transformed depth, over the pixels of a clip with
    a depth within `depth_range` that the data does not call invalid (`objects["depth_valid"]`), then over clips. The
    other pixels have no part in scores either; see `DepthScores`.

    Source: SAVi++ (Elsayed et al., 2022), depth as the target of slots; SlotSSM (Jiang et al., 2024), Appendix D.2,
    which says neither unit nor transform.

    Args:
        encoder: makes an encoder from the frames' `VideoSpec`.
        decoder: makes a decoder from the core's `SlotSpec` and a `VideoSpec` of one channel; its output is not bounded.
        depth_target: what of depth d is learned: "log" for ln(1 + d), "inverse" for 1 / d, "plain" for d.
        target_mean: what is taken from that.
        target_std: what the rest is divided by.
        depth_range: the nearest and the farthest depth that count, in the unit of the data.
        baseline_clips: the first clips of each evaluation set, on which baselines are scored; 0 for none.
    """

    monitor = ("val/loss", "min")

    def __init__(
        self,
        encoder: EncoderFactory,
        core: CoreFactory,
        decoder: DecoderFactory,
        optimizer: OptimizerFactory = AdamW,
        schedule: ScheduleFactory = WarmupCosine,
        depth_target: DepthTransformName = "log",
        target_mean: float = 0.0,
        target_std: float = 1.0,
        depth_range: tuple[float, float] = (0.01, 1000.0),
        baseline_clips: int = 200,
        init_from: str | None = None,
        data_spec: DataSpec | None = None,
        decay: Decay = "matrices",
    ):
        check_choices(depth_target=(depth_target, DepthTransformName))
        if not abs(target_mean) < float("inf") or not 0 < target_std < float("inf"):
            raise ValueError(f"target_mean is {target_mean} and target_std {target_std}; expected numbers, std above 0")
        if not 0 < depth_range[0] < depth_range[1] < float("inf"):
            raise ValueError(f"depth_range is {list(depth_range)}; expected the nearest and the farthest, both above 0")
        parts = None
        if data_spec is not None:
            check_whole_frames(data_spec, "DepthAutoencoding predicts depth of the frames that it reads", "MOViLike")
            frame = data_spec.input
            parts = DataSpec(frame, VideoSpec(channels=1, height=frame.height, width=frame.width))
        super().__init__(encoder, core, decoder, optimizer, schedule, init_from, data_spec, decay, parts)
        check_logits(self.decoder, "depth has other values: give")
        self.depth_target: DepthTransformName = depth_target
        self.depth_range = depth_range
        self.transform = DEPTH_TRANSFORMS[depth_target].standardised(target_mean, target_std)
        self.means = DepthMeans(self.data_spec.input.height, self.data_spec.input.width)
        self.declare_scores(*(DepthScores(baseline_clips) for _ in range(2)))

    def setup(self, stage: str) -> None:
        """Loads the weights named by `init_from`; the means of the depth that they have seen stay behind."""
        begins = self.weight_report is None
        super().setup(stage)
        if begins and self.weight_report is not None:
            self.means.reset()

    @property
    def reported(self) -> tuple[Score, ...]:
        """Errors of depth on all pixels and on those of objects, and the masks' scores as elsewhere."""
        names = {"depth_abs_rel": "mean |p - d| / d", "depth_rmse": "RMSE in the data's unit"}
        groups = {"all": ("depth of all pixels", None), "objects": ("depth of objects", "masks of the objects")}
        return (
            *(
                Score(f"{name}/{group}", f"{whose}: {label}", higher_is_better=False, needs=needs)
                for group, (whose, needs) in groups.items()
                for name, label in names.items()
            ),
            *mask_headlines("fg_ari", "miou", "mbo"),
            Score("largest_slot/decoder", "share of the largest slot", higher_is_better=False),
        )

    def depth(self, decoded: Decoded) -> Depth:
        """Predicted depth in the unit of the data, within `depth_range`."""
        return self.transform.depth(at_least_float32(decoded.reconstruction[:, :, 0]), self.depth_range)

    def true_depth(self, batch: VideoBatch) -> tuple[Depth, Bool[Tensor, "batch time height width"]]:
        """Depth, and which pixels have it; those without have 1."""
        depth = batch.objects.get("depth")
        if depth is None:
            raise UserError(
                lines(
                    "this data has no depth, which DepthAutoencoding predicts",
                    expected="--data.depth true for MOViLike, MOVi or CATERLike, or the data set DepthVideo",
                )
            )
        if depth.shape != (sizes := (*batch.frames.shape[:2], *batch.frames.shape[-2:])):
            raise UserError(f"depth has the shape {tuple(depth.shape)}; expected that of the frames, {sizes}")
        depth = at_least_float32(depth)
        valid = depth.isfinite() & (depth >= self.depth_range[0]) & (depth <= self.depth_range[1])
        if (given := batch.objects.get("depth_valid")) is not None:
            valid = valid & given.bool()
        return torch.where(valid, depth, 1.0), valid

    def loss(self, output: Autoencoded, batch: VideoBatch) -> Float[Tensor, ""]:
        """Squared error of the transformed depth, mean over the pixels that have it, plus the decoder's own terms."""
        depth, valid = self.true_depth(batch)
        error = at_least_float32(output.decoded.reconstruction[:, :, 0]) - self.transform.target(depth)
        square = torch.where(valid, error, 0.0).square().flatten(1).sum(1)
        pixels = valid.flatten(1).sum(1)
        return output.decoded.add_losses((square / pixels.clamp(min=1)).sum() / (pixels > 0).sum().clamp(min=1))

    def training_loss(self, batch: VideoBatch) -> Tensor:
        """The loss; the depth of the batch goes into the means that baselines are made of."""
        depth, valid = self.true_depth(batch)
        self.means.update(depth, counted_pixels(valid, batch.masks))
        return super().training_loss(batch)

    def score(self, batch: VideoBatch, scores: DepthScores) -> Tensor:
        """Scores depth and masks."""
        out = self.evaluate(batch)
        depth, valid = self.true_depth(batch)
        counted = counted_pixels(valid, batch.masks)
        scores.update_depth(self.depth(out.decoded), depth, counted)
        scores.update_depth_baselines(self._baselines(batch), depth, counted)
        self._score_masks(out, batch, scores)
        return self.loss(out, batch)

    def painted_truth(self, batch: VideoBatch) -> Float[Tensor, "batch time 1 height width"] | None:
        """True depth as brightness, black where there is none; None without depth, or with that of other steps."""
        depth = batch.objects.get("depth")
        if depth is None or depth.shape[:2] != batch.time.shape:  # a slice in time does not cut it
            return None
        depth, valid = self.true_depth(batch)
        return (self.image(self.transform.target(depth)) * valid)[:, :, None]

    def _baselines(self, batch: VideoBatch) -> dict[str, dict[str, Tensor]]:
        """Depth that takes no learning, by name and group of pixels."""
        found: dict[str, dict[str, Tensor]] = {}
        for group in ("all",) if batch.masks is None else ("all", "objects"):
            for name, depth in self.means.baselines(group).items():
                found.setdefault(name, {})[group] = depth.clamp(*self.depth_range)
            floor = floor_depth(batch.objects, *batch.frames.shape[-2:])
            if floor is not None:
                found.setdefault("empty floor", {})[group] = floor.clamp(*self.depth_range)
        return found

    def image(self, painted: Float[Tensor, "*batch height width"]) -> Float[Tensor, "*batch height width"]:
        """Transformed depth as brightness: 1 for the nearest that a training has seen, 0 for the farthest."""
        span = self.means.span if self.means.span[0] < self.means.span[1] else painted.new_tensor(self.depth_range)
        near, far = self.transform.target(span.to(painted)).unbind()
        return ((painted - far) / (near - far)).clamp(0, 1)

    def _found(self, out: Autoencoded, batch: VideoBatch) -> dict[str, Tensor]:
        found = {**super()._found(out, batch), "depth": self.depth(out.decoded)}
        truth = self.painted_truth(batch)
        return found if truth is None else found | {"target": truth}
