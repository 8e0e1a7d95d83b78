"""Slots that are alike are merged as scikit-learn clusters them, and masks with them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import AgglomerativeClustering

from slotbench.nn.slot_merging import merge_shares, merged_slots


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 7), st.floats(-0.5, 0.9), st.integers(0, 999))
def test_groups_of_one_step_are_those_of_solvs_call(count, threshold, seed):
    slots = np.random.default_rng(seed).normal(size=(count, 3))
    clustering = AgglomerativeClustering(
        n_clusters=None, metric="cosine", linkage="complete", distance_threshold=1 - threshold, compute_full_tree=True
    )
    expected = clustering.fit_predict(slots)
    found = merged_slots(torch.tensor(slots)[None, None], threshold)[0].numpy()
    np.testing.assert_array_equal(found[:, None] == found, expected[:, None] == expected)
    assert (found[found] == found).all()
    assert (found <= np.arange(count)).all()


def test_groups_hold_for_the_whole_clip():
    slots = torch.eye(3).expand(1, 4, 3, 3).clone()
    slots[0, :3, 2] = slots[0, :3, 0]  # alike in three steps of four
    assert merged_slots(slots, 0.7).tolist() == [[0, 1, 0]]
    assert merged_slots(slots, 0.8).tolist() == [[0, 1, 2]]


def test_one_slot_is_its_own_group():
    assert merged_slots(torch.randn(2, 3, 1, 4), 0.5).tolist() == [[0], [0]]


@pytest.mark.parametrize("rest", [(), (5,), (2, 3)])
def test_the_first_slot_has_the_shares_of_its_group(rest):
    shares = torch.rand(2, 3, 4, *rest).softmax(2)
    groups = torch.tensor([[0, 1, 0, 0], [0, 1, 2, 1]])
    merged = merge_shares(shares, groups)
    torch.testing.assert_close(merged[0, :, 0], shares[0][:, [0, 2, 3]].sum(1))
    torch.testing.assert_close(merged[1, :, 1], shares[1][:, [1, 3]].sum(1))
    assert not merged[0, :, 2:].any()
    torch.testing.assert_close(merged.sum(2), torch.ones(2, 3, *rest))
