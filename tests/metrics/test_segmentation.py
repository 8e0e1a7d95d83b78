"""Scores of contingency tables against scikit-learn, brute force and the edge cases of their definitions."""

from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from slotbench.metrics.contingency import contingency
from slotbench.metrics.segmentation import (
    adjusted_rand_index,
    matched_iou,
    mean_best_overlap,
    pairwise_iou,
)

TRUE, PREDICTED = [0, 0, 1, 1, 1, 2, 2, 2], [0, 1, 0, 0, 1, 2, 2, 2]
random_tables = st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 60), st.integers(0, 10_000))


def table_of(true, predicted, **arguments):
    return contingency(torch.as_tensor(predicted), torch.as_tensor(true), **arguments)


def ari(true, predicted):
    return adjusted_rand_index(table_of(true, predicted))[0].item()


def fg_ari(true, predicted):
    return adjusted_rand_index(table_of(true, predicted)[..., 1:, :])[0].item()


def miou(true, predicted, ignore_background=True):
    return matched_iou(table_of(true, predicted), ignore_background)[0].item()


def mbo(true, predicted):
    return mean_best_overlap(table_of(true, predicted))[0].item()


def random_labels(objects, slots, points, seed):
    """Labels of which about a half are those of the truth, so that scores are neither 0 nor 1."""
    random = np.random.default_rng(seed)
    true = random.integers(0, objects + 1, points)
    return true, np.where(random.random(points) < 0.5, true % slots, random.integers(0, slots, points))


def test_ari_and_fg_ari_agree_with_scikit_learn_on_200_random_pairs_with_gaps_in_their_ids():
    random = np.random.default_rng(0)
    for case in range(200):
        points = int(random.integers(1, 200))
        names = np.concatenate([[0], random.choice(np.arange(1, 5000), 8, replace=False)])
        true, predicted = random_labels(int(random.integers(1, 9)), int(random.integers(1, 9)), points, case)
        true, predicted = names[true], names[predicted] - 3
        front = true > 0
        assert ari(true, predicted) == pytest.approx(adjusted_rand_score(true, predicted), abs=1e-12)
        expected = adjusted_rand_score(true[front], predicted[front]) if front.any() else 1.0
        assert fg_ari(true, predicted) == pytest.approx(expected, abs=1e-12)


def test_worked_examples():
    assert ari(TRUE, PREDICTED) == pytest.approx(0.428571, abs=1e-6)
    assert fg_ari(TRUE, PREDICTED) == pytest.approx(0.705882, abs=1e-6)
    assert ari([0, 0, 1, 1], [0, 1, 0, 1]) == pytest.approx(-0.5, abs=1e-12)
    assert miou(TRUE, PREDICTED, ignore_background=False) == pytest.approx(11 / 18, abs=1e-12)
    assert miou(TRUE, PREDICTED) == mbo(TRUE, PREDICTED) == pytest.approx(0.75, abs=1e-12)
    # the same segments with four times the pixels
    assert ari(np.repeat(TRUE, 4), np.repeat(PREDICTED, 4)) == pytest.approx(0.5571, abs=1e-4)
    # one slot for three objects: the two without a partner count 0
    assert miou([1, 1, 2, 2, 3, 3], [0] * 6) == pytest.approx(1 / 9, abs=1e-12)
    assert mbo([1, 1, 2, 2, 3, 3], [0] * 6) == pytest.approx(1 / 3, abs=1e-12)


@pytest.mark.parametrize(
    ("true", "predicted", "value", "has_foreground"),
    [
        pytest.param([0, 0, 0, 0], [0, 1, 2, 2], 1.0, False, id="no foreground point"),
        pytest.param([0, 0, 0, 1], [0, 1, 2, 2], 1.0, True, id="one foreground point"),
        pytest.param([0, 0, 1, 1], [0, 1, 2, 2], 1.0, True, id="one object, one slot on it"),
        pytest.param([0, 0, 1, 1], [0, 1, 2, 3], 0.0, True, id="one object, split in two slots"),
        pytest.param([1] * 1000, [1] * 999 + [0], 0.0, True, id="one object, one pixel of many split off"),
        pytest.param([0, 1, 1, 2, 2], [0, 3, 3, 3, 3], 0.0, True, id="two objects, one slot"),
        pytest.param([1, 2, 3, 4], [3, 0, 1, 2], 1.0, True, id="all points singletons in both"),
        pytest.param([1, 1, 2, 2], [0, 1, 2, 3], 0.0, True, id="all points singletons in one"),
        pytest.param([1, 1, 2, 2], [5, 5, 7, 7], 1.0, True, id="more slots than objects"),
        pytest.param([1, 1, 4, 4], [0, 0, 1, 1], 1.0, True, id="an object absent in between"),
    ],
)
def test_edge_cases_of_fg_ari(true, predicted, value, has_foreground):
    found, valid = adjusted_rand_index(table_of(true, predicted)[..., 1:, :])
    assert found.item() == value
    assert valid.item() is has_foreground


