"""Scores of labels of clips, by group: of classes, and of cells of a grid, where nearly right is worth something."""

from __future__ import annotations

from math import isqrt

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from slotbench.interfaces import VideoBatch
from slotbench.metric_info import MetricInfo, Reference
from slotbench.metrics.contingency import integer_ids
from slotbench.metrics.distinct import DistinctMetric
from slotbench.metrics.means import Mean
from slotbench.metrics.scores import Scores

__all__ = ["LabelCounts", "LabelScores", "grid_distances", "ranks_of"]

_UNSEEN = (1, 25, 49, 97)
"""First number of frames of each bin of `frames_since_seen`: at CATER's 24 per second, up to 1, 2, 4 s, and more."""

_TOP = 5
_CONE = 3


def ranks_of(
    logits: Float[Tensor, "batch classes"], labels: Integer[Tensor, " batch"], index: Integer[Tensor, " batch"]
) -> Integer[Tensor, " batch"]:
    """How many classes stand before the right one, 0 for none; among equal logits the order is drawn at random.

    The draw depends on the clip alone, by its number in the split, so that it is the same for any batches. CATER's own
    script sorts, which favours some classes where logits tie.

    Example:
        >>> ranks_of(torch.tensor([[0.1, 0.7, 0.2]]), torch.tensor([2]), torch.tensor([0]))
        tensor([1])
    """
    own = logits.gather(1, labels[:, None])
    before = (logits > own).sum(1)
    ties = (logits == own).sum(1) - 1
    if (ties > 0).any():
        drawn = [np.random.default_rng([5, i]).random() for i in index.tolist()]
        before = before + (torch.tensor(drawn, device=logits.device) * (ties + 1)).long()
    return before


def grid_distances(side: int) -> Float[Tensor, "cells cells"]:
    """Rows plus columns between any two cells of a square grid that is numbered row by row.

    Example:
        >>> grid_distances(2)
        tensor([[0., 1., 1., 2.],
                [1., 0., 2., 1.],
                [1., 2., 0., 1.],
                [2., 1., 1., 0.]])
    """
    cells = torch.arange(side * side)
    rows, cols = cells // side, cells % side
    return ((rows[:, None] - rows).abs() + (cols[:, None] - cols).abs()).float()


class LabelCounts(DistinctMetric):
    """How often each class is the answer; what always giving the best one scores.

    Example:
        >>> counts = LabelCounts(3)
        >>> counts.update(torch.tensor([2, 0, 2, 1]))
        >>> counts.best_share()
        tensor(0.5000)
    """

    higher_is_better = None
    is_differentiable = False
    full_state_update = False
    counts: Tensor

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.add_state("counts", torch.zeros(num_classes, dtype=torch.long), dist_reduce_fx="sum")

    def update(self, labels: Integer[Tensor, " batch"]) -> None:
        """Adds labels."""
        self.counts += torch.bincount(integer_ids(labels, "labels").long(), minlength=len(self.counts))

    def compute(self) -> Integer[Tensor, " classes"]:
        """The counts."""
        return self.counts

    def best_share(self, top: int = 1) -> Float[Tensor, ""]:
        """Share of clips that the `top` most frequent classes hold."""
        counts = self.compute()
        return counts.topk(min(top, len(counts))).values.sum() / counts.sum().clamp(min=1)

    def best_distance(self, distances: Float[Tensor, "classes classes"]) -> Float[Tensor, ""]:
        """Least mean distance that any one class has to the labels."""
        counts = self.compute()
        return (distances.to(counts.device) @ counts.float()).min() / counts.sum().clamp(min=1)


