from __future__ import annotations

import pytest
import torch

from slotbench.nn.parameters import decay_groups
from slotbench.nn.slot_init import GaussianSlots, LearnedSlots


def test_learned_slots_are_the_same_for_every_clip_and_differ_from_one_another():
    slots = LearnedSlots(5, 16)(3)
    assert slots.shape == (3, 5, 16)
    assert torch.equal(slots[0], slots[2])
    assert torch.pdist(slots[0]).min() > 0.1


def test_learned_slots_start_normal_and_cut_off():
    values = LearnedSlots(200, 200).slots
    assert values.abs().max() <= 2
    assert values.std().item() == pytest.approx(0.88, abs=0.01)  # of a standard normal cut at two deviations


def test_learned_slots_do_not_decay():
    init = LearnedSlots(2, 4)
    (group,) = decay_groups(init.parameters())
    assert group["weight_decay"] == 0.0


def test_drawn_slots_differ_between_clips_and_calls_and_repeat_with_the_seed():
    init = GaussianSlots(4, 8)
    torch.manual_seed(3)
    first, second = init(2), init(2)
    torch.manual_seed(3)
    again = init(2)
    assert first.shape == (2, 4, 8)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert torch.pdist(first.flatten(0, 1)).min() > 0.1


def test_mean_and_deviation_of_the_draw_are_learned():
    init = GaussianSlots(2000, 2)
    with torch.no_grad():
        init.mean.copy_(torch.tensor([3.0, -1.0]))
        init.log_deviation.copy_(torch.tensor([0.5, 0.01]).log())
    torch.manual_seed(0)
    slots = init(1)[0]
    torch.testing.assert_close(slots.mean(dim=0), torch.tensor([3.0, -1.0]), rtol=0, atol=0.05)
    torch.testing.assert_close(slots.std(dim=0), torch.tensor([0.5, 0.01]), rtol=0.1, atol=0)
    slots.square().sum().backward()
    assert init.mean.grad.all()
    assert init.log_deviation.grad.all()


def test_draws_follow_the_precision_of_the_module():
    assert GaussianSlots(2, 4).double()(1).dtype == torch.float64


@pytest.mark.parametrize("kind", [LearnedSlots, GaussianSlots])
def test_no_slots_are_refused(kind):
    with pytest.raises(ValueError, match="num_slots=0"):
        kind(0, 8)
