from __future__ import annotations

import pytest
import torch
from slotbench_plugins.aggregations.batch_scaled import BatchScaled
from slotbench_plugins.cores.savi import SAVi, SAViState
from slotbench_plugins.cores.slot_attention import SlotAttention
from torch import Tensor

from slotbench.interfaces import TokenSpec

SPEC = TokenSpec(dim=12, num_tokens=5)


def tokens(time: int = 4, batch: int = 2, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, time, 5, 12, generator=generator, dtype=torch.float64)


def small(num_slots: int = 3, **arguments) -> SAVi:
    """A core in double precision whose parameters are off their initial values."""
    torch.manual_seed(0)
    core = SAVi(SPEC, num_slots, **{"dim": 16} | arguments).double()
    with torch.no_grad():
        for parameter in core.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return core


def by_frames(core: SAVi, x: Tensor, first: int, others: int) -> tuple[Tensor, Tensor]:
    """Initial slots are corrected by the first frame, and what the predictor makes of them by the next."""
    slots, outputs, shares = core.slot_init(len(x)), [], []
    for frame in range(x.shape[1]):
        if frame:
            slots = core.predictor(slots)
        corrected = core.corrector(slots, x[:, frame], others if frame else first)
        slots = corrected.slots
        outputs.append(slots)
        shares.append(corrected.assignment)
    return torch.stack(outputs, 1), torch.stack(shares, 1)


@pytest.mark.parametrize(("first", "others"), [(None, 1), (3, 1), (1, 2)])
def test_corrects_by_each_frame_and_predicts_between_them(first, others):
    core, x = small(num_iterations=others, first_iterations=first), tokens()
    slots, shares = by_frames(core, x, first or others, others)
    output = core(x)
    torch.testing.assert_close(output.slots, slots)
    torch.testing.assert_close(output.attention, shares)
    torch.testing.assert_close(output.attention.sum(dim=2), torch.ones(2, 4, 5).double())


def test_a_clip_that_goes_on_has_no_first_frame():
    core, x = small(num_iterations=1, first_iterations=3), tokens()
    start = core(x[:, :1])
    assert isinstance(start.state, SAViState)
    torch.testing.assert_close(core(x[:, 1:], start.state).slots, core(x).slots[:, 1:])
    assert (core(x[:, 1:]).slots - core(x).slots[:, 1:]).abs().max() > 1e-3


def test_one_frame_is_slot_attention():
    core, x = small(), tokens(1)
    static = SlotAttention(SPEC, 3, dim=16, num_iterations=2, mlp_ratio=4, slot_init="learned").double()
    static.corrector.load_state_dict(core.corrector.state_dict())
    static.slot_init.load_state_dict(core.slot_init.state_dict())
    torch.testing.assert_close(static(x).slots, core(x).slots)
    assert (static(tokens()).slots - core(tokens()).slots)[:, 1:].abs().max() > 1e-3


@pytest.mark.parametrize(("slot_init", "count"), [("gaussian", 1_074_816), ("learned", 1_076_544)])
def test_parameter_counts_are_those_of_the_baseline_of_the_psb_paper(slot_init, count):
    core = SAVi(TokenSpec(dim=192, num_tokens=16), 11, dim=192, num_iterations=3, slot_init=slot_init)
    assert sum(parameter.numel() for parameter in core.parameters()) == count


def test_drawn_slots_may_be_any_number_at_test_time_and_iterations_too():
    core, x = small(slot_init="gaussian"), tokens()
    parameters = {name: value.clone() for name, value in core.state_dict().items()}
    core.num_slots, core.num_iterations, core.first_iterations = 7, 5, 4
    torch.manual_seed(0)
    output = core(x)
    assert output.slots.shape == (2, 4, 7, 16)
    assert output.attention.shape == (2, 4, 7, 5)
    assert (core.num_slots, core.slot_spec.num_slots) == (7, 7)
    torch.manual_seed(0)
    torch.testing.assert_close(output.slots, by_frames(core, x, 4, 5)[0])
    assert core.state_dict().keys() == parameters.keys()


def test_batch_scaling_measures_a_clip_once_and_carries_it_on():
    core, x = small(aggregation=BatchScaled, num_iterations=2), tokens()
    whole = core(x)
    scale = core.corrector.attention.aggregation
    assert whole.state.statistics.shape == (2, 2)
    torch.testing.assert_close(scale.running_mean, 0.1 * whole.state.statistics[0, 0])
    moved = scale.running_mean.clone()
    begun = core(x[:, :2])
    assert not torch.equal(scale.running_mean, moved)
    moved = scale.running_mean.clone()
    torch.testing.assert_close(core(x[:, 2:], begun.state).slots, whole.slots[:, 2:])
    assert torch.equal(scale.running_mean, moved)
    core.eval()
    assert core(x).state.statistics is None


def test_the_predictor_does_not_run_after_the_last_frame():
    core, x = small(), tokens(3)
    calls: list[int] = []
    core.predictor.register_forward_hook(lambda *_: calls.append(1))
    core(x)
    assert len(calls) == 2
