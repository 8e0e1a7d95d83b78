"""Every score of a clip, from its tables of counts: segmentation in every scope, and tracking; means over clips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import torch
from jaxtyping import Float, Integer
from scipy.special import stdtrit
from torch import Tensor

from slotbench.metrics.mask_metrics import mask_metrics
from slotbench.metrics.mask_rules import Rules
from slotbench.metrics.segmentation import SegmentationMetric
from slotbench.metrics.tracking import Tracking, TrackingRule, track

__all__ = ["ClipScores", "Summary", "score_clip", "score_clips", "summaries"]

Tables = Integer[Tensor, "clips samples frames true predicted"]
_Values = tuple[Float[Tensor, "clips samples"], Integer[Tensor, "clips samples"]]


@dataclass
class ClipScores:
    """The scores of one clip.

    Attributes:
        values: by the score's name, its mean over the clip's samples, and how many samples (or, of J and in tracking,
            objects, matches, frames, occlusions; of HOTA the one clip) it is the mean of. One without any is absent.
        counts: samples that are special, by what they are and the scope: "frames without objects".
        tracking: what the scores of tracking are computed from.
    """

    values: dict[str, tuple[float, int]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    tracking: Tracking = field(default_factory=Tracking)


@dataclass(frozen=True)
class Summary:
    """One score over all clips.

    Attributes:
        mean: over all samples; in tracking the ratio of the counts of all clips.
        low: lower end of Student's 95 % interval of the mean, the clips being what varies; None for a single clip.
        high: its upper end.
        values: of each clip; None where it has no sample.
        weights: samples of each clip.
        beyond: of the half-life, frames that it is longer than, where clips are too short to show it; `mean` is then
            infinite.
    """

    mean: float
    low: float | None
    high: float | None
    values: Sequence[float | None] = ()
    weights: Sequence[int] = ()
    beyond: int | None = None


def score_clip(
    tables: Integer[Tensor, "time *views true predicted"], true_ids: Integer[np.ndarray, " rows"], rules: Rules
) -> ClipScores:
    """All scores of a clip.

    Names are `<metric>/<scope>`: of the registered metrics of masks and `fg_ari_several` (two objects or more), per
    `video` (the whole clip, or one of its windows) and per `frame`; and `mota`, `motp`, `hota`, `deta` and `assa` (its
    detection and association), `misses` and `false_positives` (per true object), `switches_per_100_frames`,
    `switches_per_object` and `found_again`.

    Where several cameras see the clip, `video` and `frame` are of one camera each, and there are two scopes more, per
    `step` and per `scene` (all cameras at one time, or at all times of the clip or of a window). Objects are tracked in
    each camera by itself, and the counts of all cameras are added.
    """
    return score_clips(tables[None], true_ids, rules)[0]


def score_clips(
    tables: Integer[Tensor, "clips time *views true predicted"], true_ids: Integer[np.ndarray, " rows"], rules: Rules
) -> list[ClipScores]:
    """The same for clips of one length at once, which costs less than one after the other."""
    tables = tables.cpu()
    clips = [ClipScores() for _ in tables]
    window = rules.window or tables.shape[1]
    views = tables if tables.ndim == 5 else tables[:, :, None]
    pieces = views.unflatten(1, (-1, window)).transpose(2, 3).flatten(1, 2)  # of one camera each
    samples = {"video": pieces, "frame": views.flatten(1, 2)[:, :, None]}
    if tables.ndim == 5:
        samples |= {"step": views, "scene": views.unflatten(1, (-1, window)).flatten(2, 3)}
    for scope, of_scope in samples.items():
        _add_segmentation(clips, scope, of_scope, true_ids, rules)
    rule = TrackingRule(rules.match_iou, rules.min_pixels, rules.background_iou)
    for found, own in zip(clips, pieces.numpy(), strict=True):
        for piece in own:
            found.tracking += track(piece, rule)
        found.values |= found.tracking.scores()
    return clips


def _add_segmentation(
    clips: list[ClipScores], scope: str, tables: Tables, true_ids: Integer[np.ndarray, " rows"], rules: Rules
) -> None:
    points = tables.sum((2, -1))
    seen, present = points.sum(-1) > 0, points[..., 1:] > 0
    objects = present.sum(-1)
    scores: dict[str, _Values] = {}
    for name, metric in mask_metrics().items():
        value, weight = _made(metric).score_frames(tables.flatten(0, 1))
        scores[name] = value.unflatten(0, tables.shape[:2]), weight.unflatten(0, tables.shape[:2])
        if name == "fg_ari":
            # the whole table of a sample without objects is its background
            scores[name] = scores[name][0], seen & ((objects > 0) | (rules.empty == "one"))
            scores["fg_ari_several"] = scores[name][0], objects > 1
    if rules.absent == "zero":
        highest = torch.from_numpy(np.maximum(true_ids[1:], np.arange(1, len(true_ids)))) * present
        # an id that is there is never above the highest one, so that this only adds zeros to the mean
        among = objects / highest.amax(-1).clamp(min=1) if len(true_ids) > 1 else torch.ones(objects.shape)
        scores |= {name: (scores[name][0] * among, scores[name][1]) for name in ("miou", "mbo")}
    for name, (value, weight) in scores.items():
        samples = weight.sum(-1).tolist()
        means = (torch.where(weight > 0, value * weight, 0.0).sum(-1) / weight.sum(-1).clamp(min=1)).tolist()
        for found, mean, count in zip(clips, means, samples, strict=True):
            if count:
                found.values[f"{name}/{scope}"] = mean, count
    special = {
        "": torch.ones_like(seen),
        " without objects": seen & (objects == 0),
        " with one object": objects == 1,
        " without a valid pixel": ~seen,
    }
    for what, there in special.items():
        for found, count in zip(clips, there.sum(-1).tolist(), strict=True):
            found.counts[f"{scope}s{what}"] = count


@cache
def _made(metric: type[SegmentationMetric]) -> SegmentationMetric:
    # `score` depends on the table alone, and making a metric takes longer
    return metric("frame")


def summaries(clips: Sequence[ClipScores]) -> dict[str, Summary]:
    """Every score of a set of clips by name, and "half_life", which has no value per clip."""
    found = {}
    for name in dict.fromkeys(name for clip in clips for name in clip.values):
        pairs = [clip.values.get(name, (None, 0)) for clip in clips]
        found[name] = _summary([value for value, _ in pairs], [weight for _, weight in pairs])
    tracking = sum((clip.tracking for clip in clips), Tracking())
    if (half_life := tracking.half_life) is not None:
        longest = max((*tracking.ended, *tracking.held))
        found["half_life"] = Summary(half_life, None, None, beyond=longest if np.isinf(half_life) else None)
    return found


def _summary(values: Sequence[float | None], weights: Sequence[int]) -> Summary:
    """Mean of all samples, and its interval from how much the clips differ (a ratio of two means, linearised)."""
    known = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None]
    value, weight = np.array(known, dtype=np.float64).T
    mean = float((value * weight).sum() / weight.sum())
    low = high = None
    if len(known) > 1:
        away = weight * (value - mean)
        error = np.sqrt(len(known) / (len(known) - 1) * np.square(away).sum()) / weight.sum()
        half = float(stdtrit(len(known) - 1, 0.975)) * float(error)
        low, high = mean - half, mean + half
    return Summary(mean, low, high, values, weights)
