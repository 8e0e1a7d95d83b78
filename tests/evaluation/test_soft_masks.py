"""The slot of a pixel: largest share, lowest on a tie, none where no slot has a share; and axes told by their sums."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from slotbench.evaluation.soft_masks import NO_SLOT, check_slots_axis, soft_labels


@given(st.integers(0, 10_000))
def test_labels_are_numpys_argmax_but_where_no_slot_has_a_share(seed):
    rng = np.random.default_rng(seed)
    masks = rng.integers(0, 3, (2, rng.integers(1, 5), 3, 4)) / 4
    labels, ties, unequal = soft_labels(torch.from_numpy(masks))
    nowhere = (masks == 0).all(1)
    assert np.array_equal(labels.numpy(), np.where(nowhere, NO_SLOT, masks.argmax(1)))
    top = (masks == masks.max(1, keepdims=True)).sum(1)
    assert ties == ((top > 1) & ~nowhere).sum()
    assert unequal == ((masks.sum(1) != 1) & ~nowhere).sum()


def test_of_300_slots_none_is_taken_for_no_slot():
    masks = torch.zeros(1, 300, 1, 2)
    masks[0, 299, 0, 0] = 1
    assert soft_labels(masks)[0].tolist() == [[[299, NO_SLOT]]]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_no_numbers_are_refused(value):
    masks = torch.full((1, 2, 2, 2), 0.5)
    masks[0, 1, 0, 0] = value
    with pytest.raises(ValueError, match="no numbers"):
        soft_labels(masks)


def test_logits_may_be_minus_infinity_where_another_slot_is_not():
    masks = torch.tensor([[[[-torch.inf, 2.0]], [[-3.0, -torch.inf]]]])
    assert soft_labels(masks, are_logits=True)[0].tolist() == [[[1, 0]]]
    # of logits every pixel is some slot's
    assert soft_labels(torch.zeros(1, 2, 1, 1), are_logits=True)[0].item() == 0


@pytest.mark.parametrize(("axis", "typed"), [(0, "masks, 0, 1"), (2, "masks, 2, 1"), (3, "masks, -1, 1")])
@pytest.mark.parametrize("shape", [(5, 5, 5, 5), (6, 4, 40, 50)])
def test_another_axis_of_slots_is_told_by_the_sums_though_all_have_one_length(axis, typed, shape):
    masks = np.random.default_rng(0).dirichlet(np.ones(shape[1]), (shape[0], *shape[2:])).astype(np.float16)
    moved = np.moveaxis(masks, -1, axis)
    with pytest.raises(ValueError, match=rf"sum to 1 over axis {axis}(.|\n)*{typed}"):
        check_slots_axis(moved)
    check_slots_axis(np.moveaxis(masks, -1, 1))


def test_logits_and_masks_of_one_slot_are_not_refused():
    rng = np.random.default_rng(0)
    check_slots_axis(rng.normal(size=(3, 4, 8, 8)))
    check_slots_axis(np.ones((3, 1, 8, 8)))
