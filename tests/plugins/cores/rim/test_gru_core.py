from __future__ import annotations

from functools import partial

import pytest
import torch
from slotbench_plugins.cores.rim import GRU
from small_rim import SPEC, tokens
from torch import nn

from slotbench.interfaces import TokenSpec
from slotbench.nn.slot_init import drawn_by_clip
from slotbench.testing.laws import autocast_stays_close, past_ignores_future, splitting_carries_state


def test_the_state_is_that_of_a_gru_cell_on_all_tokens_of_a_step():
    core = GRU(SPEC, 7).double()
    cell = nn.GRUCell(SPEC.num_tokens * SPEC.dim, 7).double()
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in core.gru.state_dict().items()})
    hidden = torch.zeros(2, 7, dtype=torch.float64)
    output = core(tokens())
    for step in range(6):
        hidden = cell(tokens()[:, step].flatten(1), hidden)
        torch.testing.assert_close(output.slots[:, step, 0], hidden)
    torch.testing.assert_close(output.state, hidden)


def test_parameters_count_as_in_the_thesis():
    for dim, expected in ((600, 1_198_800), (258, 250_776)):
        assert sum(p.numel() for p in GRU(TokenSpec(64, 1), dim).parameters()) == expected


def test_a_start_from_noise_is_drawn_anew_for_every_clip_and_is_the_state_before_the_first_step():
    core = GRU(SPEC, 7, initial="normal").double()
    x = tokens()[:1].expand(2, -1, -1, -1)
    torch.manual_seed(0)
    first, second = core(x), core(x)
    assert not torch.allclose(first.slots[0, 0], first.slots[1, 0])
    assert not torch.allclose(first.slots, second.slots)
    torch.manual_seed(0)
    start = torch.randn(2, 7, dtype=torch.float64)
    torch.testing.assert_close(core(x, start).slots, first.slots)


def test_by_clip_a_start_is_that_of_the_clip_whatever_else_is_in_the_batch():
    core, x = GRU(SPEC, 7, initial="normal").double(), tokens()
    with drawn_by_clip([5, 9]):
        both = core(x)
    with drawn_by_clip([9]):
        alone = core(x[1:])
    torch.testing.assert_close(alone.slots, both.slots[1:])
    with drawn_by_clip([5]):
        assert not torch.allclose(core(x[1:]).slots, alone.slots)


@pytest.mark.parametrize("initial", ["zeros", "normal"])
def test_either_start_keeps_the_laws(initial):
    for law in (splitting_carries_state, past_ignores_future, autocast_stays_close):
        law(partial(GRU, dim=6, initial=initial))