def test_ious_without_an_object_have_no_value():
    table = table_of([[0, 0], [0, 1]], [[0, 1], [0, 1]])
    for value, valid in (matched_iou(table), mean_best_overlap(table)):
        assert value.tolist() == [0.0, 1.0]
        assert valid.tolist() == [False, True]
    assert matched_iou(table, ignore_background=False)[1].all()


@settings(deadline=None, max_examples=50)
@given(random_tables)
def test_scores_do_not_depend_on_the_names_of_ids(case):
    true, predicted = random_labels(*case)
    random = np.random.default_rng(case[-1])
    objects, slots = np.concatenate([[0], 1 + random.permutation(9)]), random.permutation(10)
    for score in (ari, fg_ari, miou, mbo):
        assert score(objects[true], slots[predicted]) == pytest.approx(score(true, predicted), abs=1e-12)
    assert ari(slots[true], predicted) == pytest.approx(ari(true, predicted), abs=1e-12)
    assert ari(predicted, true) == pytest.approx(ari(true, predicted), abs=1e-12)


@settings(deadline=None, max_examples=50)
@given(random_tables)
def test_the_assignment_is_the_best_of_all_and_best_overlap_is_no_less(case):
    true, predicted = random_labels(*case)
    table = table_of(true, predicted)
    iou = np.array([[((true == i) & (predicted == j)).sum() for j in range(table.shape[1])] for i in range(len(table))])
    union = [[((true == i) | (predicted == j)).sum() for j in range(table.shape[1])] for i in range(len(table))]
    iou = iou / np.maximum(union, 1)
    np.testing.assert_allclose(pairwise_iou(table).numpy(), iou, atol=1e-12)
    for first in (0, 1):
        objects = [i for i in range(first, len(table)) if (true == i).any()]
        width = max(len(objects), table.shape[1])
        padded = np.zeros((len(objects), width))
        padded[:, : table.shape[1]] = iou[objects]
        sums = [sum(padded[i, j] for i, j in enumerate(order)) for order in permutations(range(width), len(objects))]
        value, valid = matched_iou(table, ignore_background=first == 1)
        assert valid.item() == bool(objects)
        assert value.item() == pytest.approx(max(sums) / max(len(objects), 1), abs=1e-12)
    assert mean_best_overlap(table)[0] >= matched_iou(table)[0] - 1e-12


def test_a_clip_of_full_size_overflows_nothing():
    generator = torch.Generator().manual_seed(0)
    true = torch.randint(0, 11, (24 * 256 * 256,), generator=generator, dtype=torch.uint8)
    predicted = torch.where(
        torch.rand(true.shape, generator=generator) < 0.6,
        true,
        torch.randint(0, 11, true.shape, generator=generator, dtype=torch.uint8),
    )
    for table in (table_of(true, predicted), table_of(true, predicted).int()):
        expected = adjusted_rand_score(true.numpy(), predicted.numpy())
        assert adjusted_rand_index(table)[0].item() == pytest.approx(expected, abs=1e-9)


def test_perfect_masks_score_one_with_extra_empty_slots_too():
    true = torch.randint(0, 5, (3, 200), generator=torch.Generator().manual_seed(0))
    for table in (contingency(true, true), contingency(true, true, num_predicted=11, num_true=24)):
        scores = adjusted_rand_index(table), matched_iou(table), matched_iou(table, False), mean_best_overlap(table)
        for value, valid in scores:
            assert value.tolist() == [1.0] * 3
            assert valid.all()
