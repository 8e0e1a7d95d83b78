from __future__ import annotations

import pytest
import torch
from slotbench_plugins.cores.slot_attention import SlotAttention, SlotAttentionState
from torch import Tensor

from slotbench.interfaces import TokenSpec

SPEC = TokenSpec(dim=12, num_tokens=5)


def tokens(time: int = 4, batch: int = 2, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, time, 5, 12, generator=generator, dtype=torch.float64)


def small(num_slots: int = 3, **arguments) -> SlotAttention:
    torch.manual_seed(0)
    return SlotAttention(SPEC, num_slots, **{"dim": 16} | arguments).double()


@pytest.mark.parametrize("slot_init", ["gaussian", "learned"])
def test_every_frame_is_on_its_own_and_starts_from_the_same_slots(slot_init):
    core, x = small(slot_init=slot_init), tokens()
    initial = core.slot_init(2)
    output = core(x, SlotAttentionState(initial) if slot_init == "gaussian" else None)
    for frame in range(4):
        corrected = core.corrector(initial, x[:, frame], 3)
        torch.testing.assert_close(output.slots[:, frame], corrected.slots)
        torch.testing.assert_close(output.attention[:, frame], corrected.assignment)
    shuffled = core(x[:, [2, 0, 3, 1]], output.state)
    torch.testing.assert_close(shuffled.slots, output.slots[:, [2, 0, 3, 1]])


def test_what_was_drawn_for_a_clip_is_kept():
    core, x = small(), tokens()
    first = core(x[:, :2])
    torch.testing.assert_close(core(x[:, :2], first.state).slots, first.slots)
    assert (core(x[:, :2]).slots - first.slots).abs().max() > 1e-3
    assert first.state.drawn.shape == (2, 3, 16)
    assert small(slot_init="learned")(x).state.drawn is None


def test_slots_and_iterations_may_be_other_numbers_at_test_time():
    core, x = small(num_iterations=3).eval(), tokens(1)
    core.num_slots, core.num_iterations = 11, 5
    output = core(x)
    assert output.slots.shape == (2, 1, 11, 16)
    torch.testing.assert_close(output.attention.sum(dim=2), torch.ones(2, 1, 5).double())
    expected = core.corrector(output.state.drawn, x[:, 0], 5).slots
    torch.testing.assert_close(output.slots[:, 0], expected)
    with pytest.raises(ValueError, match="num_slots=0"):
        core.num_slots = 0
    with pytest.raises(ValueError, match="learned, one vector each, and there are 3"):
        small(slot_init="learned").num_slots = 11


@pytest.mark.parametrize(("dim", "mlp_ratio", "count"), [(64, 2, 54_336), (128, 4, 280_960)])
def test_parameter_counts_are_those_of_the_paper(dim, mlp_ratio, count):
    core = SlotAttention(TokenSpec(dim=dim, num_tokens=16), 7, dim=dim, mlp_ratio=mlp_ratio)
    assert sum(parameter.numel() for parameter in core.parameters()) == count
