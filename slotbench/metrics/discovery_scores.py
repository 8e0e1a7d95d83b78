"""Every score of object discovery at once: segmentation by each kind of masks, occupancy, and quality of the frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import torch
import torch.distributed
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torchmetrics import Metric

from slotbench.interfaces import VideoBatch
from slotbench.metric_info import MetricInfo, Reference
from slotbench.metrics.clip_scores import ClipScores, summaries
from slotbench.metrics.contingency import Labels, Tables, counted, frame_tables
from slotbench.metrics.frames import frame_infos, frame_metrics
from slotbench.metrics.mask_metrics import mask_metrics, mask_score_infos
from slotbench.metrics.means import Mean
from slotbench.metrics.scores import Scores
from slotbench.metrics.segmentation import FGARI, Scope, SegmentationMetric
from slotbench.metrics.segmentation_baselines import (
    FEATURE_SEGMENTATIONS,
    feature_segmentations,
    segmentation_names,
    simple_segmentations,
)
from slotbench.metrics.slot_occupancy import SlotOccupancy
from slotbench.metrics.tracking import Tracking, track

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
            for name, metric in mask_metrics().items():
                if metric.logged:
                    self.metrics[f"{name}/{scope}"] = metric(scope)

    def by_name(self) -> dict[str, SegmentationMetric]:
        return dict(self.metrics.items())  # type: ignore[arg-type]

    def update(self, labels: Labels, true: Integer[Tensor, "batch time *views height width"]) -> Tables:
        tables = frame_tables(labels, true, counted(true))
        for metric in self.by_name().values():
            metric.update_tables(tables)
        return tables


class DiscoveryScores(Scores):
    """Scores of slots against the true instances, and of reconstructions against the frames.

    Names: `<metric>/<scope>/<masks>`, where metric is a registered one of masks, scope is `video` or `frame`, and
    masks is their source: `decoder`, `attention`, or `mask_decoder`;
    `fg_ari_several/<scope>/<masks>`, the mean over samples with at least two visible objects; `largest_slot`,
    `live_slots` and `collapsed` with `/<masks>`; of tests the scores of tracking with `/<masks>` (`Tracking.scores`);
    `<metric>/frame` of the registered metrics of frames and, given a network, `lpips/frame`; for baselines
    `baseline/<metric>/<scope>/<name>`.

    Args:
        baseline_clips: the first clips of the set, on which baselines are scored.
        terms: names of the terms of the loss that are logged too.

    Attributes:
        tracks: whether tracking is scored too, which takes longer.
        scopes: what a sample of the masks is.
    """

    scopes: ClassVar[tuple[Scope, ...]] = ("video", "frame")

    def __init__(self, baseline_clips: int = 0, terms: Sequence[str] = ()) -> None:
        super().__init__()
        self.baseline_clips = baseline_clips
        self.tracks = False
        self._clips_done = 0
        self._tracking: dict[str, list[ClipScores]] = {}
        self.segmentations = nn.ModuleDict()
        self.occupancies = nn.ModuleDict()
        self.baselines = nn.ModuleDict()
        self.frames = nn.ModuleDict()
        self.terms = nn.ModuleDict({name: Mean() for name in terms})

    @property
    def declared(self) -> list[MetricInfo]:
        """Scores of masks and of tracking, occupancy, the quality of frames, and the terms of the loss."""
        terms = [MetricInfo(name, name.replace("_", " "), False) for name in self.terms]
        return [*mask_score_infos(), *OCCUPANCY, *frame_infos(), *terms]

    def update_masks(
        self,
        masks: str,
        labels: Labels,
        num_slots: int,
        true: Integer[Tensor, "batch time *views height width"] | None,
    ) -> None:
        """Adds segmentations of clips; without the true instances only how full the slots are.

        Args:
            masks: their source, "decoder", "attention" or "mask_decoder".
            labels: the winning slot of every pixel, at the size of the truth.
            num_slots: slots.
            true: ids of instances, 0 = background.
        """
        occupancy = _made(self.occupancies, masks, SlotOccupancy, labels)
        occupancy.update(labels, num_slots)
        if true is not None:
            tables = _made(self.segmentations, masks, _Segmentation, labels, self.scopes).update(labels, true)
            if self.tracks:
                for cameras in tables.transpose(1, 2).cpu().numpy():
                    counts = sum(map(track, cameras), Tracking())
                    self._tracking.setdefault(masks, []).append(ClipScores(counts.scores(), tracking=counts))

    def update_baseline(
        self, name: str, labels: Labels, true: Integer[Tensor, "batch time *views height width"]
    ) -> None:
        """Adds segmentations of clips by a baseline, by its name."""
        _made(self.baselines, name, _Segmentation, labels, self.scopes).update(labels, true)

    def update_baselines(
        self,
        batch: VideoBatch,
        num_slots: int,
        features: Float[Tensor, "batch time *views dim rows cols"] | None = None,
    ) -> None:
        """Adds the baselines of a batch with true instances: of its clips that are among the first of the set.

        Those of features are added where a model reads `features` in the place of frames.
        """
        if not self.wants_references or not self.baseline_clips:
            return
        index = batch.index
        if index is None:  # clips that come from no loader of ours
            index = self._clips_done + torch.arange(len(batch))
        if self._clips_done == 0:
            # takes part in the baselines even if all of their clips are other processes'
            for name in (*segmentation_names(num_slots), *(() if features is None else FEATURE_SEGMENTATIONS)):
                self._expect_baseline(name, batch.pixels)
        self._clips_done += len(batch)
        among = index.to(batch.frames.device) < self.baseline_clips
        if among.any():
            first = batch.map(lambda value: value[among])
            frames, true = first.pixels.float(), first.require("masks")
            # cameras are steps to them: rectangles are the same in each, and clusters are of all pixels of a clip
            found = simple_segmentations(frames.flatten(1, -4), num_slots)
            if features is not None:
                found |= feature_segmentations(
                    features[among].flatten(1, -4), num_slots, (frames.shape[-2], frames.shape[-1])
                )
            for name, labels in found.items():
                self.update_baseline(name, labels.reshape(true.shape), true)

    def update_frames(
        self,
        predicted: Float[Tensor, "batch time channels height width"],
        true: Float[Tensor, "batch time channels height width"],
    ) -> None:
        """Adds reconstructions; both in [0, 1], one value per frame and then the mean over frames."""
        for name, score in frame_metrics(true.shape[-2], true.shape[-1]).items():
            self._add_frames(name, score(predicted, true))
        if self.lpips is not None:
            self._add_frames("lpips", self.lpips(predicted, true))

    def update_terms(self, terms: Mapping[str, Tensor], clips: int) -> None:
        """Adds the terms of the loss of a batch of so many clips."""
        for name, value in terms.items():
            self.terms[name].update(value, clips)  # type: ignore[operator]

    def compute(self) -> dict[str, float]:
        """Every score that there is, by name; what has no sample is left out."""
        values: dict[str, float] = {}
        for masks, segmentation in self.segmentations.items():
            for name, metric in segmentation.by_name().items():  # type: ignore[operator, union-attr]
                values[f"{name}/{masks}"] = float(metric.compute())
                if isinstance(metric, FGARI):
                    values[several_of(f"{name}/{masks}")] = metric.mean_of_several()
                    self.notes[several_of(name)] = _left_out(metric)
        for masks, occupancy in self.occupancies.items():
            values |= {f"{name}/{masks}": float(value) for name, value in occupancy.compute().items()}  # type: ignore[operator]
        for baseline, segmentation in self.baselines.items():
            for name, metric in segmentation.by_name().items():  # type: ignore[operator, union-attr]
                reference = Reference("baseline", name, baseline)
                values[reference] = float(metric.compute())
                if isinstance(metric, FGARI):
                    values[several_of(reference)] = metric.mean_of_several()
        values |= {f"{name}/frame": float(metric.compute()) for name, metric in self.frames.items()}  # type: ignore[operator]
        values |= {name: float(term.compute()) for name, term in self.terms.items()}  # type: ignore[operator]
        for masks, clips in _of_all_processes(self._tracking).items() if self.tracks else ():
            values |= {f"{name}/{masks}": one.mean for name, one in summaries(clips).items() if one.beyond is None}
        return {name: value for name, value in values.items() if value == value}  # nan: no sample

    def reset(self) -> None:
        """Forgets every clip."""
        self._tracking = {}
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


def several_of(name: str) -> str:
    """The name of FG-ARI over samples with at least two visible objects, beside that over all."""
    if isinstance(name, Reference):
        return Reference(name.kind, several_of(name.of), name.by)
    return name.replace("fg_ari/", "fg_ari_several/", 1)


def _left_out(metric: FGARI) -> str:
    counts = metric.counts()
    samples, few = counts["samples"], counts["samples"] - counts["several_objects"]
    return f"without {few:,} of {samples:,} {metric.scope}s, which show fewer than 2 objects" if few else ""


def _made(table: nn.ModuleDict, name: str, kind: type[_Module], like: Tensor, *arguments: Any) -> _Module:
    """The entry of this name, made on first use: which masks there are is known from the model's output alone."""
    if name not in table:
        table[name] = kind(*arguments).to(like.device)
    entry = table[name]
    assert isinstance(entry, kind)
    return entry


def _of_all_processes(own: dict[str, list[ClipScores]]) -> dict[str, list[ClipScores]]:
    """Clips by the source of their masks; every process must take part."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return own
    parts: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(parts, own)
    sources = dict.fromkeys(source for part in parts for source in part)
    return {source: [clip for part in parts for clip in part.get(source, ())] for source in sources}
