from __future__ import annotations

import pytest
import torch
from slotbench_plugins.cores.rim import GRU
from small_rim import SPEC, tokens
from torch import nn

from slotbench.interfaces import TokenSpec


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


def test_a_width_of_nothing_is_refused():
    with pytest.raises(ValueError, match="dim=0: give the width"):
        GRU(SPEC, 0)
