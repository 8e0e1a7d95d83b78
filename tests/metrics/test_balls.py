"""Ball metrics against plain loops and hand-made cases."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import jaccard_score

from slotbench.metrics.balls import BallAccuracy, BallIoU, ClassCounts, ball_classes, ball_votes

pictures = st.integers(0, 2**32 - 1)


@given(pictures, st.integers(1, 4), st.integers(2, 7))
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


@given(pictures)
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


def test_class_counts_give_the_share_of_the_most_frequent_answer():
    metric = ClassCounts(7)
    metric.update(torch.tensor([[2, 3, 3, 1]]), torch.tensor([[True, True, True, False]]))
    metric.update(torch.tensor([[3, 2, 2, 2]]), torch.tensor([[True, False, False, False]]))
    assert metric.compute().item() == pytest.approx(3 / 4)
