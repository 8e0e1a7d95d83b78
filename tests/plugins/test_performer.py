from __future__ import annotations

import pytest
import torch
from slotbench_plugins.cores.frame_transformer import FrameTransformer
from slotbench_plugins.cores.performer import Performer

from slotbench.interfaces import TokenSpec

SPEC = TokenSpec(dim=5, num_tokens=4, grid=(2, 2))


def test_its_weights_are_those_of_the_transformer_and_with_many_features_so_are_its_slots():
    torch.manual_seed(0)
    transformer = FrameTransformer(SPEC, dim=16).double()
    with torch.no_grad():
        for layer in transformer.sequence.layers:
            # short queries and keys, where features are a good stand-in
            layer.attention.query_key_value.weight[:32] *= 0.4
    tokens = torch.randn(2, 20, 4, 5, dtype=torch.float64)
    exact = transformer(tokens).slots
    errors = []
    for num_features in (8, 4096):
        performer = Performer(SPEC, dim=16, num_features=num_features).double()
        missing, unexpected = performer.load_state_dict(transformer.state_dict(), strict=False)
        assert not unexpected
        assert {name.rpartition(".")[2] for name in missing} == {"directions", "clips"}
        errors.append(((performer(tokens).slots - exact).norm() / exact.norm()).item())
    assert errors[1] < 0.2 * errors[0], errors
    assert errors[1] < 0.01, errors


def test_layers_have_features_of_their_own_which_no_global_seed_changes():
    first = [layer.attention.directions for layer in Performer(SPEC).sequence.layers]
    torch.manual_seed(123)
    second = [layer.attention.directions for layer in Performer(SPEC).sequence.layers]
    assert not torch.equal(first[0], first[1])
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_features_are_redrawn_in_training_only_and_travel_with_a_checkpoint():
    core, tokens = Performer(SPEC, dim=16, redraw=1), torch.randn(1, 3, 4, 5)
    start = core.sequence.layers[0].attention.directions.clone()
    core.eval()
    core(tokens), core(tokens)
    assert torch.equal(core.sequence.layers[0].attention.directions, start)
    core.train()
    core(tokens), core(tokens)
    assert not torch.equal(core.sequence.layers[0].attention.directions, start)
    fresh = Performer(SPEC, dim=16, redraw=1)
    fresh.load_state_dict(core.state_dict())
    torch.testing.assert_close(fresh.eval()(tokens).slots, core.eval()(tokens).slots)


@pytest.mark.parametrize("time", [1, 5, 300])
def test_a_long_clip_runs_in_parallel_and_backwards(time):
    torch.manual_seed(0)
    core, tokens = Performer(SPEC, dim=16), torch.randn(2, time, 4, 5, requires_grad=True)
    slots = core(tokens).slots
    assert slots.isfinite().all()
    slots.square().sum().backward()
    assert tokens.grad.isfinite().all()
    assert tokens.grad.flatten(2).any(dim=-1).all()
