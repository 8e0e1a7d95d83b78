"""Scores of several cameras: how well images of held-out cameras are painted, and what each slot has in all of them."""

from __future__ import annotations

from typing import ClassVar

from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn

from slotbench.metric_info import MetricInfo, Reference
from slotbench.metrics.contingency import Labels, counted
from slotbench.metrics.depth.errors import DEPTH_ERRORS, DepthErrors
from slotbench.metrics.discovery_scores import DiscoveryScores, several_of
from slotbench.metrics.frames import MAX_PSNR, frame_metrics
from slotbench.metrics.means import Mean
from slotbench.metrics.segmentation import FGARI, Scope

__all__ = ["NovelViewScores", "foreground_psnr"]

Images = Float[Tensor, "batch time views channels height width"]
TrueMasks = Integer[Tensor, "batch time views height width"]

_HELD_OUT = "fg_ari/scene/held_out"
_NOTHING = 1000.0  # depth where a ray meets nothing, as MOVi and MOViLike have it


def foreground_psnr(
    predicted: Float[Tensor, "*batch channels height width"],
    true: Float[Tensor, "*batch channels height width"],
    masks: Integer[Tensor, "*batch height width"],
) -> Float[Tensor, " images"]:
    """PSNR of the pixels of objects, in decibels for a peak of 1, of each image that has any; at most `MAX_PSNR`.

    Example:
        >>> import torch
        >>> masks = torch.tensor([[[0, 1]], [[0, 0]]])
        >>> foreground_psnr(torch.zeros(2, 3, 1, 2), torch.full((2, 3, 1, 2), 0.1), masks)
        tensor([20.])
    """
    foreground = (masks > 0).flatten(-2).to(predicted.dtype)
    error = ((predicted - true).square().mean(-3).flatten(-2) * foreground).sum(-1)
    pixels = foreground.sum(-1)
    mean = error[pixels > 0] / pixels[pixels > 0]
    return (-10 * mean.clamp(min=1e-30).log10()).clamp(max=MAX_PSNR)


class NovelViewScores(DiscoveryScores):
    """Quality of the images of cameras, and scores of slots against true instances whose ids all cameras share.

    Names: `psnr/<cameras>`, `mse/<cameras>`, `psnr_foreground/<cameras>` (pixels of objects), `ssim/<cameras>` (images
    of at least 11 x 11 pixels) and, given a network, `lpips/<cameras>`, one value per image and then the mean over
    images, where cameras is `held_out` or `shown`; `depth_abs_rel`, `depth_rmse` and `depth_log_rmse` of them, where
    decoder and data have depth (see `DepthErrors`). Segmentation scores over all cameras, shown and held out, are those
    of `DiscoveryScores` with four scopes: `frame` for each camera and step alone, `video` for a camera over all steps,
    `step` for a step over all cameras, `scene` for all together; `fg_ari/scene/held_out` is of the held-out cameras
    alone, as is `fg_ari_several/scene/held_out`. Baselines: `baseline/<score>/<name>`.
    """

    scopes: ClassVar[tuple[Scope, ...]] = ("scene", "step", "video", "frame")

    def __init__(self, baseline_clips: int = 0) -> None:
        super().__init__(baseline_clips)
        self.images = nn.ModuleDict()
        self.depths = nn.ModuleDict()
        self.held_out = nn.ModuleDict()
        self._shown = 0

    @property
    def declared(self) -> list[MetricInfo]:
        """Scores of object discovery, of images, and errors of depth."""
        labels = ("depth: mean |p - d| / d", "depth: RMSE in the data's unit", "depth: RMSE of ln d")
        return [
            *super().declared,
            MetricInfo("psnr_foreground", "PSNR of the pixels of objects", True, unit="dB"),
            *(MetricInfo(name, label, False) for name, label in zip(DEPTH_ERRORS, labels, strict=True)),
        ]

    def update_views(self, labels: Labels, num_slots: int, true: TrueMasks | None, shown: int) -> None:
        """Adds the winning slot of each pixel of all cameras, of which the first `shown` were shown to the encoder."""
        self._shown = shown
        self.update_masks("decoder", labels, num_slots, true)
        if true is not None:
            self._add_held_out(_HELD_OUT, labels, true)

    def update_baseline(
        self, name: str, labels: Labels, true: Integer[Tensor, "batch time *views height width"]
    ) -> None:
        """Adds segmentations of clips by a baseline, by its name; after `update_views` of the same clips."""
        super().update_baseline(name, labels, true)
        self._add_held_out(Reference("baseline", _HELD_OUT, name), labels, true)

    def update_images(
        self,
        cameras: str,
        predicted: Images,
        true: Images,
        masks: TrueMasks | None,
        baseline: str = "",
    ) -> None:
        """Adds images in [0, 1] of cameras, "held_out" or "shown"; those of a baseline, where it is named."""
        for name, score in frame_metrics(true.shape[-2], true.shape[-1]).items():
            self._add(f"{name}/{cameras}", score(predicted, true), baseline)
        if masks is not None:
            self._add(f"psnr_foreground/{cameras}", foreground_psnr(predicted, true, masks), baseline)
        if self.lpips is not None:
            self._add(f"lpips/{cameras}", self.lpips(predicted, true), baseline)

    def update_depth(
        self,
        cameras: str,
        predicted: Float[Tensor, "batch time views height width"],
        true: Float[Tensor, "batch time views height width"],
    ) -> None:
        """Adds depth of cameras; a true depth of 1000 or more, which is nothing, or of none or 0 counts nowhere."""
        there: Bool[Tensor, "batch time views height width"] = (true > 0) & (true < _NOTHING)
        if cameras not in self.depths:
            self.depths[cameras] = DepthErrors().to(true.device)
        self.depths[cameras].update(predicted.clamp(min=1e-6), true, there)  # type: ignore[operator]

    def compute(self) -> dict[str, float]:
        """Every score that there is, by name; what has no sample is left out."""
        values = {name: float(metric.compute()) for name, metric in self.images.items()}  # type: ignore[operator]
        for name, metric in self.held_out.items():
            assert isinstance(metric, FGARI)
            values |= {name: float(metric.compute()), several_of(name): metric.mean_of_several()}
        for cameras, errors in self.depths.items():
            found = errors.compute()  # type: ignore[operator]
            values |= {f"{name}/{cameras}": float(value) for name, value in found.items()}
        return super().compute() | {name: value for name, value in values.items() if value == value}

    def reset(self) -> None:
        """Forgets every clip."""
        super().reset()
        for made in (self.images, self.depths, self.held_out):
            made.clear()

    def _add(self, name: str, values: Tensor, baseline: str) -> None:
        name = Reference("baseline", name, baseline) if baseline else name
        if name not in self.images:
            self.images[name] = Mean().to(values.device)
        self.images[name].update(values)  # type: ignore[operator]

    def _expect_baseline(self, name: str, like: Tensor) -> None:
        super()._expect_baseline(name, like)
        if _HELD_OUT in self.held_out:
            self._of_held_out(Reference("baseline", _HELD_OUT, name), like).update_nothing()

    def _add_held_out(self, name: str, labels: Tensor, true: Tensor) -> None:
        if true.shape[2] > self._shown:
            held_out = true[:, :, self._shown :]
            self._of_held_out(name, true).update(labels[:, :, self._shown :], held_out, counted(held_out))

    def _of_held_out(self, name: str, like: Tensor) -> FGARI:
        if name not in self.held_out:
            self.held_out[name] = FGARI("scene").to(like.device)
        metric = self.held_out[name]
        assert isinstance(metric, FGARI)
        return metric
