from __future__ import annotations

import math

import torch
from slotbench_plugins.cores.psb import RelativeTimeBias


def made(num_heads: int = 3, **arguments) -> RelativeTimeBias:
    torch.manual_seed(0)
    return RelativeTimeBias(num_heads, **arguments).double()


def test_one_number_per_head_and_offset():
    assert made(3)(torch.arange(-5, 2)).shape == (3, 7)
    assert sum(p.numel() for p in made(5).parameters()) == 16 * 128 + 128 + 128 * 5 + 5


def test_is_a_perceptron_on_eight_sines_and_then_eight_cosines():
    bias = made(2)
    code = [math.sqrt(2) * f(2**i * 2 * math.pi / 2047 * -7) for f in (math.sin, math.cos) for i in range(8)]
    hidden = torch.nn.functional.gelu(bias.expand(torch.tensor(code, dtype=torch.float64)))
    torch.testing.assert_close(bias(torch.tensor([-7]))[:, 0], bias.contract(hidden), rtol=1e-12, atol=1e-12)


def test_an_offset_has_one_bias_whatever_the_clip():
    bias = made()
    torch.testing.assert_close(bias(torch.arange(-23, 1))[:, -6:], bias(torch.arange(-5, 1)), rtol=0, atol=1e-12)


def test_past_and_future_and_all_distances_differ():
    values = made(1)(torch.arange(-8, 9))[0]
    gaps = (values[:, None] - values).abs() + torch.eye(17)
    assert gaps.min() > 1e-4


def test_repeats_after_one_period_of_the_slowest_wave():
    bias = made(max_length=8)
    torch.testing.assert_close(bias(torch.arange(-20, -5)), bias(torch.arange(-5, 10)), rtol=0, atol=1e-4)


def test_frequencies_are_not_in_the_checkpoint():
    assert sorted(made().state_dict()) == ["contract.bias", "contract.weight", "expand.bias", "expand.weight"]


def test_heads_are_learned_apart():
    bias = made(3)
    bias(torch.arange(-5, 1))[1].square().sum().backward()
    assert bias.contract.weight.grad.any(dim=1).tolist() == [False, True, False]
