"""The registered metrics of masks as headlines, and what all scores of masks are."""

from __future__ import annotations

from slotbench.metric_info import MetricInfo
from slotbench.metrics.registered import registered
from slotbench.metrics.scores import Score
from slotbench.metrics.segmentation import SegmentationMetric
from slotbench.metrics.tracking import TRACKING

__all__ = ["mask_headline", "mask_headlines", "mask_metrics", "mask_score_infos"]


def mask_metrics() -> dict[str, type[SegmentationMetric]]:
    """The registered metrics of masks by the names of their scores, in the order of reports."""
    return registered(SegmentationMetric)  # type: ignore[type-abstract]


def mask_headlines(*names: str) -> tuple[Score, ...]:
    """The headlines of the decoder's masks, per video."""
    known = mask_metrics()
    labels = {name: known[name].headline for name in names or known}
    return tuple(mask_headline(name, "decoder", label) for name, label in labels.items() if label)


def mask_headline(name: str, masks: str, label: str, scope: str = "video") -> Score:
    """A metric of one kind of masks as a headline, beside the baselines of all kinds.

    Args:
        name: of the metric.
        masks: whose, such as "attention".
        label: what it is, in a few words.
        scope: what is pooled.
    """
    higher = bool({info.name: info for info in mask_score_infos()}[name].higher_is_better)
    return Score(f"{name}/{scope}/{masks}", label, higher, references=f"{name}/{scope}", of_masks=True)


def mask_score_infos() -> list[MetricInfo]:
    """What all scores of masks are, in the order of reports."""
    several = MetricInfo("fg_ari_several", "FG-ARI, 2 objects or more", True)
    first, *others = [metric.info for metric in mask_metrics().values()]
    return [first, several, *others, *TRACKING]
