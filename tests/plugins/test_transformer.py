from __future__ import annotations

import pytest
import torch
from slotbench_plugins.cores.slot_transformer import SlotTransformer
from slotbench_plugins.cores.transformer import Transformer

from slotbench.interfaces import SlotSpec, TokenSpec

SPEC = TokenSpec(dim=12, num_tokens=5)


def tokens(batch: int = 2, time: int = 6) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(batch, time, SPEC.num_tokens, SPEC.dim, generator=generator, dtype=torch.float64)


def small(**arguments) -> Transformer:
    torch.manual_seed(0)
    return Transformer(SPEC, dim=16, num_heads=2, encoder_layers=1, **arguments).double().eval()


def test_there_is_one_embedding_per_step():
    core = small()
    output = core(tokens())
    assert core.slot_spec == SlotSpec(num_slots=1, dim=16)
    assert output.slots.shape == (2, 6, 1, 16)
    assert output.attention.shape == (2, 6, 1, 5)


def test_a_step_sees_itself_and_every_earlier_one_and_exactly_nothing_later():
    x = tokens().requires_grad_()
    slots = small()(x).slots
    for step in range(6):
        (gradient,) = torch.autograd.grad(slots[:, step].square().sum(), x, retain_graph=True)
        assert gradient[0].flatten(1).any(dim=-1).tolist() == (step + 1) * [True] + (5 - step) * [False]


@pytest.mark.parametrize("window", [None, 1, 3])
def test_streaming_with_the_cache_equals_the_clip_in_parallel(window):
    core, x, state, steps = small(window=window), tokens(time=8), None, []
    for step in x.split(1, dim=1):
        output = core(step, state)
        steps.append(output.slots)
        state = output.state
    torch.testing.assert_close(torch.cat(steps, dim=1), core(x).slots, rtol=1e-9, atol=1e-9)
    assert state.next_step.tolist() == [8, 8]


def test_it_is_the_slot_transformer_of_one_slot():
    ours = small()
    theirs = SlotTransformer(SPEC, num_slots=1, dim=16, num_heads=2, encoder_layers=1).double()
    theirs.load_state_dict(ours.state_dict())
    torch.testing.assert_close(theirs(tokens()).slots, ours(tokens()).slots)


def test_training_clips_begin_at_random_indices():
    core = small(random_offset=3).train()
    assert set((core(tokens(batch=64, time=2)).state.next_step - 2).tolist()) == {0, 1, 2, 3}


def test_arguments_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="even dim"):
        Transformer(SPEC, dim=15, num_heads=5)
    with pytest.raises(ValueError, match="window=0"):
        Transformer(SPEC, window=0)
