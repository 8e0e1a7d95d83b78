"""Every score of object discovery at once: segmentation by each kind of masks, occupancy, and quality of the frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torchmetrics import Metric

from slotbench.interfaces import VideoBatch
from slotbench.metric_info import MetricInfo, Reference, describe
from slotbench.metrics.contingency import Labels, Tables, frame_tables
from slotbench.metrics.frames import FRAME_INFOS, SSIM_WINDOW, frame_mse, frame_psnr, frame_ssim
from slotbench.metrics.lpips import LPIPS
from slotbench.metrics.mask_evaluation import MaskEvaluation, gathered
from slotbench.metrics.mask_metrics import MASK_METRICS, mask_score_infos
from slotbench.metrics.means import Mean
from slotbench.metrics.scores import Scores
from slotbench.metrics.segmentation import FGARI, Scope, SegmentationMetric
from slotbench.metrics.segmentation_baselines import segmentation_names, simple_segmentations
from slotbench.metrics.slot_occupancy import SlotOccupancy

__all__ = ["DiscoveryScores"]

OCCUPANCY = (
    MetricInfo("largest_slot", "share of the largest slot", False),
    MetricInfo("live_slots", "slots with at least 0.1 % of the pixels"),
    MetricInfo("collapsed", "share of clips in which one slot has more than 95 %", False),
)
_Module = TypeVar("_Module", bound=nn.Module)


class _Segmentation(nn.Module):
    """All segmentation metrics in some scopes, from one count of the pixels."""

    def __init__(self, scopes: Sequence[Scope]) -> None:
        super().__init__()
        self.metrics = nn.ModuleDict()
        for scope in scopes:
            for metric in MASK_METRICS.values():
                if metric.logged:
                    self.metrics[f"{metric.name}/{scope}"] = metric.make(scope)

    def by_name(self) -> dict[str, SegmentationMetric]:
        return dict(self.metrics.items())  # type: ignore[arg-type]

    def update(self, labels: Labels, true: Integer[Tensor, "batch time *views height width"]) -> Tables:
        tables = frame_tables(labels, true)
        for metric in self.by_name().values():
            metric.update_tables(tables)
        return tables


class DiscoveryScores(Scores):
    """Scores of slots against the true instances, and of reconstructions against the frames.

    Names: `<metric>/<scope>/<masks>`, where metric is a logged one of `MASK_METRICS`, scope is `video` or `frame`, and
    masks is their source: `decoder`, `attention`, or `mask_decoder`;
    `fg_ari_several/<scope>/<masks>`, the mean over samples with at least two visible objects; `largest_slot`,
    `live_slots` and `collapsed` with `/<masks>`; `mse/frame`, `psnr/frame`, `ssim/frame` (frames of at least 11 x 11
    pixels) and, given a network, `lpips/frame`; for baselines `baseline/<metric>/<scope>/<name>`.

    Args:
        baseline_clips: clips of the set that baselines are scored on, the first ones; 0 for no baselines.

    Attributes:
        per_clip: whether `mask_scores` has the scores of every clip, tracking among them; else means alone.
        scopes: what a sample of the masks is.
    """

    scopes: ClassVar[tuple[Scope, ...]] = ("video", "frame")

    def __init__(self, baseline_clips: int = 0) -> None:
        super().__init__()
        self.baseline_clips = baseline_clips
        self.per_clip = False
        self._clips_done = 0
        self._evaluations: dict[str, MaskEvaluation] = {}
        self.segmentations = nn.ModuleDict()
        self.occupancies = nn.ModuleDict()
        self.baselines = nn.ModuleDict()
        self.frames = nn.ModuleDict()

    @property
    def declared(self) -> list[MetricInfo]:
        """Scores of masks and of tracking, occupancy, and the quality of frames."""
        return [*mask_score_infos(), *OCCUPANCY, *FRAME_INFOS]

    def update_masks(
        self,
        masks: str,
        labels: Labels,
        num_slots: int,
        true: Integer[Tensor, "batch time *views height width"] | None,
        index: Integer[Tensor, " batch"] | None = None,
        shown: int | None = None,
    ) -> None:
        """Adds segmentations of clips; without the true instances only how full the slots are.

        Args:
            masks: their source, "decoder", "attention" or "mask_decoder".
            labels: the winning slot of every pixel, at the size of the truth.
            num_slots: slots.
            true: ids of instances, 0 = background.
            index: numbers of the clips in their split; None where they come from no loader of ours.
            shown: of several cameras, those that the encoder was shown, for the record.
        """
        occupancy = _made(self.occupancies, masks, SlotOccupancy, labels)
        occupancy.update(labels, num_slots)
        if true is not None:
            tables = _made(self.segmentations, masks, _Segmentation, labels, self.scopes).update(labels, true)
            evaluation = self._evaluations.setdefault(masks, MaskEvaluation(self.per_clip))
            tables = tables[:, :, 0] if true.ndim == 4 else tables
            evaluation.add(tables, (true.shape[-2], true.shape[-1]), num_slots, index, shown=shown)

    def update_baseline(
        self, name: str, labels: Labels, true: Integer[Tensor, "batch time *views height width"]
    ) -> None:
        """Adds segmentations of clips by a baseline, by its name."""
        _made(self.baselines, name, _Segmentation, labels, self.scopes).update(labels, true)

    def update_baselines(self, batch: VideoBatch, num_slots: int) -> None:
        """Adds the baselines of a batch with true instances: of those of its clips that are among the first of the set.

        Args:
            batch: frames in [0, 1], with `masks`.
            num_slots: slots of the model, and so segments at most.
        """
        if not self.wants_references or not self.baseline_clips:
            return
        index = batch.index
        if index is None:  # clips that come from no loader of ours
            index = self._clips_done + torch.arange(len(batch))
        if self._clips_done == 0:
            # takes part in the baselines even if all of their clips are other processes'
            for name in segmentation_names(num_slots):
                self._expect_baseline(name, batch.pixels)
        self._clips_done += len(batch)
        among = index.to(batch.frames.device) < self.baseline_clips
        if among.any():
            first = batch.map(lambda value: value[among])
            frames, true = first.pixels.float(), first.require("masks")
            # cameras are steps to them: rectangles are the same in each, and clusters are of all pixels of a clip
            seen = frames.flatten(1, -4)
            for name, labels in simple_segmentations(seen, num_slots).items():
                self.update_baseline(name, labels.reshape(true.shape), true)

    def update_frames(
        self,
        predicted: Float[Tensor, "batch time channels height width"],
        true: Float[Tensor, "batch time channels height width"],
        lpips: LPIPS | None = None,
    ) -> None:
        """Adds reconstructions; both in [0, 1], one value per frame and then the mean over frames."""
        self._add_frames("mse", frame_mse(predicted, true))
        self._add_frames("psnr", frame_psnr(predicted, true))
        if min(true.shape[-2:]) >= SSIM_WINDOW:
            self._add_frames("ssim", frame_ssim(predicted, true))
        if lpips is not None:
            self._add_frames("lpips", lpips(predicted, true))

    def compute(self) -> dict[str, float]:
        """Every score that there is, by name; what has no sample is left out."""
        values: dict[str, float] = {}
        for masks, segmentation in self.segmentations.items():
            for name, metric in segmentation.by_name().items():  # type: ignore[operator, union-attr]
                values[f"{name}/{masks}"] = float(metric.compute())
                if isinstance(metric, FGARI):
                    values[f"fg_ari_several/{metric.scope}/{masks}"] = metric.mean_of_several()
        for masks, occupancy in self.occupancies.items():
            values |= {f"{name}/{masks}": float(value) for name, value in occupancy.compute().items()}  # type: ignore[operator]
        for baseline, segmentation in self.baselines.items():
            for name, metric in segmentation.by_name().items():  # type: ignore[operator, union-attr]
                values[Reference("baseline", name, baseline)] = float(metric.compute())
        values |= {f"{name}/frame": float(metric.compute()) for name, metric in self.frames.items()}  # type: ignore[operator]
        return {name: value for name, value in values.items() if value == value}  # nan: no sample

    def close(self, keep_references: bool = True) -> dict[str, float]:
        """Every score of the evaluation that ends; forgets its clips, but not what its records say."""
        evaluations, self._evaluations = gathered(self._evaluations), {}
        values = super().close(keep_references)
        known = self.references | values
        infos = describe(known, self.declared)
        means: dict[str, dict[str, float]] = {}
        for name, info in infos.items():
            if info.scope and info.masks:
                means.setdefault(info.masks, {})[info.without_masks] = known[name]
        of_masks = {name for scores in means.values() for name in scores}
        baselines: dict[str, dict[str, float]] = {}
        for name, info in infos.items():
            if info.reference and info.of in of_masks:
                baselines.setdefault(info.by, {})[info.of] = known[name]
        self.mask_scores = [
            evaluation.result(source, means.get(source, {}), baselines) for source, evaluation in evaluations.items()
        ]
        return values

    def reset(self) -> None:
        """Forgets every clip."""
        self._evaluations = {}
        for module in self.modules():
            if isinstance(module, Metric):
                module.reset()
        self._clips_done = 0
        # an entry exists only once it is updated: baselines are scored once
        for made in (self.segmentations, self.occupancies, self.baselines, self.frames):
            made.clear()

    def _expect_baseline(self, name: str, like: Tensor) -> None:
        for metric in _made(self.baselines, name, _Segmentation, like, self.scopes).by_name().values():
            metric.update_nothing()

    def _add_frames(self, name: str, values: Tensor) -> None:
        _made(self.frames, name, Mean, values).update(values)


def _made(table: nn.ModuleDict, name: str, kind: type[_Module], like: Tensor, *arguments: Any) -> _Module:
    """The entry of this name, made on first use: which masks there are is known from the model's output alone."""
    if name not in table:
        table[name] = kind(*arguments).to(like.device)
    entry = table[name]
    assert isinstance(entry, kind)
    return entry
