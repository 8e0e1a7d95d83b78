"""Probing: heads are fitted to the frozen slots of some clips and scored on others, which share no clip with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from slotbench.data.posed_data import PosedData
from slotbench.evaluation.batches import batches_of
from slotbench.evaluation.probe_clips import Clips, MaskSource, collect
from slotbench.evaluation.probe_factors import POSITIONS, Factor, ProbeError, choose_factors
from slotbench.evaluation.probe_heads import Head, accuracy, coefficient_of_determination, fit_linear, fit_mlp
from slotbench.evaluation.slot_matching import MatchScope, match_by_masks, match_by_position, match_with_probe
from slotbench.metrics.segmentation import pairwise_iou

__all__ = ["ClipChoice", "FactorScore", "HeadName", "ProbeReport", "ProbeSettings", "as_record", "probe", "probe_task"]

MatchName = Literal["masks", "position"]
HeadName = Literal["linear", "mlp"]
Split = Literal["train", "val", "test"]


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
class ClipChoice:
    """Clips to probe, and what to keep of them.

    Attributes:
        fit_split: the split whose clips the heads are fitted to, `fit_clips` of them at most.
        split: the split whose clips are scored, `clips` of them at most.
        masks: which masks say what a slot covers.
        min_pixels: an object with fewer visible pixels in a frame is left out of it.
        categorical: entries of the data's `objects` to read as classes, beside the known ones.
        continuous: entries to read as numbers.
        same_length: whether the clips to fit to are made as long as those that are scored: slots late in a clip are not
            those of its beginning.
        same_views: the same of the number of cameras that are shown.
        rows: the objects that are looked at, by their rows in the annotations; all if there are none.
    """

    fit_split: Split = "train"
    fit_clips: int = 500
    split: Split = "test"
    clips: int = 500
    masks: MaskSource = "decoder"
    min_pixels: int = 1
    categorical: tuple[str, ...] = ()
    continuous: tuple[str, ...] = ()
    same_length: bool = True
    same_views: bool = True
    rows: tuple[int, ...] = ()


@dataclass(frozen=True)
class FactorScore:
    """What the heads read of one factor on clips that they were not fitted to.

    Fitted and scored are counts of rows: visible objects with a slot, in every frame. Baselines answer without the
    slot's content.
    """

    factor: Factor
    metric: str
    fitted: int
    scored: int
    heads: dict[str, float]
    baselines: dict[str, float]


@dataclass(frozen=True)
class ProbeReport:
    """Scores of the factors, how well slots and objects match on both sets, and why other factors have no score."""

    scores: list[FactorScore]
    matching: dict[str, dict[str, Any]]
    left_out: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Rows:
    """One row per clip, frame and object that is visible and has a slot."""

    slots: Float[Tensor, "rows dim"]
    shapes: Float[Tensor, "rows numbers"] | None
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
    """
    report("matching slots to objects")
    maps, quality = _match(fit, test, settings)
    rows = [_gather(fit, maps[0]), _gather(test, maps[1])]
    for name, part in zip(("fit to", "score on"), rows, strict=True):
        if not len(part.slots):
            raise ProbeError(f"none of the clips to {name} has a visible object with a slot: take more clips")
    others = None
    if settings.match == "position" and len(fit) > 1 and len(test) > 1:
        report("the same with slots of other clips")
        fit_other, test_other = (clips.with_slots_of_other_clips() for clips in (fit, test))
        other_maps, _ = _match(fit_other, test_other, settings)
        others = [_gather(fit_other, other_maps[0]), _gather(test_other, other_maps[1])]
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
    matching = {"fit": _counts(fit, maps[0]) | quality[0], "test": _counts(test, maps[1]) | quality[1]}
    return ProbeReport(scores, matching, left_out)


