"""All scores of a set of predicted ball pictures, and what trivial answers score on the same clips."""

from __future__ import annotations

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torchmetrics import Metric

from slotbench.interfaces import VideoBatch
from slotbench.metrics.balls import BACKGROUND, WHITE, BallAccuracy, BallIoU, ClassCounts, ball_classes, ball_votes
from slotbench.metrics.means import Mean

__all__ = ["BallScores"]


class BallScores(nn.Module):
    """Scores of class pictures against a `BlinkingBalls` batch: of the last target, by context length, and the floors.

    Names: `ball_iou`, `colour_accuracy` (balls whose answer is a colour), `colour_accuracy_not_last` (of these, the
    balls whose last colour is not the answer), `colour_accuracy_rules_disagree` (of these, the balls on which Earliest
    and Most Frequent differ), `ball_accuracy` (white balls too), `pixel_error`, `ball_pixel_error` (on true ball
    pixels), `rgb_mse` (if there is a palette), `other_rule_accuracy` (what perfect memory with the wrong rule gets),
    `ball_iou/context_3` (after three context frames), `floor/ball_iou/copy the last mask` and so on.

    Args:
        num_classes: background, white and the colours.
        palette: red, green and blue in 0..255 of each class.
    """

    palette: Float[Tensor, "classes 3"] | None

    def __init__(self, num_classes: int, palette: tuple[tuple[int, int, int], ...] | None = None):
        super().__init__()
        self.num_classes = num_classes
        colours = None if palette is None else torch.tensor(palette) / 255
        self.register_buffer("palette", colours, persistent=False)
        self.metrics = nn.ModuleDict()

    def update(
        self, predicted: Integer[Tensor, "batch targets height width"], batch: VideoBatch, floors: bool = True
    ) -> None:
        """Adds one predicted class picture for each target of a batch; `floors` also scores trivial answers."""
        for index in range(predicted.shape[1]):
            truth = _Truth(batch, index, self.num_classes)
            context = f"/context_{index + 1}"
            self._score(predicted[:, index], truth, context)
        self._score(predicted[:, index], truth, "")
        self._score_in_detail(predicted[:, index], truth)
        if floors:
            self._score_floors(truth)

    def compute(self) -> dict[str, Tensor]:
        """Every score that has been updated, by name; nan where nothing has counted."""
        return {name: metric.compute() for name, metric in self._by_name().items() if metric.update_called}

    def reset(self) -> None:
        """Forgets every batch."""
        for metric in self._by_name().values():
            metric.reset()

    def _by_name(self) -> dict[str, Metric]:
        return {key.replace("|", "/"): metric for key, metric in self.metrics.items()}  # type: ignore[misc]

    def _metric(self, name: str, make: type[Metric], like: Tensor, *args: int) -> Metric:
        # made on first use: how many context lengths there are is known from the batch alone
        key = name.replace("/", "|")
        if key not in self.metrics:
            self.metrics[key] = make(*args).to(like.device)
        metric = self.metrics[key]
        assert isinstance(metric, Metric)
        return metric

    def _score(self, predicted: Tensor, truth: _Truth, suffix: str) -> None:
        self._metric(f"ball_iou{suffix}", BallIoU, predicted).update(predicted, truth.picture)
        accuracy = self._metric(f"colour_accuracy{suffix}", BallAccuracy, predicted)
        accuracy.update(truth.classes_in(predicted), truth.classes, truth.coloured)

    def _score_in_detail(self, predicted: Tensor, truth: _Truth) -> None:
        answer = truth.classes_in(predicted)
        counted = {
            "colour_accuracy_not_last": truth.not_last,
            "colour_accuracy_rules_disagree": truth.coloured & (truth.earliest != truth.most_frequent),
            "ball_accuracy": truth.classes >= WHITE,
        }
        for name, balls in counted.items():
            self._metric(name, BallAccuracy, predicted).update(answer, truth.classes, balls)
        wrong = (predicted != truth.picture).float()
        self._metric("pixel_error", Mean, predicted).update(wrong)
        self._metric("ball_pixel_error", Mean, predicted).update(wrong[truth.picture != BACKGROUND])
        if self.palette is not None:
            difference = self.palette[predicted] - self.palette[truth.picture]
            self._metric("rgb_mse", Mean, predicted).update(difference.square())

    def _score_floors(self, truth: _Truth) -> None:
        true, picture = truth.classes, truth.picture
        answers = {
            "last colour seen": truth.last,
            "everything white": torch.full_like(true, WHITE),
        }
        for name, answer in answers.items():
            accuracy = self._metric(f"floor/colour_accuracy/{name}", BallAccuracy, picture)
            accuracy.update(answer, true, truth.coloured)
        # no floor: it takes memory too. It says how much of the answer needs the right rule.
        other = torch.where(truth.earliest == true, truth.most_frequent, truth.earliest)
        self._metric("other_rule_accuracy", BallAccuracy, picture).update(other, true, truth.coloured)
        frequent = self._metric("floor/colour_accuracy/most frequent class", ClassCounts, picture, self.num_classes)
        frequent.update(true, truth.coloured)
        not_last = self._metric("floor/colour_accuracy_not_last/last colour seen", BallAccuracy, picture)
        not_last.update(truth.last, true, truth.not_last)
        empty = self._metric("floor/ball_iou/everything background", BallIoU, picture)
        empty.update(torch.zeros_like(picture), picture)
        if truth.masks_before is not None:
            copied = self._metric("floor/ball_iou/copy the last mask", BallIoU, picture)
            copied.update(truth.masks_before, picture)


class _Truth:
    """One target of a batch: its picture, and the class of every ball in it and under each rule."""

    def __init__(self, batch: VideoBatch, index: int, num_classes: int):
        masks = batch.require("target_masks")
        self.picture = batch.require("target")[:, index].long()
        self.masks = masks[:, index]
        # the frame before the first target is there only as masks of its patches
        self.masks_before = masks[:, index - 1] if index > 0 else None
        self.last = batch.objects["last"][:, index].long()
        self.earliest = batch.objects["earliest"][:, index].long()
        self.most_frequent = batch.objects["most_frequent"][:, index].long()
        self.num_classes = num_classes
        self.classes = self.classes_in(self.picture)
        self.coloured = self.classes > WHITE
        self.not_last = self.coloured & (self.last != self.classes)

    def classes_in(self, picture: Integer[Tensor, "batch height width"]) -> Integer[Tensor, "batch balls"]:
        """The class that `picture` gives each ball, by majority inside its true mask."""
        return ball_classes(ball_votes(picture, self.masks, self.last.shape[1], self.num_classes))
