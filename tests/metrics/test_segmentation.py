"""Contingency tables and what follows from them, against scikit-learn, brute force and the definitions' edge cases."""

from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.cluster import contingency_matrix
from torch.nn import functional as F

from slotbench.metrics import segmentation
from slotbench.metrics.segmentation import (
    adjusted_rand_index,
    compact_ids,
    contingency,
    masks_to_labels,
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


def test_ari_and_fg_ari_agree_with_scikit_learn_on_500_random_pairs_with_gaps_in_their_ids():
    random = np.random.default_rng(0)
    for case in range(500):
        points = int(random.integers(1, 200))
        names = np.concatenate([[0], random.choice(np.arange(1, 5000), 8, replace=False)])
        true, predicted = random_labels(int(random.integers(1, 9)), int(random.integers(1, 9)), points, case)
        true, predicted = names[true], names[predicted] - 3
        front = true > 0
        assert ari(true, predicted) == pytest.approx(adjusted_rand_score(true, predicted), abs=1e-12)
        expected = adjusted_rand_score(true[front], predicted[front]) if front.any() else 1.0
        assert fg_ari(true, predicted) == pytest.approx(expected, abs=1e-12)


def test_ari_counts_pairs_of_points():
    true, predicted = (torch.as_tensor(labels) for labels in random_labels(4, 5, 40, seed=3))
    first, second = torch.triu_indices(40, 40, offset=1)
    same_true, same_predicted = true[first] == true[second], predicted[first] == predicted[second]
    both, expected = (same_true & same_predicted).sum(), same_true.sum() * same_predicted.sum() / len(first)
    maximum = (same_true.sum() + same_predicted.sum()) / 2
    assert ari(true, predicted) == pytest.approx(((both - expected) / (maximum - expected)).item(), abs=1e-6)


def test_worked_examples():
    assert ari(TRUE, PREDICTED) == pytest.approx(0.428571, abs=1e-6)
    assert fg_ari(TRUE, PREDICTED) == pytest.approx(0.705882, abs=1e-6)
    assert ari([0, 0, 1, 1], [0, 1, 0, 1]) == pytest.approx(-0.5, abs=1e-12)
    assert miou(TRUE, PREDICTED, ignore_background=False) == pytest.approx(11 / 18, abs=1e-12)
    assert miou(TRUE, PREDICTED) == mbo(TRUE, PREDICTED) == pytest.approx(0.75, abs=1e-12)
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


def test_perfect_masks_score_one_with_extra_empty_slots_too():
    true = torch.randint(0, 5, (3, 200), generator=torch.Generator().manual_seed(0))
    for table in (contingency(true, true), contingency(true, true, num_predicted=11, num_true=24)):
        scores = adjusted_rand_index(table), matched_iou(table), matched_iou(table, False), mean_best_overlap(table)
        for value, valid in scores:
            assert value.tolist() == [1.0] * 3
            assert valid.all()


def test_doubling_the_pixels_leaves_ious_as_they_are_and_hardly_moves_ari():
    true, predicted = random_labels(4, 6, 10_000, seed=1)
    twice = np.repeat(true, 4), np.repeat(predicted, 4)
    assert miou(*twice) == pytest.approx(miou(true, predicted), abs=1e-12)
    assert mbo(*twice) == pytest.approx(mbo(true, predicted), abs=1e-12)
    assert ari(*twice) == pytest.approx(ari(true, predicted), abs=1e-3)
    assert ari(np.repeat(TRUE, 4), np.repeat(PREDICTED, 4)) == pytest.approx(0.5571, abs=1e-4)


def test_a_slot_that_grows_into_the_background_costs_iou_and_no_fg_ari():
    true = np.array([0] * 10 + [1] * 5 + [2] * 5)
    tight, grown = np.where(true == 0, 7, true), true.copy()
    grown[:10] = 1
    assert fg_ari(true, tight) == fg_ari(true, grown) == 1.0
    assert miou(true, tight) == mbo(true, tight) == 1.0
    assert miou(true, grown) == mbo(true, grown) == pytest.approx((5 / 15 + 1) / 2)


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


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.int64])
def test_tables_of_any_integer_type_and_batch_count_what_scikit_learn_counts(dtype):
    generator = torch.Generator().manual_seed(1)
    true, predicted = (torch.randint(0, n, (2, 3, 500), generator=generator) for n in (24, 11))
    table = contingency(predicted.to(dtype), true.to(dtype))
    assert table.shape == (2, 3, 24, 11)
    assert table.dtype == torch.int64
    for sample in np.ndindex(2, 3):
        assert (table[sample].numpy() == contingency_matrix(true[sample].numpy(), predicted[sample].numpy())).all()