def probe_task(
    task: nn.Module,
    data: Any,
    choice: ClipChoice,
    settings: ProbeSettings,
    say: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> ProbeReport:
    """Collects clips of a `SlotDataModule` and probes them; its `num_frames` and `num_shown` become those to score.

    `say` is called with the step, the number done, and of all (0 where it is unknown).
    """
    device = next((weight.device for weight in task.parameters()), torch.device("cpu"))

    def clips_of(split: Split, num_clips: int) -> Clips:
        return collect(
            task,
            batches_of(data, split, device),
            num_clips,
            # a decoder without masks can still be matched by position
            masks=choice.masks if settings.match == "masks" else None,
            min_pixels=choice.min_pixels,
            names=[*choice.categorical, *choice.continuous],
            rows=choice.rows,
            report=lambda done: say(f"slots of {split} clips", done, num_clips),
        )

    test = clips_of(choice.split, choice.clips)
    if choice.same_length and isinstance(getattr(data, "num_frames", None), int):
        data.num_frames = test.slots.shape[1]
    if choice.same_views and isinstance(data, PosedData):
        data.num_shown = data.eval_shown
    fit = clips_of(choice.fit_split, choice.fit_clips)
    if both := len(set(fit.fingerprints) & set(test.fingerprints)):
        raise ProbeError(
            f"{both} of the {len(test)} {choice.split} clips are also among the {choice.fit_split} clips that the "
            "heads are fitted to (a set without a test split may test on its validation split): choose another "
            "--fit-split"
        )
    factors = choose_factors(fit.labels, choice.categorical, choice.continuous)
    return probe(fit, test, factors, settings, lambda what: say(f"probing: {what}", 0, 0))


def as_record(report: ProbeReport) -> dict[str, Any]:
    """The report as plain values."""
    factors = {
        score.factor.name: {
            "kind": score.factor.kind,
            "metric": score.metric,
            **score.heads,
            "baselines": score.baselines,
            "rows_fitted": score.fitted,
            "rows_scored": score.scored,
        }
        for score in report.scores
    }
    return {"matching": report.matching, "factors": factors, "left_out": report.left_out}


def _match(fit: Clips, test: Clips, settings: ProbeSettings) -> tuple[list[Tensor], list[dict[str, Any]]]:
    """The slots of the objects of both sets, and how good each match is."""
    if settings.match == "masks":
        if fit.tables is None or test.tables is None:
            raise ProbeError("the clips were collected without masks: collect them with masks, or match by position")
        maps = [match_by_masks(fit.tables, settings.scope), match_by_masks(test.tables, settings.scope)]
        return maps, [_overlap(fit, maps[0]), _overlap(test, maps[1])]
    name = next((name for name in POSITIONS if name in fit.labels), None)
    if name is None:
        raise ProbeError(f"this data has none of {' and '.join(POSITIONS)} to match by: match by masks")
    where = [clips.labels[name].float().expand(-1, clips.slots.shape[1], -1, -1) for clips in (fit, test)]
    found = match_by_position(fit.slots, where[0], fit.visible, settings.scope, settings.restarts, settings.seed)
    on_test = match_with_probe(test.slots, where[1], test.visible, found.probe, settings.scope)
    return [found.maps, on_test], [{"matched_by": name, "errors": found.errors}, {"matched_by": name}]


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
    # the most frequent class among those fitted to, or their mean
    guess = y.mode().values if factor.kind == "categorical" else y.double().mean(0)
    guessed = _value(factor, guess.expand_as(true), true)
    if factor.kind == "continuous" and math.isnan(guessed):
        return "does not vary"
    fitted = {head: _fitted(factor, head, fit.slots, fit, settings.seed) for head in settings.heads}
    heads: dict[str, float] = {name: _value(factor, head(test.slots), true) for name, head in fitted.items()}
    baselines = {"prior" if factor.kind == "categorical" else "mean": guessed}
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
    found = []
    for part in rows:
        label = part.labels[name][:, 0]
        keep = label >= 0
        shapes = None if part.shapes is None else part.shapes[keep]
        found.append(_Rows(part.slots[keep], shapes, part.clip[keep], {name: label[keep].long()}))
    return found


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
