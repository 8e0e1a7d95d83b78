"""Scores of predicted class images of coloured balls: whether balls are where they should be, and of the right colour.

Class 0 is background, class 1 white, classes from 2 on are colours. The definitions are ours: the paper (SlotSSM,
Section 7.2) has only "error rate".
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import Metric

from slotbench.interfaces import AnswerScores, VideoBatch
from slotbench.metric_info import MetricInfo, Reference
from slotbench.metrics.contingency import integer_ids
from slotbench.metrics.distinct import DistinctMetric
from slotbench.metrics.label_scores import LabelCounts
from slotbench.metrics.means import Mean
from slotbench.metrics.scores import Scores

__all__ = ["BallAccuracy", "BallIoU", "BallScores", "ball_classes", "ball_votes", "last_colours_seen"]

BACKGROUND, WHITE = 0, 1


def ball_votes(
    classes: Integer[Tensor, "batch height width"],
    masks: Integer[Tensor, "batch height width"],
    num_balls: int,
    num_classes: int,
) -> Integer[Tensor, "batch {num_balls} {num_classes}"]:
    """How many pixels of each class lie inside each ball's true mask (`masks`: 0 = background, ball i is id i + 1).

    Example:
        >>> classes = torch.tensor([[[0, 2, 2, 1]]])
        >>> ball_votes(classes, torch.tensor([[[0, 1, 1, 1]]]), num_balls=1, num_classes=3)
        tensor([[[0, 1, 2]]])
    """
    batch = classes.shape[0]
    row = torch.arange(batch, device=classes.device)[:, None]
    ids = integer_ids(masks, "masks").reshape(batch, -1).long()
    cell = (row * (num_balls + 1) + ids) * num_classes + integer_ids(classes, "classes").reshape(batch, -1).long()
    counts = torch.bincount(cell.flatten(), minlength=batch * (num_balls + 1) * num_classes)
    return counts.view(batch, num_balls + 1, num_classes)[:, 1:]


def ball_classes(votes: Integer[Tensor, "batch balls classes"]) -> Integer[Tensor, "batch balls"]:
    """The class most pixels of each ball have, the lowest one on a tie; -1 for a ball with no pixel in sight."""
    return torch.where(votes.sum(-1) > 0, votes.argmax(-1), -1)


class BallIoU(DistinctMetric):
    """Intersection over union of "not background", pooled over all pixels of all images: where the balls are.

    Example:
        >>> metric = BallIoU()
        >>> metric.update(torch.tensor([[[0, 1, 2]]]), torch.tensor([[[1, 1, 0]]]))
        >>> metric.compute()
        tensor(0.3333)
    """

    higher_is_better = True
    is_differentiable = False
    full_state_update = False
    intersection: Tensor
    union: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("intersection", torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("union", torch.tensor(0), dist_reduce_fx="sum")

    def update(
        self, predicted: Integer[Tensor, "batch height width"], true: Integer[Tensor, "batch height width"]
    ) -> None:
        """Adds images of class ids."""
        ours, theirs = predicted != BACKGROUND, true != BACKGROUND
        self.intersection += (ours & theirs).sum()
        self.union += (ours | theirs).sum()

    def compute(self) -> Float[Tensor, ""]:
        """The pooled ratio; 1 if neither side has ever had a ball."""
        return torch.where(self.union > 0, self.intersection / self.union.clamp(min=1), 1.0)


class BallAccuracy(DistinctMetric):
    """Share of balls that have the right class, among those that count; nan before any ball has counted.

    Example:
        >>> metric = BallAccuracy()
        >>> metric.update(torch.tensor([[2, 3, 1]]), torch.tensor([[2, 2, 1]]), torch.tensor([[True, True, False]]))
        >>> metric.compute()
        tensor(0.5000)
    """

    higher_is_better = True
    is_differentiable = False
    full_state_update = False
    correct: Tensor
    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("correct", torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("total", torch.tensor(0), dist_reduce_fx="sum")

    def update(
        self,
        predicted: Integer[Tensor, "batch balls"],
        true: Integer[Tensor, "batch balls"],
        counted: Bool[Tensor, "batch balls"],
    ) -> None:
        """Adds balls; only those with `counted` enter the score."""
        self.correct += ((predicted == true) & counted).sum()
        self.total += counted.sum()

    def compute(self) -> Float[Tensor, ""]:
        """The pooled ratio."""
        return torch.where(self.total > 0, self.correct / self.total.clamp(min=1), torch.nan)


class BallScores(Scores, AnswerScores):
    """Scores of class images against a `BlinkingBalls` batch: of the last target, by context length; and baselines.

    Names: `ball_iou`, `colour_accuracy` (balls whose answer is a colour), `colour_accuracy_not_last` (of these, the
    balls whose last colour is not the answer), `colour_accuracy_rules_disagree` (of these, the balls on which Earliest
    and Most Frequent differ), `ball_accuracy` (white balls too), `pixel_error`, `ball_pixel_error` (on true ball
    pixels), `rgb_mse` (if there is a palette), `other_rule_accuracy` (what perfect memory with the wrong rule gets),
    `ball_iou/context_3` (after three context frames), `baseline/ball_iou/copy the last mask` and so on.
    """

    palette: Float[Tensor, "classes 3"] | None

    def __init__(self, num_classes: int, palette: tuple[tuple[int, int, int], ...] | None = None):
        super().__init__()
        self.num_classes = num_classes
        colours = None if palette is None else torch.tensor(palette) / 255
        self.register_buffer("palette", colours, persistent=False)

    @property
    def declared(self) -> list[MetricInfo]:
        """Accuracies of places and colours, and errors of pixels; agreement with the other rule has no direction."""
        return [
            MetricInfo("ball_iou", "ball-pixel IoU", True),
            MetricInfo("colour_accuracy", "colour accuracy, coloured balls", True),
            MetricInfo("colour_accuracy_not_last", "colour accuracy where the last colour is wrong", True),
            MetricInfo("colour_accuracy_rules_disagree", "colour accuracy where the rules differ", True),
            MetricInfo("ball_accuracy", "colour accuracy, all balls", True),
            MetricInfo("pixel_error", "share of wrong pixels", False),
            MetricInfo("ball_pixel_error", "share of wrong pixels on balls", False),
            MetricInfo("rgb_mse", "squared error of colours", False),
            MetricInfo("other_rule_accuracy", "colour accuracy of perfect memory with the other rule"),
        ]

    def update(self, predicted: Integer[Tensor, "batch targets height width"], batch: VideoBatch) -> None:
        """Adds one predicted class image for each target of a batch."""
        for index in range(predicted.shape[1]):
            truth = _Truth(batch, index, self.num_classes)
            context = f"/context_{index + 1}"
            self._score(predicted[:, index], truth, context)
        self._score(predicted[:, index], truth, "")
        self._score_in_detail(predicted[:, index], truth)
        if self.wants_references:
            self._score_baselines(truth)

    def compute(self) -> dict[str, float]:
        """Every score that has been updated, by name; those where nothing has counted are left out."""
        values: dict[str, float] = {}
        for name, metric in self.metrics.items():
            if isinstance(metric, LabelCounts) and metric.update_called and metric.compute().sum() > 0:
                values[name] = float(metric.best_share())
            elif isinstance(metric, Metric) and not isinstance(metric, LabelCounts) and metric.update_called:
                values[name] = float(metric.compute())
        return {name: value for name, value in values.items() if value == value}

    def _score(self, predicted: Tensor, truth: _Truth, suffix: str) -> None:
        self.metric(f"ball_iou{suffix}", BallIoU, predicted).update(predicted, truth.image)
        accuracy = self.metric(f"colour_accuracy{suffix}", BallAccuracy, predicted)
        accuracy.update(truth.classes_in(predicted), truth.classes, truth.coloured)

    def _score_in_detail(self, predicted: Tensor, truth: _Truth) -> None:
        answer = truth.classes_in(predicted)
        counted = {
            "colour_accuracy_not_last": truth.not_last,
            "colour_accuracy_rules_disagree": truth.rules_disagree,
            "ball_accuracy": truth.classes >= WHITE,
        }
        for name, balls in counted.items():
            self.metric(name, BallAccuracy, predicted).update(answer, truth.classes, balls)
        wrong = (predicted != truth.image).float()
        self.metric("pixel_error", Mean, predicted).update(wrong)
        self.metric("ball_pixel_error", Mean, predicted).update(wrong[truth.image != BACKGROUND])
        if self.palette is not None:
            difference = self.palette[predicted] - self.palette[truth.image]
            self.metric("rgb_mse", Mean, predicted).update(difference.square())

    def _score_baselines(self, truth: _Truth) -> None:
        true, image = truth.classes, truth.image
        answers = {
            "last colour seen": truth.last,
            "everything white": torch.full_like(true, WHITE),
        }
        for name, answer in answers.items():
            accuracy = self.metric(Reference("baseline", "colour_accuracy", name), BallAccuracy, image)
            accuracy.update(answer, true, truth.coloured)
        # no baseline: it takes memory too. It measures how much of the answer needs the right rule.
        other = torch.where(truth.earliest == true, truth.most_frequent, truth.earliest)
        self.metric("other_rule_accuracy", BallAccuracy, image).update(other, true, truth.coloured)
        frequent = self.metric(
            Reference("baseline", "colour_accuracy", "most frequent class"), LabelCounts, image, self.num_classes
        )
        frequent.update(true[truth.coloured])
        for score, balls in (("not_last", truth.not_last), ("rules_disagree", truth.rules_disagree)):
            last = self.metric(
                Reference("baseline", f"colour_accuracy_{score}", "last colour seen"), BallAccuracy, image
            )
            last.update(truth.last, true, balls)
        # where they differ, memory without the right rule has nothing right
        wrong = self.metric(
            Reference("baseline", "colour_accuracy_rules_disagree", "the other rule"), BallAccuracy, image
        )
        wrong.update(other, true, truth.rules_disagree)
        empty = self.metric(Reference("baseline", "ball_iou", "everything background"), BallIoU, image)
        empty.update(torch.zeros_like(image), image)
        if truth.masks_before is not None:
            copied = self.metric(Reference("baseline", "ball_iou", "copy the last mask"), BallIoU, image)
            copied.update(truth.masks_before, image)


def last_colours_seen(batch: VideoBatch) -> Integer[Tensor, "batch height width"]:
    """The baseline as a class image: each ball where it is at the last target, in the last colour that it showed."""
    classes = F.pad(batch.objects["last"][:, -1].long(), (1, 0), value=BACKGROUND)
    masks = batch.require("target_masks")[:, -1].long()
    return classes.gather(1, masks.flatten(1)).view_as(masks)


class _Truth:
    """One target of a batch: its image, and the class of every ball in it and under each rule."""

    def __init__(self, batch: VideoBatch, index: int, num_classes: int):
        masks = batch.require("target_masks")
        self.image = batch.require("target")[:, index].long()
        self.masks = masks[:, index]
        # the frame before the first target is there only as masks of its patches
        self.masks_before = masks[:, index - 1] if index > 0 else None
        self.last = batch.objects["last"][:, index].long()
        self.earliest = batch.objects["earliest"][:, index].long()
        self.most_frequent = batch.objects["most_frequent"][:, index].long()
        self.num_classes = num_classes
        self.classes = self.classes_in(self.image)
        self.coloured = self.classes > WHITE
        self.not_last = self.coloured & (self.last != self.classes)
        self.rules_disagree = self.coloured & (self.earliest != self.most_frequent)

    def classes_in(self, image: Integer[Tensor, "batch height width"]) -> Integer[Tensor, "batch balls"]:
        """The class that `image` gives each ball, by majority inside its true mask."""
        return ball_classes(ball_votes(image, self.masks, self.last.shape[1], self.num_classes))
