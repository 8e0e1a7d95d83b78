from __future__ import annotations

import pytest
import torch
from slotbench_plugins.cores.single_state_ssm import SingleStateSSM
from slotbench_plugins.cores.slot_ssm import SlotSSM

from slotbench.interfaces import TokenSpec

SPEC = TokenSpec(dim=12, num_tokens=5)


def tokens(batch: int = 2, time: int = 6) -> torch.Tensor:
    return torch.randn(batch, time, 5, 12, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("ssm", ["mamba", "mamba2"])
def test_hands_over_one_slot_and_carries_one_state_per_layer(ssm):
    core = SingleStateSSM(SPEC, dim=16, num_layers=3, ssm=ssm)
    output = core(tokens())
    assert core.slot_spec.num_slots == 1
    assert output.slots.shape == (2, 6, 1, 16)
    assert output.attention.shape == (2, 6, 1, 5)
    assert [leaf.shape[:2] for layer in output.state for leaf in layer] == 6 * [(2, 1)]


def test_is_slot_ssm_with_one_slot():
    single, slots = SingleStateSSM(SPEC, dim=16), SlotSSM(SPEC, 1, dim=16)
    weights = {name.replace("encoder.", "encoders.0.", 1): value for name, value in single.state_dict().items()}
    slots.load_state_dict(weights)
    assert torch.equal(single(tokens()).slots, slots(tokens()).slots)


def test_the_attention_of_a_mixer_over_one_slot_is_a_map_of_its_value():
    core = SingleStateSSM(SPEC, dim=16).double()
    mixer, slot = core.layers[0].mixer, torch.randn(3, 1, 16, dtype=torch.float64)
    attention = mixer.attention
    value = attention.query_key_value(slot).chunk(3, dim=-1)[2]
    torch.testing.assert_close(attention(slot), attention.output(value))
