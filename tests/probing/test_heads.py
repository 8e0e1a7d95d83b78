"""The heads find what trusted implementations find."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression as TrustedLogistic
from sklearn.metrics import r2_score

from slotbench.probing.heads import LinearRegression, LogisticRegression
from slotbench.probing.mlp_head import MLPHead
from slotbench.probing.scores import accuracy, coefficient_of_determination, mean_floor, prior_floor


@given(seed=st.integers(0, 2**31), dim=st.integers(1, 8), targets=st.integers(1, 3))
def test_linear_regression_is_least_squares(seed: int, dim: int, targets: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = 3 + 5 * torch.randn(40, dim, generator=generator, dtype=torch.float64)
    y = torch.randn(40, targets, generator=generator, dtype=torch.float64)
    inputs = np.c_[x.numpy(), np.ones(40)]
    expected = inputs @ np.linalg.lstsq(inputs, y.numpy(), rcond=None)[0]
    assert np.allclose(LinearRegression.fit(x, y, ridge=0.0)(x).numpy(), expected, atol=1e-8)
    assert np.allclose(LinearRegression.fit(x, y)(x).numpy(), expected, atol=1e-3)


def test_linear_regression_survives_channels_that_repeat_or_do_not_vary() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 3, generator=generator)
    y = x @ torch.randn(3, 2, generator=generator) + 4
    wide = torch.cat([x, x, torch.full((200, 1), 0.1)], 1)
    assert coefficient_of_determination(LinearRegression.fit(wide, y)(wide), y) > 0.9999


@pytest.mark.parametrize("penalty", [1.0, 20.0])
def test_logistic_regression_is_scikit_learns(penalty: float) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 6, generator=generator, dtype=torch.float64)
    y = (x @ torch.randn(6, 4, generator=generator).double() + torch.randn(300, 4, generator=generator)).argmax(1)
    z = (x - x.mean(0)) / x.std(0, correction=0)
    trusted = TrustedLogistic(C=1 / penalty, max_iter=2000, tol=1e-10).fit(z.numpy(), y.numpy())
    head = LogisticRegression.fit(x, y, 4, penalty)
    assert np.array_equal(head(x).numpy(), trusted.predict(z.numpy()))
    scores = x @ head.weight + head.bias
    probabilities = torch.softmax(scores, 1).numpy()
    assert np.allclose(probabilities, trusted.predict_proba(z.numpy()), atol=1e-4)


def test_the_mlp_regresses_what_is_not_linear() -> None:
    generator = torch.Generator().manual_seed(0)
    x, clips = torch.randn(3000, 4, generator=generator), torch.arange(3000) // 10
    y = 100 + 50 * (x[:, :1] * x[:, 1:2])
    fitted = MLPHead.fit(x[:2000], y[:2000], clips[:2000])
    assert coefficient_of_determination(fitted(x[2000:]), y[2000:]) > 0.9
    linear = LinearRegression.fit(x[:2000], y[:2000])
    assert coefficient_of_determination(linear(x[2000:]), y[2000:]) < 0.1


def test_the_mlp_stops_before_it_learns_noise_by_heart() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(400, 16, generator=generator), torch.randn(400, 1, generator=generator)
    head = MLPHead.fit(x, y, torch.arange(400) // 4)
    assert head.epochs < 20
    assert coefficient_of_determination(head(x[:300]), y[:300]) < 0.7


def test_the_mlp_repeats_and_leaves_the_generator_of_the_process_alone() -> None:
    x, clips = torch.randn(60, 5), torch.arange(60) // 3
    y = (x[:, 0] > 0).long()
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    first = MLPHead.fit(x, y, clips, 2, max_epochs=3, seed=1)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(4)
    again, other = (MLPHead.fit(x, y, clips, 2, max_epochs=3, seed=seed) for seed in (1, 2))
    assert torch.equal(first.network[0].weight, again.network[0].weight)
    assert not torch.equal(first.network[0].weight, other.network[0].weight)


def test_the_mlp_takes_rows_of_a_single_clip() -> None:
    x = torch.randn(20, 3)
    assert MLPHead.fit(x, x[:, :1], torch.zeros(20, dtype=torch.long), max_epochs=2)(x).shape == (20, 1)


@given(seed=st.integers(0, 2**31))
def test_the_coefficient_of_determination_is_scikit_learns(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    true, predicted = (torch.randn(30, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    assert coefficient_of_determination(predicted, true) == pytest.approx(r2_score(true.numpy(), predicted.numpy()))


def test_a_coordinate_that_does_not_vary_is_left_out() -> None:
    true = torch.tensor([[0.0, 0.1], [1.0, 0.1], [2.0, 0.1]])
    assert coefficient_of_determination(true * torch.tensor([1.0, 7.0]), true) == 1
    assert np.isnan(coefficient_of_determination(true[:, 1:], true[:, 1:]))


def test_floors_and_accuracy_of_a_few_rows() -> None:
    assert accuracy(torch.tensor([0, 1, 2]), torch.tensor([0, 1, 1])) == pytest.approx(2 / 3)
    assert prior_floor(torch.tensor([5, 5, 2]), torch.tensor([5, 2, 2, 2])) == 0.25
    true = torch.tensor([[0.0], [2.0]])
    assert mean_floor(torch.tensor([[1.0], [1.0]]), true) == 0
    assert mean_floor(torch.tensor([[3.0], [3.0]]), true) == pytest.approx(-4)
