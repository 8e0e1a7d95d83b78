from __future__ import annotations

import inspect

import pytest
import torch

from slotbench.interfaces import SlotSpec
from slotbench.nn.slot_init import GaussianSlots, InitialisedSlots, LearnedSlots, drawn_by_clip, initial_slots


def test_learned_slots_are_the_same_for_every_clip_and_differ_from_one_another():
    slots = LearnedSlots(5, 16)(3)
    assert slots.shape == (3, 5, 16)
    assert torch.equal(slots[0], slots[2])
    assert torch.pdist(slots[0]).min() > 0.1


def test_learned_slots_start_normal_and_cut_off():
    values = LearnedSlots(200, 200).slots
    assert values.abs().max() <= 2
    assert values.std().item() == pytest.approx(0.88, abs=0.01)  # of a standard normal cut at two deviations


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


def test_drawn_slots_may_become_any_number_and_learned_ones_may_not():
    drawn, learned = GaussianSlots(4, 8), LearnedSlots(4, 8)
    drawn.num_slots = 9
    assert drawn(2).shape == (2, 9, 8)
    with pytest.raises(ValueError, match="num_slots=0"):
        drawn.num_slots = 0
    assert drawn.num_slots == 9
    learned.num_slots = 4
    with pytest.raises(ValueError, match="num_slots=9, but the slots are learned"):
        learned.num_slots = 9


def test_a_name_stands_for_an_initialisation():
    assert isinstance(initial_slots("learned", 2, 4), LearnedSlots)
    assert isinstance(initial_slots("gaussian", 2, 4), GaussianSlots)
    with pytest.raises(ValueError, match="no slot_init named 'zeros'; choose one of learned, gaussian"):
        inspect.unwrap(initial_slots)("zeros", 2, 4)


@pytest.mark.parametrize(("kind", "declared"), [("learned", {"slot_init.slots": 0}), ("gaussian", None)])
def test_who_has_initial_slots_says_how_many_and_what_tells_them_apart(kind, declared):
    class Core(InitialisedSlots):
        def __init__(self):
            self.slot_init, self.slot_spec = initial_slots(kind, 4, 8), SlotSpec(4, 8)

    core = Core()
    assert core.slot_parameters() == declared
    assert core.draws_slots == (kind == "gaussian")
    if core.draws_slots:
        core.num_slots = 6
        assert core.slot_spec == SlotSpec(6, 8)
        assert core.slot_init(1).shape == (1, 6, 8)
    else:
        with pytest.raises(ValueError, match="num_slots=6"):
            core.num_slots = 6
        assert core.slot_spec == SlotSpec(4, 8)


def test_slots_drawn_by_clip_depend_on_nothing_but_the_number_of_the_clip():
    slots = GaussianSlots(num_slots=3, dim=4).double()
    with torch.no_grad():
        slots.mean.fill_(2.0)
        with drawn_by_clip([5, 9, 7]):
            together, again = slots(3), slots(3)
        with drawn_by_clip([7]):
            torch.rand(3)
            alone = slots(1)
    assert torch.equal(together, again)
    assert torch.equal(together[2:], alone)
    assert together.dtype == torch.float64
    assert not torch.isclose(together[0], together[1]).any()
    with drawn_by_clip([1, 2]), pytest.raises(ValueError, match="2 clips, and the batch has 3"):
        slots(3)
    assert not torch.equal(slots(3), slots(3))  # and outside it every call draws anew
