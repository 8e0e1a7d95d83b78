from __future__ import annotations

import pytest
import torch
from slotbench_plugins.cores.slot_ssm import SlotSSM
from slotbench_plugins.cores.split_ssm import SplitSSM

from slotbench.interfaces import TokenSpec
from slotbench.nn.slot_ssm_layer import SlotSSMStack

SPEC = TokenSpec(dim=12, num_tokens=5)


class NoLayers(SlotSSMStack):
    """A stack that hands on what it is given."""

    def forward(self, slots, state=None):
        return slots, ()


def tokens(batch: int = 2, time: int = 6) -> torch.Tensor:
    return torch.randn(batch, time, 5, 12, generator=torch.Generator().manual_seed(0))


def small(**arguments) -> SplitSSM:
    return SplitSSM(SPEC, **{"num_slots": 3, "dim": 16, "stack_dim": 32, "encoder_layers": 1, **arguments})


def test_slots_come_back_as_they_went_in_where_nothing_is_in_between():
    core = small(stack_dim=None)
    core.layers = NoLayers(48)
    x = tokens()
    slots, _ = core.encoder(x.flatten(0, 1))
    assert torch.equal(core(x).slots, slots.unflatten(0, (2, 6)))


@pytest.mark.parametrize("stack_dim", [None, 32])
def test_every_slot_depends_on_every_other(stack_dim):
    core = small(stack_dim=stack_dim)
    queries = core.encoder.queries
    # self-attention over the queries couples slots too: cut it, so that only the stack is left to do so
    for layer in core.encoder.layers:
        torch.nn.init.zeros_(layer.self_attention.output.weight)
    for slot in range(3):
        (gradient,) = torch.autograd.grad(core(tokens()).slots[:, -1, slot].square().sum(), queries)
        assert (gradient.abs().amax(dim=-1) > 0).all()


def test_one_state_carries_all_slots():
    output = small(num_layers=3)(tokens())
    assert output.slots.shape == (2, 6, 3, 16)
    assert output.attention is None
    assert [tuple(layer.ssm.shape) for layer in output.state] == 3 * [(2, 1, 40, 16)]


@pytest.mark.parametrize("cut", [0, 1, 3, 5])
@pytest.mark.parametrize("stack_dim", [None, 32])
def test_streaming_after_a_prefix_equals_the_whole_clip(cut, stack_dim):
    core, x = small(stack_dim=stack_dim).double(), tokens().double()
    whole, state, slots = core(x).slots, None, []
    for piece in [x[:, :cut], *x[:, cut:].split(1, dim=1)]:
        if piece.shape[1]:
            output = core(piece, state)
            state = output.state
            slots.append(output.slots)
    torch.testing.assert_close(torch.cat(slots, dim=1), whole, rtol=1e-9, atol=1e-9)


def test_without_projections_the_layers_are_as_wide_as_all_slots_together():
    core = small(stack_dim=None)
    assert core.layers[0].ssm_norm.normalized_shape == (48,)
    assert not list(core.join.parameters())
    assert not list(core.split.parameters())


def test_the_default_width_makes_it_about_as_large_as_slot_ssm():
    spec = TokenSpec(dim=64, num_tokens=16)
    split, slots = (sum(p.numel() for p in core(spec).parameters()) for core in (SplitSSM, SlotSSM))
    assert abs(split / slots - 1) < 0.1


def test_widths_that_do_not_come_out_even_are_refused():
    with pytest.raises(ValueError, match="dim=30 does not split into num_heads=4"):
        small(stack_dim=30)
    with pytest.raises(ValueError, match="set head_dim to one of"):
        small(stack_dim=36, ssm="mamba2")