def test_work_in_parts_gives_the_same_tables_and_labels(monkeypatch):
    generator = torch.Generator().manual_seed(2)
    true, predicted = torch.randint(0, 9, (2, 7, 60), generator=generator)
    valid = torch.rand(7, 60, generator=generator) < 0.7
    masks = torch.rand(7, 4, 5, 6, generator=generator)
    whole = contingency(predicted, true), contingency(predicted, true, valid=valid), masks_to_labels(masks, (10, 11))
    monkeypatch.setattr(segmentation, "_POINTS_ON_CPU", 200)
    parts = contingency(predicted, true), contingency(predicted, true, valid=valid), masks_to_labels(masks, (10, 11))
    for one, other in zip(whole, parts, strict=True):
        assert (one == other).all()


def test_points_that_do_not_count_may_have_any_id():
    true, predicted = (torch.as_tensor(labels) for labels in random_labels(4, 5, 100, seed=5))
    valid = torch.arange(100) % 3 != 0
    expected = contingency(predicted[valid], true[valid], 5, 5)
    spoiled_true, spoiled = (torch.where(valid, labels, torch.tensor(-77_777_777)) for labels in (true, predicted))
    assert (contingency(spoiled, spoiled_true, 5, 5, valid=valid) == expected).all()
    assert (contingency(spoiled, spoiled_true, valid=valid) == expected).all()
    nothing = contingency(predicted, true, 5, 5, valid=torch.zeros_like(valid))
    assert nothing.sum() == 0


def test_an_id_beyond_the_number_given_is_an_error_and_does_not_vanish():
    with pytest.raises(ValueError, match="true ids go from 0 to 4, and num_true=4 allows 0 to 3"):
        contingency(torch.zeros(2, dtype=torch.int64), torch.tensor([0, 4]), num_true=4)
    with pytest.raises(ValueError, match="predicted ids go from -1 to 0"):
        contingency(torch.tensor([-1, 0]), torch.tensor([0, 1]), num_predicted=3)


@pytest.mark.parametrize("names", [[0, 200, 201, 255], [0, -5, 7, 9000], [0, 10**12, -(10**12), 64]])
def test_ids_are_renumbered_within_each_sample_and_background_stays_zero(names):
    order = torch.randint(0, 4, (3, 2, 50), generator=torch.Generator().manual_seed(0))
    order[0, 0][order[0, 0] == 2] = 0  # an id that one sample lacks
    order[1, 1] = order[1, 1].clamp(min=1)  # a sample without background
    labels = torch.tensor(names)[order]
    compact = compact_ids(labels)
    assert compact.max() == 3
    assert ((compact == 0) == (labels == 0)).all()
    for sample in np.ndindex(3, 2):
        one, other = labels[sample], compact[sample]
        assert ((one[:, None] == one) == (other[:, None] == other)).all()
        front = other[other > 0].unique()
        assert (front == torch.arange(1, len(front) + 1)).all()


def test_small_ids_stay_as_they_are_and_no_points_are_no_problem():
    labels = torch.tensor([[0, 5, 63]], dtype=torch.uint8)
    assert compact_ids(labels) is labels
    empty = contingency(torch.zeros(2, 0, dtype=torch.int64), torch.zeros(2, 0, dtype=torch.int64))
    assert empty.sum() == 0
    assert len(empty) == 2
    value, valid = adjusted_rand_index(empty)
    assert value.tolist() == [1.0, 1.0]
    assert not valid.any()


@settings(deadline=None, max_examples=20)
@given(slots=st.integers(1, 5), height=st.integers(1, 4), factor=st.integers(1, 3), seed=st.integers(0, 99))
def test_soft_masks_are_resized_before_the_argmax(slots, height, factor, seed):
    masks = torch.rand(2, 3, slots, height, 4, generator=torch.Generator().manual_seed(seed)).softmax(2)
    size = height * factor, 4 * factor
    resized = F.interpolate(masks.flatten(0, 1), size, mode="bilinear", align_corners=False)
    assert (masks_to_labels(masks, size) == resized.argmax(1).view(2, 3, *size)).all()
    assert (masks_to_labels(masks) == masks.argmax(2)).all()


def test_the_lowest_slot_wins_a_tie_and_any_number_of_slots_has_a_type():
    assert (masks_to_labels(torch.full((2, 7, 3, 3), 1 / 7)) == 0).all()
    many = torch.zeros(1, 300, 2, 2).index_fill(1, torch.tensor([299]), 1.0)
    assert (masks_to_labels(many) == 299).all()
    half = torch.rand(2, 4, 3, 3).bfloat16()
    assert (masks_to_labels(half) == half.argmax(1)).all()
    assert masks_to_labels(half, (6, 6)).shape == (2, 6, 6)
