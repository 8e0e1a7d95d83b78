"""Fits heads to the slots of some clips and scores them on others: what do frozen slots know about their objects?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from jaxtyping import Float, Integer
from torch import Tensor

from slotbench.evaluation.probe_clips import Clips
from slotbench.evaluation.probe_factors import POSITIONS, Factor, ProbeError
from slotbench.evaluation.probe_heads import Head, fit_linear, fit_mlp
from slotbench.evaluation.probe_scores import accuracy, coefficient_of_determination, mean_baseline, prior_baseline
from slotbench.evaluation.slot_matching import MatchScope, match_by_masks, match_by_position, match_with_probe
from slotbench.metrics.segmentation import pairwise_iou

__all__ = ["FactorScore", "HeadName", "MatchName", "ProbeReport", "ProbeSettings", "probe"]

MatchName = Literal["masks", "position"]
HeadName = Literal["linear", "mlp"]


@dataclass(frozen=True)
class ProbeSettings:
    """How slots are matched to objects, and what is fitted to them.

    Attributes:
        match: "masks" or "position".
        scope: whether an object keeps its slot through a "video", or may change it from "frame" to frame.
        heads: which heads to fit.
        restarts: random starts of the matching by position.
        seed: of the random starts and of the MLP.
    """

    match: MatchName = "masks"
    scope: MatchScope = "video"
    heads: tuple[HeadName, ...] = ("linear", "mlp")
    restarts: int = 5
    seed: int = 0


@dataclass(frozen=True)
class FactorScore:
    """What the heads read of one factor on clips that they were not fitted to.

    Attributes:
        factor: which.
        metric: "accuracy" or "r2".
        fitted: rows that the heads were fitted to: visible objects that have a slot, in every frame.
        scored: rows that they are scored on.
        heads: score of each head.
        baselines: score of each way to answer that knows nothing of the slot's content.
    """

    factor: Factor
    metric: str
    fitted: int
    scored: int
    heads: dict[str, float]
    baselines: dict[str, float]


@dataclass(frozen=True)
class ProbeReport:
    """All factors, how well slots and objects were matched on both sets, and the factors that say nothing.

    Attributes:
        scores: one per factor, in the order of the factors.
        matching: of the "fit" and the "test" clips: counts, and how good the match is.
        left_out: name of a factor -> why it was not probed.
    """

    scores: list[FactorScore]
    matching: dict[str, dict[str, Any]]
    left_out: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Rows:
    """One row per clip, frame and object that is visible and has a slot."""

    slots: Float[Tensor, "rows dim"]
    shapes: Float[Tensor, "rows 3"] | None
    clip: Integer[Tensor, " rows"]
    labels: dict[str, Tensor]


def probe(
    fit: Clips,
    test: Clips,
    factors: Sequence[Factor],
    settings: ProbeSettings,
    report: Callable[[str], None] = lambda what: None,
) -> ProbeReport:
    """Matches slots to objects on both sets, fits the heads on the first and scores them on the second.

    With matching by position the clips that are scored are matched by the probe that was fitted to the others. Their
    positions still took part in the choice of slots, which alone lets slots that know nothing score above 0: the
    baseline "other clips" is the same procedure with the slots of other clips.

    Args:
        fit: clips to fit to.
        test: other clips, of the same data and task.
        factors: what to read.
        settings: how.
        report: is told what is being done.

    Raises:
        ProbeError: there are no positions to match by, no object has a slot, or no factor varies.
    """
    report("matching slots to objects")
    matched = _match(fit, test, settings)
    rows = [_gather(clips, maps) for clips, maps in zip((fit, test), matched.maps, strict=True)]
    for name, part in zip(("fit to", "score on"), rows, strict=True):
        if not len(part.slots):
            raise ProbeError(f"none of the clips to {name} has a visible object with a slot: take more clips")
    others = None
    if settings.match == "position" and len(fit) > 1 and len(test) > 1:
        report("the same with slots of other clips")
        fit_other, test_other = (clips.with_slots_of_other_clips() for clips in (fit, test))
        maps = _match(fit_other, test_other, settings).maps
        others = [_gather(clips, found) for clips, found in zip((fit_other, test_other), maps, strict=True)]
    scores, left_out = [], {}
    for factor in factors:
        report(factor.name)
        found = _score(factor, rows, others, settings)
        if isinstance(found, str):
            left_out[factor.name] = found
        else:
            scores.append(found)
    if not scores:
        reasons = "; ".join(f"{name} {reason}" for name, reason in left_out.items())
        raise ProbeError(f"there is nothing to probe: {reasons}")
    matching = {
        name: _counts(clips, maps) | quality
        for name, clips, maps, quality in zip(("fit", "test"), (fit, test), matched.maps, matched.quality, strict=True)
    }
    return ProbeReport(scores, matching, left_out)


@dataclass(frozen=True)
class _Matched:
    maps: tuple[Tensor, Tensor]
    quality: tuple[dict[str, Any], dict[str, Any]]


def _match(fit: Clips, test: Clips, settings: ProbeSettings) -> _Matched:
    if settings.match == "masks":
        if fit.tables is None or test.tables is None:
            raise ProbeError("the clips were collected without masks: collect them with masks, or match by position")
        maps = match_by_masks(fit.tables, settings.scope), match_by_masks(test.tables, settings.scope)
        return _Matched(maps, (_overlap(fit, maps[0]), _overlap(test, maps[1])))
    name = next((name for name in POSITIONS if name in fit.labels), None)
    if name is None:
        raise ProbeError(f"this data has none of {' and '.join(POSITIONS)} to match by: match by masks")
    where = [clips.labels[name].float().expand(-1, clips.slots.shape[1], -1, -1) for clips in (fit, test)]
    found = match_by_position(fit.slots, where[0], fit.visible, settings.scope, settings.restarts, settings.seed)
    on_test = match_with_probe(test.slots, where[1], test.visible, found.probe, settings.scope)
    return _Matched((found.maps, on_test), ({"matched_by": name, "errors": found.errors}, {"matched_by": name}))


def _gather(clips: Clips, maps: Tensor) -> _Rows:
    chosen = clips.visible & (maps >= 0)
    clip, step, _ = chosen.nonzero(as_tuple=True)
    slot = maps[chosen]
    steps = clips.slots.shape[1]
    labels = {name: value.expand(-1, steps, -1, -1)[chosen] for name, value in clips.labels.items()}
    shapes = None if clips.shapes is None else clips.shapes[clip, step, slot]
    return _Rows(clips.slots[clip, step, slot], shapes, clip, labels)


def _score(factor: Factor, rows: list[_Rows], others: list[_Rows] | None, settings: ProbeSettings) -> FactorScore | str:
    """The scores of a factor, or why it has none."""
    name = factor.name
    if factor.kind == "categorical":
        if any((part.labels[name] != part.labels[name].round()).any() for part in rows):
            return "has values that are not whole numbers, as classes are"
        rows = _with_a_class(name, rows)
        classes = len(rows[0].labels[name].unique())
        if classes < 2:
            return "has a single class" if classes else "has no class"
        if not len(rows[1].slots):
            return "has no class in the clips to score on"
    fit, test = rows
    y, true = fit.labels[name], test.labels[name]
    if factor.kind == "continuous" and math.isnan(mean_baseline(y, true)):
        return "does not vary"
    heads: dict[str, float] = {}
    for head in settings.heads:
        heads[head] = _value(factor, _fitted(factor, head, fit.slots, fit, settings.seed)(test.slots), true)
    baselines = {"prior": prior_baseline(y, true)} if factor.kind == "categorical" else {"mean": mean_baseline(y, true)}
    if fit.shapes is not None and test.shapes is not None:
        by_shape = _fitted(factor, "linear", fit.shapes, fit, settings.seed)
        baselines["mask"] = _value(factor, by_shape(test.shapes), true)
    if others is not None:
        if factor.kind == "categorical":
            others = _with_a_class(name, others)
        by_other = _fitted(factor, "linear", others[0].slots, others[0], settings.seed)
        baselines["other clips"] = _value(factor, by_other(others[1].slots), others[1].labels[name])
    metric = "accuracy" if factor.kind == "categorical" else "r2"
    return FactorScore(factor, metric, len(y), len(true), heads, baselines)


def _with_a_class(name: str, rows: list[_Rows]) -> list[_Rows]:
    """The rows that have a class (0 or above), which is all that is left of their labels."""
    known = [_only(part, part.labels[name][:, 0] >= 0) for part in rows]
    return [replace(part, labels={name: part.labels[name][:, 0].long()}) for part in known]


def _only(rows: _Rows, keep: Tensor) -> _Rows:
    shapes = None if rows.shapes is None else rows.shapes[keep]
    return _Rows(rows.slots[keep], shapes, rows.clip[keep], {name: value[keep] for name, value in rows.labels.items()})


def _fitted(factor: Factor, head: HeadName, x: Tensor, rows: _Rows, seed: int) -> Head:
    y = rows.labels[factor.name]
    return fit_linear(x, y, factor.kind) if head == "linear" else fit_mlp(x, y, rows.clip, factor.kind, seed=seed)


def _value(factor: Factor, predicted: Tensor, true: Tensor) -> float:
    score = accuracy if factor.kind == "categorical" else coefficient_of_determination
    return score(predicted, true)


def _counts(clips: Clips, maps: Tensor) -> dict[str, Any]:
    somewhere = clips.visible.any(1)
    return {
        "clips": len(clips),
        "frames": clips.slots.shape[1],
        "slots": clips.slots.shape[2],
        "objects": int(somewhere.sum()),
        "objects_without_slot": int((somewhere & ~((maps >= 0) & clips.visible).any(1)).sum()),
        "rows": int((clips.visible & (maps >= 0)).sum()),
        "rows_without_slot": int((clips.visible & (maps < 0)).sum()),
    }


def _overlap(clips: Clips, maps: Tensor) -> dict[str, Any]:
    """Mean over frames and visible objects of the IoU with the slot that the object has."""
    assert clips.tables is not None
    iou = pairwise_iou(clips.tables)[..., 1:, :]
    chosen = clips.visible & (maps >= 0)
    at_slot = iou.gather(-1, maps.clamp(min=0)[..., None])[..., 0]
    return {"matched_by": "masks", "frame_iou": float(at_slot[chosen].mean())}
