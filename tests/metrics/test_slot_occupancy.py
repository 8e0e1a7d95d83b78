"""How full the slots of a clip are."""

import pytest
import torch

from slotbench.metrics.slot_occupancy import SlotOccupancy, slot_shares


def test_shares_are_of_all_pixels_of_the_clip_and_sum_to_one():
    labels = torch.tensor([[[[0, 0], [1, 2]], [[0, 0], [0, 2]]]])
    assert torch.equal(slot_shares(labels, 4), torch.tensor([[5 / 8, 1 / 8, 2 / 8, 0]], dtype=torch.float64))


def test_a_slot_of_less_than_a_thousandth_of_the_clip_is_not_alive():
    labels = torch.zeros(1, 1, 50, 50, dtype=torch.uint8)
    labels[0, 0, 0, :2], labels[0, 0, 1, :3] = 1, 2
    metric = SlotOccupancy()
    metric.update(labels, num_slots=5)
    assert metric.compute()["live_slots"] == 2


def test_a_clip_in_one_slot_is_collapsed_and_means_are_over_clips():
    one, two = torch.zeros(1, 2, 4, 4, dtype=torch.uint8), torch.zeros(1, 2, 4, 4, dtype=torch.uint8)
    two[0, :, :2] = 1
    metric = SlotOccupancy()
    metric.update(one, num_slots=2)
    metric.update(torch.cat([two, two, two]), num_slots=2)
    values = metric.compute()
    assert values["collapsed"] == 0.25
    assert values["largest_slot"] == pytest.approx((1 + 3 * 0.5) / 4)
    assert values["live_slots"] == pytest.approx((1 + 3 * 2) / 4)
