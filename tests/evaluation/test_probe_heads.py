"""What the heads read off slots, and how it is scored."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import r2_score

from slotbench.evaluation.probe_heads import (
    accuracy,
    coefficient_of_determination,
    fit_linear,
    fit_mlp,
)


@given(seed=st.integers(0, 2**31), dim=st.integers(1, 8), targets=st.integers(1, 3))
def test_the_linear_head_of_numbers_is_least_squares(seed: int, dim: int, targets: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = 3 + 5 * torch.randn(40, dim, generator=generator, dtype=torch.float64)
    y = torch.randn(40, targets, generator=generator, dtype=torch.float64)
    inputs = np.c_[x.numpy(), np.ones(40)]
    expected = inputs @ np.linalg.lstsq(inputs, y.numpy(), rcond=None)[0]
    found = fit_linear(x, y, "continuous")(x)
    assert found.shape == y.shape
    assert np.allclose(found.numpy(), expected, atol=1e-3)


def test_the_linear_head_survives_channels_that_repeat_or_do_not_vary() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 3, generator=generator)
    y = x @ torch.randn(3, 2, generator=generator) + 4
    wide = torch.cat([x, x, torch.full((200, 1), 0.1)], 1)
    assert coefficient_of_determination(fit_linear(wide, y, "continuous")(wide), y) > 0.9999


@pytest.mark.parametrize("codes", [(0, 1), (3, 17, 4)], ids=["two", "three"])
def test_the_heads_of_classes_name_them_by_their_numbers(codes: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    # channels of very different scales
    x = torch.randn(600, len(codes), generator=generator) * torch.tensor([1e-3, 1.0, 1e3])[: len(codes)]
    y = torch.tensor(codes)[(x / torch.tensor([1e-3, 1.0, 1e3])[: len(codes)]).argmax(1)]
    for head in (fit_linear(x, y, "categorical"), fit_mlp(x, y, torch.arange(600) // 6, "categorical")):
        assert accuracy(head(x), y) > 0.95


def test_the_mlp_regresses_what_is_not_linear() -> None:
    generator = torch.Generator().manual_seed(0)
    x, clips = torch.randn(3000, 4, generator=generator), torch.arange(3000) // 10
    y = 100 + 50 * (x[:, :1] * x[:, 1:2])
    fitted = fit_mlp(x[:2000], y[:2000], clips[:2000], "continuous")
    assert coefficient_of_determination(fitted(x[2000:]), y[2000:]) > 0.9
    linear = fit_linear(x[:2000], y[:2000], "continuous")
    assert coefficient_of_determination(linear(x[2000:]), y[2000:]) < 0.1


def test_the_mlp_stops_before_it_learns_noise_by_heart() -> None:
    generator = torch.Generator().manual_seed(0)
    # all rows of a clip are the same: rows held out would say that noise can be learnt
    x = torch.randn(100, 16, generator=generator).repeat_interleave(4, 0)
    y = torch.randn(100, 1, generator=generator).repeat_interleave(4, 0)
    head = fit_mlp(x, y, torch.arange(400) // 4, "continuous", held_out=0.5)
    assert coefficient_of_determination(head(x), y) < 0.7


def test_the_mlp_repeats_and_leaves_the_generators_of_the_process_alone() -> None:
    x, clips = torch.randn(60, 5), torch.arange(60) // 3
    y = x[:, :2].square()
    torch.manual_seed(3)
    before, numbers = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = fit_mlp(x, y, clips, "continuous", max_epochs=3, seed=1)(x)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert np.array_equal(np.random.get_state()[1], numbers)  # noqa: NPY002
    torch.manual_seed(4)
    again, other = (fit_mlp(x, y, clips, "continuous", max_epochs=3, seed=seed)(x) for seed in (1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@given(seed=st.integers(0, 2**31))
def test_the_coefficient_of_determination_is_scikit_learns(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    true, predicted = (torch.randn(30, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    assert coefficient_of_determination(predicted, true) == pytest.approx(r2_score(true.numpy(), predicted.numpy()))


def test_a_coordinate_that_does_not_vary_is_left_out() -> None:
    true = torch.tensor([[0.0, 0.1], [1.0, 0.1], [2.0, 0.1]])
    assert coefficient_of_determination(true * torch.tensor([1.0, 7.0]), true) == 1
    assert np.isnan(coefficient_of_determination(true[:, 1:], true[:, 1:]))
