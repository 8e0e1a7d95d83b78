"""All scores of a set of predicted ball pictures, and what trivial answers score on the same clips."""

from __future__ import annotations

import torch
from jaxtyping import Integer
from torch import Tensor, nn
from torchmetrics import MeanMetric, Metric

from slotbench.interfaces import VideoBatch
from slotbench.metrics.balls import BACKGROUND, WHITE, BallAccuracy, BallIoU, ClassCounts, ball_classes, ball_votes

__all__ = ["BallScores"]


class BallScores(nn.Module):
    """Scores of class pictures against a `BlinkingBalls` batch: of the last target, by context length, and the floors.

    Names: `ball_iou`, `colour_accuracy` (balls whose answer is a colour), `colour_accuracy_not_last` (of these, the
    balls whose last colour is not the answer), `colour_accuracy_rules_disagree` (of these, the balls on which Earliest
    and Most Frequent differ), `ball_accuracy` (white balls too), `pixel_error`, `ball_pixel_error` (on true ball
    pixels), `rgb_mse` (if there is a palette), `ball_iou/context_3` (after three context frames),
    `floor/ball_iou/copy the last mask` and so on.

    Args:
        num_classes: background, white and the colours.
        palette: red, green and blue in 0..255 of each class.
    """

    def __init__(self, num_classes: int, palette: tuple[tuple[int, int, int], ...] | None = None):
        super().__init__()
        self.num_classes = num_classes
        colours = None if palette is None else torch.tensor(palette) / 255
        self.register_buffer("palette", colours, persistent=False)
        self.metrics = nn.ModuleDict()

    def update(
        self, predicted: Integer[Tensor, "batch targets height width"], batch: VideoBatch, floors: bool = True
    ) -> None:
        """Adds a batch of predicted class pictures, one for each of the batch's targets; `floors` also scores trivial
        answers."""
        last = predicted.shape[1] - 1
        for index in range(last + 1):
            self._update_target(predicted[:, index], batch, index, f"/context_{index + 1}")
        self._update_target(predicted[:, last], batch, last, "")
        if floors:
            self._update_floors(batch, last)

    def compute(self) -> dict[str, Tensor]:
        """Every score that has been updated, by name; nan where nothing has counted."""
        return {key.replace("|", "/"): metric.compute() for key, metric in self.metrics.items() if metric.update_called}

    def reset(self) -> None:
        """Forgets every batch."""
        for metric in self.metrics.values():
            metric.reset()

    def _metric(self, name: str, make: type[Metric], *args: int) -> Metric:
        # made on first use: how many context lengths there are is known from the batch alone
        key = name.replace("/", "|")
        if key not in self.metrics:
            self.metrics[key] = make(*args)
        return self.metrics[key].to(self._device)

    def _truth(self, batch: VideoBatch, index: int) -> tuple[Tensor, Tensor]:
        """True class of each ball at one target, read off the target picture, and which balls are coloured."""
        num_balls = batch.objects["last"].shape[-1]
        votes = ball_votes(batch.target[:, index], batch.target_masks[:, index], num_balls, self.num_classes)
        true = ball_classes(votes)
        return true, true > WHITE

    def _update_target(
        self, predicted: Integer[Tensor, "batch height width"], batch: VideoBatch, index: int, suffix: str
    ) -> None:
        self._device = predicted.device
        target = batch.target[:, index].long()
        self._metric(f"ball_iou{suffix}", BallIoU).update(predicted, target)
        true, coloured = self._truth(batch, index)
        answer = ball_classes(ball_votes(predicted, batch.target_masks[:, index], true.shape[1], self.num_classes))
        self._metric(f"colour_accuracy{suffix}", BallAccuracy).update(answer, true, coloured)
        if suffix:
            return
        not_last = coloured & (batch.objects["last"][:, index] != true)
        disagree = coloured & (batch.objects["earliest"][:, index] != batch.objects["most_frequent"][:, index])
        self._metric("colour_accuracy_not_last", BallAccuracy).update(answer, true, not_last)
        self._metric("colour_accuracy_rules_disagree", BallAccuracy).update(answer, true, disagree)
        self._metric("ball_accuracy", BallAccuracy).update(answer, true, true >= WHITE)
        wrong = (predicted != target).float()
        self._metric("pixel_error", MeanMetric).update(wrong)
        self._metric("ball_pixel_error", MeanMetric).update(wrong[target != BACKGROUND])
        if self.palette is not None:
            self._metric("rgb_mse", MeanMetric).update((self.palette[predicted] - self.palette[target]).square())

    def _update_floors(self, batch: VideoBatch, index: int) -> None:
        true, coloured = self._truth(batch, index)
        last, earliest, frequent = (
            batch.objects[rule][:, index].long() for rule in ("last", "earliest", "most_frequent")
        )
        other_rule = torch.where(earliest == true, frequent, earliest)
        answers = {
            "last colour seen": last,
            "the other rule": other_rule,
            "everything white": torch.full_like(true, WHITE),
        }
        for name, answer in answers.items():
            self._metric(f"floor/colour_accuracy/{name}", BallAccuracy).update(answer, true, coloured)
        self._metric("floor/colour_accuracy/most frequent class", ClassCounts, self.num_classes).update(true, coloured)
        self._metric("floor/colour_accuracy_not_last/last colour seen", BallAccuracy).update(
            last, true, coloured & (last != true)
        )
        target = batch.target[:, index]
        self._metric("floor/ball_iou/everything background", BallIoU).update(torch.zeros_like(target), target)
        if index > 0:  # the frame before the first target is there only as masks of its patches
            self._metric("floor/ball_iou/copy the last mask", BallIoU).update(batch.target_masks[:, index - 1], target)
