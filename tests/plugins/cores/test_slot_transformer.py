from __future__ import annotations

from functools import partial

import pytest
import torch
from slotbench_plugins.cores.slot_transformer import SlotTransformer
from slotbench_plugins.cores.transformer import Transformer

from slotbench.interfaces import SlotSpec, TokenSpec

SPEC = TokenSpec(dim=12, num_tokens=5)


def tokens(batch: int = 2, time: int = 6) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(batch, time, SPEC.num_tokens, SPEC.dim, generator=generator, dtype=torch.float64)


def small(num_slots: int = 3, **arguments) -> SlotTransformer:
    torch.manual_seed(0)
    core = SlotTransformer(SPEC, num_slots, dim=16, num_heads=2, encoder_layers=1, **arguments)
    return core.double().eval()


def test_with_a_window_a_slot_depends_on_window_less_one_steps_per_layer():
    core, x = small(num_layers=2, window=3), tokens(time=9).requires_grad_()
    (gradient,) = torch.autograd.grad(core(x).slots[:, 8].square().sum(), x)
    assert gradient[0].flatten(1).any(dim=-1).tolist() == 4 * [False] + 5 * [True]


def test_a_training_clip_begins_at_a_random_index_of_its_own():
    core, x = small(random_offset=3).train(), tokens(batch=64, time=2)
    first = core(x).state.next_step - 2
    assert set(first.tolist()) == {0, 1, 2, 3}
    assert core(x[:1], core(x[:1]).state).state.next_step.item() in range(4, 8)


def test_a_clip_that_begins_at_an_offset_has_the_positions_of_that_part_of_a_longer_one():
    core, x = small(random_offset=5, window=1), tokens(batch=8)
    whole, start = core(x), core(x[:, :2]).state
    torch.manual_seed(1)
    shifted = core.train()(x[:, 2:])
    begun_at_two = shifted.state.next_step == 4 + 2
    assert begun_at_two.any()
    torch.testing.assert_close(shifted.slots[begun_at_two], whole.slots[begun_at_two, 2:])
    torch.testing.assert_close(core(x[:, 2:], start).slots, whole.slots[:, 2:])


def test_without_training_or_with_a_state_no_offset_is_drawn():
    core, x = small(random_offset=50), tokens()
    assert core(x).state.next_step.tolist() == [6, 6]
    state = core(x).state
    assert core.train()(x, state).state.next_step.tolist() == [12, 12]


def test_cache_of_a_long_clip_is_two_numbers_per_token_and_channel():
    caches = SlotTransformer(SPEC, num_slots=6)(tokens(batch=1, time=20).float()).state.caches
    assert [sum(part.numel() for part in cache) for cache in caches] == 2 * [2 * 20 * 6 * 64]


def test_the_transformer_is_the_slot_transformer_of_one_slot():
    arguments = {"dim": 16, "num_layers": 3, "num_heads": 2, "encoder_layers": 1, "mlp_ratio": 2}
    cores = []
    for build in (partial(SlotTransformer, num_slots=1), Transformer):
        torch.manual_seed(0)
        cores.append(build(SPEC, window=3, random_offset=5, **arguments).double())
    slots, single = cores
    assert single.slot_spec == SlotSpec(num_slots=1, dim=16)
    assert single.transformer.random_offset == 5
    assert all(torch.equal(value, slots.state_dict()[name]) for name, value in single.state_dict().items())
    first, second = (core.eval()(tokens()) for core in cores)
    assert torch.equal(first.slots, second.slots)
    assert second.attention.shape == (2, 6, 1, 5)
    assert single.slot_parameters() is None
    with pytest.raises(TypeError, match="num_slots"):
        Transformer(SPEC, num_slots=2)
