"""What cores have in common whose slots are read by learned queries and treated alike from then on."""

from __future__ import annotations

import pytest
import torch
from slotbench_plugins.cores.slot_rnn import SlotRNN
from slotbench_plugins.cores.slot_ssm import SlotSSM
from slotbench_plugins.cores.slot_transformer import SlotTransformer

from slotbench.interfaces import TemporalCore, TokenSpec

SPEC = TokenSpec(dim=12, num_tokens=5)
CORES = pytest.mark.parametrize("kind", [SlotSSM, SlotRNN, SlotTransformer])


def small(kind: type[TemporalCore], num_slots: int = 3) -> TemporalCore:
    torch.manual_seed(0)
    return kind(SPEC, num_slots, dim=16, num_heads=2, encoder_layers=1).double()


def tokens() -> torch.Tensor:
    return torch.randn(2, 6, 5, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@CORES
def test_equal_queries_give_equal_slots_for_ever_and_the_default_start_does_not(kind):
    core = small(kind)
    assert torch.pdist(core(tokens()).slots[0, -1]).min() > 0.1
    (name,) = core.slot_parameters()
    queries = core.get_parameter(name)
    with torch.no_grad():
        queries.copy_(queries[:1].expand(3, -1))
    slots = core(tokens()).slots
    torch.testing.assert_close(slots, slots[:, :, :1].expand_as(slots))


@CORES
def test_attention_says_which_tokens_a_slot_read(kind):
    output = small(kind)(tokens())
    assert output.attention_kind == "reading"
    assert output.attention.shape == (2, 6, 3, 5)
    torch.testing.assert_close(output.attention.sum(dim=-1), torch.ones(2, 6, 3, dtype=torch.float64))
