"""Cores prepared for a roll-out: the same outputs, computed once, and never those of parameters that have changed."""

from __future__ import annotations

import copy

import pytest
import torch
from slotbench_plugins.cores.conv_lstm import ConvLSTM, ConvLSTMLayer
from slotbench_plugins.cores.conv_s5 import ConvS5, ConvStateSpace
from slotbench_plugins.cores.conv_ssm import ConvSSM
from slotbench_plugins.cores.slot_rnn import SlotRNN
from torch import Tensor

from slotbench.interfaces import TemporalCore, TokenSpec, map_state

SPEC = TokenSpec(dim=6, num_tokens=12, grid=(3, 4))
CORES = [ConvS5, ConvSSM, ConvLSTM]
COMPUTES = {
    ConvS5: (ConvStateSpace, "kernels"),
    ConvSSM: (ConvStateSpace, "kernels"),
    ConvLSTM: (ConvLSTMLayer, "halves"),
}


def built(kind: type[TemporalCore], seed: int = 0) -> TemporalCore:
    torch.manual_seed(seed)
    core = kind(SPEC, dim=32)
    with torch.no_grad():
        for parameter in core.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    # norms over a few nearly equal cells amplify the rounding of float32 a thousand times
    return core.double().eval()


def tokens(time: int = 1, seed: int = 1) -> Tensor:
    return torch.randn(2, time, 12, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def leaves(state) -> list[Tensor]:
    found: list[Tensor] = []
    map_state(lambda leaf: found.append(leaf) or leaf, state)
    return found


@torch.no_grad()
def agree(core: TemporalCore, one_step, state=None) -> None:
    """Three steps by the prepared function are three calls of the core, state and all."""
    expected_state = state
    for seed in range(3):
        expected, got = core(tokens(seed=seed), expected_state), one_step(tokens(seed=seed), state)
        torch.testing.assert_close(got.slots, expected.slots, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(leaves(got.state), leaves(expected.state), rtol=1e-9, atol=1e-9)
        expected_state, state = expected.state, got.state


@pytest.mark.parametrize("kind", [*CORES, SlotRNN])
def test_a_prepared_core_does_what_the_core_does(kind):
    core = built(kind) if kind in CORES else kind(SPEC).double().eval()
    agree(core, core.prepared())
    with torch.no_grad():
        agree(core, core.prepared(), core(tokens(5)).state)


@pytest.mark.parametrize("kind", CORES)
def test_kernels_are_computed_once_per_layer_without_gradient_and_at_every_call_with_one(kind, monkeypatch):
    core, calls = built(kind), []
    owner, name = COMPUTES[kind]
    compute = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda self: calls.append(self) or compute(self))
    one_step = core.prepared()
    with torch.no_grad():
        for _ in range(4):
            one_step(tokens(), None)
    assert len(calls) == len(core.layers)
    out = one_step(tokens(), None).slots.sum()
    assert len(calls) == 2 * len(core.layers)
    out.backward()
    assert all(parameter.grad is not None for parameter in core.parameters())


def step_of_an_optimiser(core):
    optimiser = torch.optim.SGD(core.parameters(), lr=0.1)
    core(tokens(4)).slots.square().sum().backward()
    optimiser.step()


def other_state_dict(core):
    core.load_state_dict(built(type(core), seed=7).state_dict())


def weights_swapped_by_data(core):
    for parameter, other in zip(core.parameters(), built(type(core), seed=7).parameters(), strict=True):
        parameter.data = other.data.clone()


def weights_swapped_in_place(core):
    with torch.no_grad():
        for parameter, other in zip(core.parameters(), built(type(core), seed=7).parameters(), strict=True):
            kept = parameter.clone()
            parameter.copy_(other)
            other.copy_(kept)


def parameters_replaced(core):
    for module in core.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, torch.nn.Parameter(parameter.detach() * 1.5))


CHANGES = [
    step_of_an_optimiser,
    other_state_dict,
    weights_swapped_by_data,
    weights_swapped_in_place,
    parameters_replaced,
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", CORES)
def test_a_change_of_the_parameters_between_two_steps_is_seen(kind, change):
    core = built(kind)
    one_step = core.prepared()
    with torch.no_grad():
        before = one_step(tokens(), None).slots
    change(core)
    with torch.no_grad():
        assert (one_step(tokens(), None).slots - before).abs().max() > 1e-3
    agree(core, one_step)


@pytest.mark.parametrize("kind", CORES)
def test_a_change_under_inference_mode_and_of_the_dtype_is_seen(kind):
    core = built(kind)
    one_step = core.prepared()
    with torch.inference_mode():
        one_step(tokens(), None)
        for parameter in core.parameters():
            parameter.mul_(0.5)
        torch.testing.assert_close(one_step(tokens(), None).slots, core(tokens()).slots, rtol=1e-5, atol=1e-5)
    agree(core, one_step)
    core.float()
    with torch.no_grad():
        given = tokens().float()
        torch.testing.assert_close(one_step(given, None).slots, core(given).slots, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", CORES)
def test_weights_of_a_functional_call_are_used(kind):
    core = built(kind)
    one_step = core.prepared()

    class Rollout(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.core = core

        def forward(self, given):
            return one_step(given, None).slots

    rollout, other = Rollout(), built(kind, seed=7)
    with torch.no_grad():
        rollout(tokens())
        named = {f"core.{name}": value for name, value in other.named_parameters()}
        got = torch.func.functional_call(rollout, named, (tokens(),))
        torch.testing.assert_close(got, other(tokens()).slots, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(rollout(tokens()), core(tokens()).slots, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", CORES)
def test_nothing_is_left_on_the_core(kind):
    core = built(kind)
    attributes = {name: set(vars(module)) for name, module in core.named_modules()}
    one_step = core.prepared()
    with torch.no_grad():
        one_step(tokens(), None)
    assert {name: set(vars(module)) for name, module in core.named_modules()} == attributes
    other = copy.deepcopy(core)
    agree(other, core.prepared())
