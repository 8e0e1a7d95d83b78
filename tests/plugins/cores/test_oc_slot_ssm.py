from __future__ import annotations

import pytest
import torch
from slotbench_plugins.cores.oc_slot_ssm import OCSlotSSM, OCSlotSSMState
from torch import Tensor

from slotbench.interfaces import TokenSpec

SPEC = TokenSpec(dim=12, num_tokens=5)


def tokens(time: int = 4, batch: int = 2, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, time, 5, 12, generator=generator, dtype=torch.float64)


def small(num_slots: int = 3, **arguments) -> OCSlotSSM:
    """A core in double precision whose parameters are off their initial values."""
    torch.manual_seed(0)
    core = OCSlotSSM(SPEC, num_slots, **{"dim": 16} | arguments).double()
    with torch.no_grad():
        for parameter in core.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return core


@pytest.mark.parametrize("heads", [1, 4])
def test_every_layer_reads_the_raw_tokens_then_runs_through_time(heads):
    core, x = small(bottom_up_heads=heads, num_layers=3), tokens()
    slots = core.slot_init(2)[:, None].expand(-1, 4, -1, -1)
    frames = core.token_projection(x)
    for reader, layer in zip(core.readers, core.layers, strict=True):
        read = []
        for frame in range(4):
            update, shares, _ = reader.attention(reader.slot_norm(slots[:, frame]), reader.token_norm(frames[:, frame]))
            read.append(slots[:, frame] + update)
        slots, _ = layer(torch.stack(read, 1))
    output = core(x)
    torch.testing.assert_close(output.slots, slots)
    torch.testing.assert_close(output.attention[:, -1], shares)
    torch.testing.assert_close(output.attention.sum(dim=2), torch.ones(2, 4, 5).double())


def test_drawn_slots_are_kept_for_the_clip_and_may_be_any_number():
    core, x = small(slot_init="gaussian"), tokens()
    core.num_slots = 6
    begun = core(x[:, :2])
    assert begun.slots.shape == (2, 2, 6, 16)
    assert begun.state.drawn.shape == (2, 6, 16)
    again = core(x[:, :2], begun.state)
    fresh = core(x[:, :2], OCSlotSSMState(begun.state.drawn, begun.state.layers))
    assert torch.equal(again.slots, fresh.slots)
    assert core.slot_parameters() is None
    with pytest.raises(ValueError, match="num_slots=6"):
        small().num_slots = 6


def test_parameter_count_is_the_sum_of_its_parts_at_the_size_of_the_paper():
    core = OCSlotSSM(TokenSpec(dim=192, num_tokens=4096), 11, dim=192, num_layers=3, bottom_up_heads=4)
    square = 192 * 192 + 192
    norm = 2 * 192
    reader = 4 * 192 * 192 + 2 * norm
    mixer = 4 * square + 192 * 768 + 768 + 768 * 192 + 192 + 2 * norm
    layer = reader + 157_200 + norm + mixer
    assert sum(parameter.numel() for parameter in core.parameters()) == 3 * layer + 11 * 192