class LabelScores(Scores):
    """Scores of logits against the last target of each clip: `top1`, `top5`, and `l1` for cells, with baselines.

    Where the data says what became of a snitch (`CATERLike`), each also by group: `top1/free` (nothing covers it at the
    end), `top1/covered_still` (a cone does and has not moved it), `top1/covered_moved` (it has), and by how many frames
    of the video ago it was last visible, `top1/unseen_1-24` and so on. Baselines: uniform, best constant (the one
    class, or the one cell by its distance, that is best on these very clips); with a snitch, where it was last
    uncovered, and any cone: a cone that nothing covers and that is wider than the snitch, drawn evenly (its score is
    the expected one; on a free clip it answers a cone, too). The last two know every position exactly.
    """

    distances: Float[Tensor, "classes classes"] | None

    def __init__(self, num_classes: int, cells: bool = False) -> None:
        super().__init__()
        side = isqrt(num_classes)
        if cells and side * side != num_classes:
            raise ValueError(f"{num_classes} classes are no cells of a square grid: give labels='classes'")
        self.num_classes = num_classes
        self.side = side
        self.register_buffer("distances", grid_distances(side) if cells else None, persistent=False)
        self._last: dict[str, float] = {}

    @property
    def declared(self) -> list[MetricInfo]:
        """Accuracies, and for cells the distance."""
        return [
            MetricInfo("top1", "Top-1", True),
            MetricInfo("top5", "Top-5", True),
            MetricInfo("l1", "L1", False, unit="cells"),
        ]

    def update(self, logits: Float[Tensor, "batch classes"], batch: VideoBatch) -> None:
        """Adds clips."""
        labels = batch.require("target")[:, -1].flatten().long()
        index = torch.arange(len(labels)) if batch.index is None else batch.index
        ranks = ranks_of(logits.float(), labels, index)
        found = {"top1": (ranks == 0).float()}
        if self.num_classes > _TOP:
            found["top5"] = (ranks < _TOP).float()
        if self.distances is not None:
            # the first in the ranking: the label itself where it is, else the highest of the others
            others = logits.scatter(1, labels[:, None], -torch.inf).argmax(1)
            answers = torch.where(ranks == 0, labels, others)
            found["l1"] = self.distances[answers, labels]
        groups = _groups(batch, len(labels), logits.device)
        self._add(found, groups)
        if self.wants_references:
            self._add_references(labels, groups, batch)

    def compute(self) -> dict[str, float]:
        """Every score of every group that has a clip, by name."""
        values: dict[str, float] = {}
        for name, metric in self.metrics.items():
            if isinstance(metric, LabelCounts) and metric.update_called and metric.compute().sum() > 0:
                group = name.removeprefix("counts")
                values[Reference("baseline", f"top1{group}", "best constant")] = float(metric.best_share())
                if self.num_classes > _TOP:
                    values[Reference("baseline", f"top5{group}", "best constant")] = float(metric.best_share(_TOP))
                if self.distances is not None:
                    values[Reference("baseline", f"l1{group}", "best constant")] = float(
                        metric.best_distance(self.distances)
                    )
            elif isinstance(metric, Mean) and metric.update_called:
                values[name] = float(metric.compute())
        self._last = {name: value for name, value in values.items() if value == value}
        return self._last

    def over_absence(self, score: str = "top1") -> dict[str, dict[int, float]]:
        """A score of the last evaluation by the frames since the snitch was last seen, beside its baselines.

        Returns:
            values by the first number of frames of each bin that has clips, 0 for those in which it is visible; by the
            baseline's name, and "model".
        """
        bins = {f"{score}/seen": 0} | {f"{score}/unseen_{_bin_name(i)}": first for i, first in enumerate(_UNSEEN)}
        found: dict[str, dict[int, float]] = {}
        for name, value in (self.references | self._last).items():
            of, by = (name.of, name.by) if isinstance(name, Reference) else (name, "model")
            if of in bins:
                found.setdefault(by, {})[bins[of]] = value
        return {by: dict(sorted(points.items())) for by, points in found.items()}

    def _add_references(self, labels: Tensor, groups: dict[str, Tensor], batch: VideoBatch) -> None:
        uniform = {"top1": torch.full(labels.shape, 1 / self.num_classes, device=labels.device)}
        if self.num_classes > _TOP:
            uniform["top5"] = _TOP * uniform["top1"]
        if self.distances is not None:
            uniform["l1"] = self.distances[labels].mean(1)
        self._add(uniform, groups, "uniform")
        for group, members in groups.items():
            self.metric(f"counts{group}", LabelCounts, labels, self.num_classes).update(labels[members])
        if self.distances is None or "last_uncovered" not in batch.objects:
            return
        last = batch.objects["last_uncovered"].long()
        right = {"top1": (last == labels).float(), "l1": self.distances[last, labels]}
        self._add(right, groups, "last uncovered")
        if "end_cells" not in batch.objects:
            return
        shares = _any_cone(batch, self.side)
        some = shares.sum(1) > 0
        right = {"top1": shares.gather(1, labels[:, None])[:, 0], "l1": (shares * self.distances[labels]).sum(1)}
        held = {group: members & some for group, members in groups.items()}
        self._add(right, held, "any cone")

    def _add(self, found: dict[str, Tensor], groups: dict[str, Tensor], baseline: str | None = None) -> None:
        for score, values in found.items():
            for group, members in groups.items():
                name = f"{score}{group}" if baseline is None else Reference("baseline", f"{score}{group}", baseline)
                self.metric(name, Mean, values).update(values[members])


def _groups(batch: VideoBatch, clips: int, device: torch.device) -> dict[str, Bool[Tensor, " batch"]]:
    """Which clips are in each group, by the end of its name; all of them in the one without."""
    groups = {"": torch.ones(clips, dtype=torch.bool, device=device)}
    log = batch.objects
    if "moved_covered" in log:
        groups["/free"] = ~log["covered"]
        groups["/covered_still"] = log["covered"] & ~log["moved_covered"]
        groups["/covered_moved"] = log["moved_covered"]
    if (since := log.get("frames_since_seen")) is not None:
        groups["/seen"] = since == 0
        for i, (first, past) in enumerate(zip(_UNSEEN, (*_UNSEEN[1:], None), strict=True)):
            groups[f"/unseen_{_bin_name(i)}"] = (since >= first) & (since < past) if past else since >= first
    return groups


def _bin_name(place: int) -> str:
    """First and last number of frames of a bin of `_UNSEEN`."""
    return f"{_UNSEEN[place]}-{_UNSEEN[place + 1] - 1}" if place + 1 < len(_UNSEEN) else f"{_UNSEEN[place]}+"


def _any_cone(batch: VideoBatch, side: int) -> Float[Tensor, "batch cells"]:
    """Share of each cell among the cones of the last frame that could be over the snitch; zeros without such a cone."""
    log = batch.objects
    could = (log["shape_label"] == _CONE) & (log["end_holders"] < 0) & (log["scale"] > log["scale"][:, :1])
    counts = torch.zeros(len(could), side * side, device=could.device)
    counts.scatter_add_(1, log["end_cells"].long(), could.float())
    return counts / counts.sum(1, keepdim=True).clamp(min=1)
