"""Scores for pictures of coloured balls: did it predict where, and did it remember what.

Class 0 is background, class 1 white, classes from 2 on are colours. Source of the definitions: slotssm specification
§5;
the paper itself says only "error rate".
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor
from torchmetrics import Metric

__all__ = ["BallAccuracy", "BallIoU", "ClassCounts", "ball_classes", "ball_votes"]

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
    ids = masks.reshape(batch, -1).long()
    cell = (row * (num_balls + 1) + ids) * num_classes + classes.reshape(batch, -1).long()
    counts = torch.bincount(cell.flatten(), minlength=batch * (num_balls + 1) * num_classes)
    return counts.view(batch, num_balls + 1, num_classes)[:, 1:]


def ball_classes(votes: Integer[Tensor, "batch balls classes"]) -> Integer[Tensor, "batch balls"]:
    """The class most pixels of each ball have, the lowest one on a tie; -1 for a ball with no pixel in sight."""
    return torch.where(votes.sum(-1) > 0, votes.argmax(-1), -1)


class BallIoU(Metric):
    """Intersection over union of "not background", pooled over all pixels of all pictures: where the balls are.

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
        """Adds pictures of class ids."""
        ours, theirs = predicted != BACKGROUND, true != BACKGROUND
        self.intersection += (ours & theirs).sum()
        self.union += (ours | theirs).sum()

    def compute(self) -> Float[Tensor, ""]:
        """The pooled ratio; 1 if neither side has ever had a ball."""
        return torch.where(self.union > 0, self.intersection / self.union.clamp(min=1), 1.0)


class BallAccuracy(Metric):
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


class ClassCounts(Metric):
    """How often each colour is the answer; `compute` is what always giving the most frequent one would score.

    Args:
        num_classes: number of classes, background and white included.

    Example:
        >>> metric = ClassCounts(4)
        >>> metric.update(torch.tensor([[2, 3, 3]]), torch.tensor([[True, True, True]]))
        >>> metric.compute()
        tensor(0.6667)
    """

    higher_is_better = None
    is_differentiable = False
    full_state_update = False
    counts: Tensor

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.add_state("counts", torch.zeros(num_classes, dtype=torch.long), dist_reduce_fx="sum")

    def update(self, true: Integer[Tensor, "batch balls"], counted: Bool[Tensor, "batch balls"]) -> None:
        """Adds balls; only those with `counted` enter."""
        self.counts += torch.bincount(true[counted].long(), minlength=len(self.counts))

    def compute(self) -> Float[Tensor, ""]:
        """Share of the most frequent class."""
        return torch.where(self.counts.sum() > 0, self.counts.max() / self.counts.sum().clamp(min=1), torch.nan)
