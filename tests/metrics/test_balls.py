"""Ball metrics against plain loops and hand-made cases, and all of them on episodes whose answers are known."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import jaccard_score

from slotbench.data.balls.blinking_balls import BlinkingBalls
from slotbench.data.base import LoaderOptions, collate, to_unit_range
from slotbench.metrics.balls import BallAccuracy, BallIoU, BallScores, ball_classes, ball_votes, last_colours_seen

EPISODES = 200

seeds = st.integers(0, 2**32 - 1)


@given(seeds, st.integers(1, 4), st.integers(2, 7))
@settings(max_examples=20)
def test_votes_equal_a_loop_over_balls(seed, num_balls, num_classes):
    rng = np.random.default_rng(seed)
    classes = rng.integers(num_classes, size=(3, 8, 6))
    masks = rng.integers(num_balls + 1, size=(3, 8, 6))
    votes = ball_votes(torch.from_numpy(classes), torch.from_numpy(masks), num_balls, num_classes)
    for sample in range(3):
        for ball in range(num_balls):
            inside = classes[sample][masks[sample] == ball + 1]
            assert votes[sample, ball].tolist() == np.bincount(inside, minlength=num_classes).tolist()


def test_majority_takes_the_lowest_class_on_a_tie_and_marks_hidden_balls():
    votes = torch.tensor([[[0, 2, 2], [0, 0, 0], [1, 0, 5]]])
    assert ball_classes(votes).tolist() == [[1, -1, 2]]


@given(seeds)
@settings(max_examples=20)
def test_ball_iou_agrees_with_scikit_learn_and_does_not_depend_on_batching(seed):
    rng = np.random.default_rng(seed)
    predicted, true = rng.integers(3, size=(2, 6, 5, 4))
    whole, parts = BallIoU(), BallIoU()
    whole.update(torch.from_numpy(predicted), torch.from_numpy(true))
    for i in (slice(0, 1), slice(1, 6)):
        parts.update(torch.from_numpy(predicted[i]), torch.from_numpy(true[i]))
    expected = jaccard_score(true.ravel() > 0, predicted.ravel() > 0)
    assert whole.compute().item() == pytest.approx(expected, abs=1e-6)
    assert parts.compute() == whole.compute()


def test_ball_iou_ignores_colours_and_is_one_without_any_ball():
    metric = BallIoU()
    metric.update(torch.zeros(1, 2, 2, dtype=torch.long), torch.zeros(1, 2, 2, dtype=torch.long))
    assert metric.compute() == 1
    metric.update(torch.tensor([[[2, 0]]]), torch.tensor([[[5, 0]]]))
    assert metric.compute() == 1
    metric.update(torch.tensor([[[0, 1]]]), torch.tensor([[[1, 1]]]))
    assert metric.compute().item() == pytest.approx(2 / 3)


def test_accuracy_counts_only_the_balls_it_is_told_to():
    metric = BallAccuracy()
    nobody = torch.tensor([[False, False, False]])
    metric.update(torch.tensor([[1, 1, 1]]), torch.tensor([[1, 1, 1]]), nobody)
    assert torch.isnan(metric.compute())
    predicted, true = torch.tensor([[2, 3, 4]]), torch.tensor([[2, 3, 5]])
    metric.update(predicted, true, torch.tensor([[True, False, True]]))
    assert metric.compute().item() == pytest.approx(0.5)
    metric.update(predicted, true, torch.tensor([[True, True, False]]))
    assert metric.compute().item() == pytest.approx(0.75)


def clips(rule="earliest"):
    loader = LoaderOptions(val_size=EPISODES)
    data = BlinkingBalls(rule, num_balls=3, num_frames=6, patches_per_side=1, resolution=32, loader=loader)
    split = data.dataset("val")
    return to_unit_range(collate([split[i] for i in range(EPISODES)]))


@pytest.fixture(scope="module")
def batch():
    return clips()


def painted(batch, by):
    """The true masks, each ball in its class by another rule."""
    image = torch.zeros_like(batch.target).long()
    for ball in range(3):
        here = batch.target_masks == ball + 1
        image = torch.where(here, batch.objects[by][..., ball, None, None].expand_as(image), image)
    return image


def scores_of(predicted, batch):
    scores = BallScores(7, BlinkingBalls(resolution=32, patches_per_side=1).spec.target.palette)
    scores.update(predicted, batch)
    return {name: float(value) for name, value in scores.compute().items()}


def test_the_baseline_is_the_true_masks_in_the_colours_seen_last(batch):
    assert torch.equal(last_colours_seen(batch), painted(batch, "last")[:, -1])


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


@pytest.mark.parametrize(("rule", "other"), [("earliest", "most_frequent"), ("most_frequent", "earliest")])
def test_memory_with_the_wrong_rule_has_nothing_right_where_the_rules_disagree(rule, other):
    batch = clips(rule)
    assert scores_of(painted(batch, rule), batch)["colour_accuracy_rules_disagree"] == 1
    scores = scores_of(painted(batch, other), batch)
    assert scores["colour_accuracy"] == pytest.approx(scores["other_rule_accuracy"])
    assert scores["colour_accuracy_rules_disagree"] == 0
    assert scores["baseline/colour_accuracy_rules_disagree/the other rule"] == 0
    last = scores_of(painted(batch, "last"), batch)
    name = "colour_accuracy_rules_disagree"
    assert last[name] == pytest.approx(last[f"baseline/{name}/last colour seen"])
    # a ball that has been A and then B twice is both its most frequent and its last colour
    assert (last[name] > 0.5) == (rule == "most_frequent")


def test_baselines_match_the_enumerated_probabilities(batch):
    scores = scores_of(batch.target.long(), batch)
    coloured_balls = EPISODES * 3 * 0.868
    three_sigma = 3 * (0.25 / coloured_balls) ** 0.5
    assert scores["baseline/colour_accuracy/last colour seen"] == pytest.approx(0.5033, abs=three_sigma)
    assert scores["other_rule_accuracy"] == pytest.approx(0.9526, abs=three_sigma)
    assert scores["baseline/colour_accuracy/everything white"] == 0
    assert 0.2 <= scores["baseline/colour_accuracy/most frequent class"] < 0.27
    assert scores["baseline/ball_iou/everything background"] == 0
    assert 0.7 < scores["baseline/ball_iou/copy the last mask"] < 0.85


def test_the_baseline_of_ball_iou_is_the_score_of_the_last_context_frame(batch):
    scores = scores_of(batch.target.long(), batch)
    copied = torch.cat([batch.target[:, :1], (batch.masks[:, 1:] > 0).to(batch.target.dtype)], dim=1).long()
    assert scores_of(copied, batch)["ball_iou"] == pytest.approx(scores["baseline/ball_iou/copy the last mask"])
