"""Tables of counts from any labels and soft masks, in any batch, against scikit-learn's."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics.cluster import contingency_matrix
from torch.nn import functional as F

from slotbench.metrics import contingency as module
from slotbench.metrics.contingency import compact_ids, contingency, masks_to_labels


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
    monkeypatch.setattr(module, "_POINTS_ON_CPU", 200)
    parts = contingency(predicted, true), contingency(predicted, true, valid=valid), masks_to_labels(masks, (10, 11))
    for one, other in zip(whole, parts, strict=True):
        assert (one == other).all()


def test_points_that_do_not_count_may_have_any_id():
    true, predicted = torch.randint(0, 5, (2, 100), generator=torch.Generator().manual_seed(5))
    valid = torch.arange(100) % 3 != 0
    expected = contingency(predicted[valid], true[valid], 5, 5)
    spoiled_true, spoiled = (torch.where(valid, labels, torch.tensor(-77_777_777)) for labels in (true, predicted))
    assert (contingency(spoiled, spoiled_true, 5, 5, valid=valid) == expected).all()
    assert (contingency(spoiled, spoiled_true, valid=valid) == expected).all()
    spoiled_true, spoiled = (torch.where(valid, labels, 60_000).to(torch.uint16) for labels in (true, predicted))
    assert (contingency(spoiled, spoiled_true, valid=valid) == expected).all()
    nothing = contingency(predicted, true, 5, 5, valid=torch.zeros_like(valid))
    assert nothing.sum() == 0


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
    half = torch.rand(2, 4, 8, 8, generator=torch.Generator().manual_seed(0)).bfloat16().requires_grad_()
    assert (masks_to_labels(half) == half.argmax(1)).all()
    assert (masks_to_labels(half, (30, 30)) == masks_to_labels(half.float(), (30, 30))).all()
