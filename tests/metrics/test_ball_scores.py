"""Scores of whole pictures, and the floors, on episodes whose answers are known."""

import pytest
import torch

from slotbench.data.base import collate, to_unit_range
from slotbench.data.blinking_balls import BlinkingBalls
from slotbench.metrics.ball_scores import BallScores

EPISODES = 200


@pytest.fixture(scope="module")
def batch():
    data = BlinkingBalls(num_balls=3, num_frames=6, patches_per_side=1, resolution=32, val_size=EPISODES)
    split = data.dataset("val")
    return to_unit_range(collate([split[i] for i in range(EPISODES)]))


def scores_of(predicted, batch):
    scores = BallScores(7, BlinkingBalls(resolution=32, patches_per_side=1).spec.target.palette)
    scores.update(predicted, batch)
    return {name: float(value) for name, value in scores.compute().items()}


def test_the_truth_scores_full_marks(batch):
    scores = scores_of(batch.target.long(), batch)
    for name in (
        "ball_iou",
        "colour_accuracy",
        "colour_accuracy_not_last",
        "ball_accuracy",
        "colour_accuracy/context_2",
    ):
        assert scores[name] == 1, name
    for name in ("pixel_error", "ball_pixel_error", "rgb_mse"):
        assert scores[name] == 0, name


def test_right_places_without_colours_score_only_the_places(batch):
    scores = scores_of((batch.target > 0).long(), batch)
    assert scores["ball_iou"] == 1
    assert scores["colour_accuracy"] == 0
    assert 0.05 < scores["ball_accuracy"] < 0.25  # the balls that are truly white, 0.13 by enumeration


def test_painting_the_last_colour_scores_what_the_floor_says(batch):
    last = torch.zeros_like(batch.target).long()
    for ball in range(3):
        here = batch.target_masks == ball + 1
        last = torch.where(here, batch.objects["last"][..., ball, None, None].expand_as(last), last)
    scores = scores_of(last, batch)
    assert scores["colour_accuracy"] == pytest.approx(scores["floor/colour_accuracy/last colour seen"])
    assert scores["colour_accuracy_not_last"] == 0
    assert scores["floor/colour_accuracy_not_last/last colour seen"] == 0


def test_floors_match_the_enumerated_probabilities(batch):
    scores = scores_of(batch.target.long(), batch)
    coloured_balls = EPISODES * 3 * 0.868
    three_sigma = 3 * (0.25 / coloured_balls) ** 0.5
    assert scores["floor/colour_accuracy/last colour seen"] == pytest.approx(0.5033, abs=three_sigma)
    assert scores["other_rule_accuracy"] == pytest.approx(0.9526, abs=three_sigma)
    assert scores["floor/colour_accuracy/everything white"] == 0
    assert 0.2 <= scores["floor/colour_accuracy/most frequent class"] < 0.27
    assert scores["floor/ball_iou/everything background"] == 0
    assert 0.7 < scores["floor/ball_iou/copy the last mask"] < 0.85


def test_the_floor_of_ball_iou_is_the_score_of_the_last_context_frame(batch):
    scores = scores_of(batch.target.long(), batch)
    copied = torch.cat([batch.target[:, :1], (batch.masks[:, 1:] > 0).to(batch.target.dtype)], dim=1).long()
    assert scores_of(copied, batch)["ball_iou"] == pytest.approx(scores["floor/ball_iou/copy the last mask"])


def test_reset_forgets(batch):
    scores = BallScores(7)
    scores.update(torch.zeros_like(batch.target).long(), batch)
    scores.reset()
    scores.update(batch.target.long(), batch)
    assert scores.compute()["ball_iou"] == 1
