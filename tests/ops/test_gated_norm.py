"""Gate and RMSNorm: the equation, the compiled kernel in value and gradient, layouts, dtypes, threads."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slotbench.ops.gated_norm import gated_rms_norm, norm
from slotbench.ops.gated_norm.norm import gated_rms_norm_reference

SIZES = {
    "batch": st.lists(st.integers(1, 7), min_size=0, max_size=3),
    "groups": st.integers(1, 4),
    "per_group": st.integers(1, 40),
    "is_part": st.booleans(),
    "seed": st.integers(0, 2**16),
}


def inputs_of(batch, groups, per_group, is_part=False, seed=0, dtype=torch.float64):
    generator, dim = torch.Generator().manual_seed(seed), groups * per_group

    def draw(*shape):
        return (2 * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)

    x, gate, weight = draw(*batch, dim), draw(*batch, dim), draw(dim)
    leaves = [value.requires_grad_() for value in (x, gate, weight)]
    # a part of wider rows, as the gate of Mamba-2 is
    wide = torch.cat([gate, gate[..., :1], gate], dim=-1)[..., :dim] if is_part else gate
    return leaves, (x, wide, weight)


def results(leaves, given_, groups, kernel, eps=1e-5):
    y = gated_rms_norm(*given_, groups, eps, kernel=kernel)
    outer = torch.cos(torch.arange(y.numel(), dtype=y.dtype)).view(y.shape)
    return [y, *torch.autograd.grad(y, leaves, outer)]


@pytest.fixture
def compiled(monkeypatch):
    """Whether the compiled kernel was taken, call by call."""
    answers: list[bool] = []
    ask = norm._is_compiled
    monkeypatch.setattr(norm, "_is_compiled", lambda *inputs: answers.append(ask(*inputs)) or answers[-1])
    return answers


@pytest.mark.parametrize("kernel", ["auto", "torch"])
def test_computes_the_equation(kernel, compiled):
    _, (x, gate, weight) = inputs_of([3], 2, 5)
    y = gated_rms_norm(x, gate, weight, 2, 0.5, kernel=kernel)
    for step in range(3):
        for group in (slice(0, 5), slice(5, 10)):
            hidden = [
                a.item() * g.item() / (1 + math.exp(-g.item()))
                for a, g in zip(x[step, group], gate[step, group], strict=True)
            ]
            scale = math.sqrt(sum(value**2 for value in hidden) / 5 + 0.5)
            expected = weight[group] * torch.tensor(hidden, dtype=torch.float64) / scale
            torch.testing.assert_close(y[step, group], expected, rtol=1e-12, atol=1e-12)
    assert compiled == ([True] if kernel == "auto" else [])


@given(**SIZES)
@settings(max_examples=60)
def test_the_kernel_agrees_with_the_reference_in_value_and_every_gradient(batch, groups, per_group, is_part, seed):
    leaves, given_ = inputs_of(batch, groups, per_group, is_part, seed)
    for actual, expected in zip(
        results(leaves, given_, groups, "numba", 1e-3), results(leaves, given_, groups, "reference", 1e-3), strict=True
    ):
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


@given(**SIZES | {"batch": st.lists(st.integers(2, 9), min_size=2, max_size=2)})
@settings(max_examples=20)
def test_float32_is_as_close_to_double_as_float32_can_be(batch, groups, per_group, is_part, seed):
    single = inputs_of(batch, groups, per_group, is_part, seed, torch.float32)
    double = inputs_of(batch, groups, per_group, is_part, seed)
    for actual, expected in zip(
        results(*single, groups, "auto", 1e-2), results(*double, groups, "reference", 1e-2), strict=True
    ):
        assert actual.dtype == torch.float32
        assert (actual - expected).norm() <= 3e-6 * expected.norm() + 1e-5


def test_gradients_are_those_of_differences():
    leaves, _ = inputs_of([2, 3], 2, 4)
    assert torch.autograd.gradcheck(lambda *given_: gated_rms_norm(*given_, 2, 0.1), tuple(leaves))


def test_half_precision_is_computed_in_float32_by_the_equation(compiled):
    _, (x, gate, weight) = inputs_of([2, 3], 2, 8, dtype=torch.float32)
    y = gated_rms_norm(x.bfloat16(), gate.bfloat16(), weight, 2)
    expected = gated_rms_norm_reference(x.bfloat16().float(), gate.bfloat16().float(), weight, 2, 1e-5)
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, expected.bfloat16())
    # x in float32 and a gate that autocast has made bfloat16
    assert gated_rms_norm(x, gate.bfloat16(), weight, 2).dtype == torch.float32
    assert compiled == [False, False]


def test_more_threads_than_one_give_the_same_bits():
    leaves, given_ = inputs_of([30, 50], 2, 40, True, dtype=torch.float32)
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            found.append(results(leaves, given_, 2, "auto"))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_groups": 3}, "8 channels into 3 groups"),
        ({"gate": torch.zeros(2, 4)}, "takes gate as"),
        ({"weight": torch.zeros(4)}, "takes weight as"),
    ],
)
def test_shapes_that_do_not_fit_are_named(change, message):
    given_ = {"x": torch.zeros(2, 8), "gate": torch.zeros(2, 8), "weight": torch.zeros(8)}
    with pytest.raises(ValueError, match=message):
        gated_rms_norm(**given_ | change)
