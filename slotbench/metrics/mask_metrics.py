"""The metrics of object discovery by name: what `SlotAutoencoding` logs, `slotbench score` and `--lengths` print.

To add one, write a `SegmentationMetric` in a file of its own and list it here (or, from another package, call
`add_mask_metric` on import): logging, reports, tables, `score` and `--lengths` follow from the entry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from slotbench.metric_info import MetricInfo
from slotbench.metrics.scores import Score
from slotbench.metrics.segmentation import (
    ARI,
    FGARI,
    MatchedIoU,
    MatchedIoUOfPairs,
    MeanBestOverlap,
    Scope,
    SegmentationMetric,
)

__all__ = [
    "MASK_METRICS",
    "TRACKING",
    "MaskMetric",
    "add_mask_metric",
    "mask_headline",
    "mask_headlines",
    "mask_score_infos",
]


@dataclass(frozen=True)
class MaskMetric:
    """A metric of masks per frame and per video.

    Attributes:
        name: of the score, such as "fg_ari".
        label: what it is, in a few words.
        make: makes the metric for a scope; the direction is the class's `higher_is_better`.
        headline: its label as a headline of the decoder's masks per video; None for no headline.
        rank: headlines stand in this order.
        logged: whether runs log it; otherwise `slotbench score` and `--lengths` alone have it.
    """

    name: str
    label: str
    make: Callable[[Scope], SegmentationMetric]
    headline: str | None = None
    rank: int = 9
    logged: bool = True

    @property
    def info(self) -> MetricInfo:
        """The declaration of its scores."""
        return MetricInfo(self.name, self.label, self.make("video").higher_is_better)


MASK_METRICS: dict[str, MaskMetric] = {
    one.name: one
    for one in (
        MaskMetric("fg_ari", "FG-ARI", FGARI, "objects told apart: FG-ARI per video", rank=0),
        MaskMetric("ari", "ARI", ARI, "with the background: ARI per video", rank=2),
        MaskMetric("miou", "mIoU", MatchedIoU, "masks that fit: mIoU per video", rank=1),
        MaskMetric("miou_with_background", "mIoU with background", partial(MatchedIoU, ignore_background=False)),
        MaskMetric("miou_of_pairs", "mIoU of all pairs", MatchedIoUOfPairs, logged=False),
        MaskMetric("mbo", "mBO", MeanBestOverlap),
    )
}
"""The metrics of masks, by name."""

TRACKING = (
    MetricInfo("mota", "MOTA", True),
    MetricInfo("motp", "MOTP (mean IoU)", True),
    MetricInfo("hota", "HOTA", True),
    MetricInfo("deta", "DetA, detection in HOTA", True),
    MetricInfo("assa", "AssA, association in HOTA", True),
    MetricInfo("misses", "misses per object", False),
    MetricInfo("false_positives", "false positives per object", False),
    MetricInfo("switches_per_100_frames", "switches per 100 frames", False),
    MetricInfo("switches_per_object", "switches per tracked object", False),
    MetricInfo("half_life", "half-life, frames", True, unit="frames"),
    MetricInfo("found_again", "found again after occlusion", True),
)
"""The scores of tracking (`slotbench.metrics.tracking`), in the order of reports."""


def add_mask_metric(metric: MaskMetric) -> None:
    """Adds a metric of masks from outside of slotbench; one of the same name is replaced.

    Args:
        metric: with a name that consists of letters, digits and underscores.

    Raises:
        ValueError: the name does not.
    """
    if not metric.name.isidentifier():
        raise ValueError(f"a metric of masks is named {metric.name!r}; expected letters, digits and underscores")
    MASK_METRICS[metric.name] = metric


def mask_headlines(*names: str) -> tuple[Score, ...]:
    """The headlines of the decoder's masks, per video.

    Args:
        *names: of metrics; all that have a headline if absent.
    """
    metrics = [MASK_METRICS[name] for name in names] or sorted(MASK_METRICS.values(), key=lambda one: one.rank)
    return tuple(mask_headline(one.name, "decoder", one.headline) for one in metrics if one.headline is not None)


def mask_headline(name: str, masks: str, label: str, scope: str = "video") -> Score:
    """A metric of one kind of masks as a headline, beside the baselines of all kinds.

    Args:
        name: of the metric.
        masks: whose, such as "attention".
        label: what it is, in a few words.
        scope: what is pooled.
    """
    higher = bool(MASK_METRICS[name].info.higher_is_better)
    return Score(f"{name}/{scope}/{masks}", label, higher, references=f"{name}/{scope}", of_masks=True)


def mask_score_infos() -> list[MetricInfo]:
    """The declarations of all scores of masks, in the order of reports."""
    several = MetricInfo("fg_ari_several", "FG-ARI, 2 objects or more", True)
    infos = [metric.info for metric in MASK_METRICS.values()]
    return [infos[0], several, *infos[1:], *TRACKING]
