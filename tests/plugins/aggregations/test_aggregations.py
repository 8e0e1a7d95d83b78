"""What every registered aggregation keeps, and what tells them apart."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from slotbench_plugins.aggregations.image_level_norm import ImageLevelNorm
from slotbench_plugins.aggregations.layer_norm_aggregation import LayerNormAggregation
from slotbench_plugins.aggregations.scaled_mean import ScaledMean
from slotbench_plugins.aggregations.weighted_mean import WeightedMean
from slotbench_plugins.aggregations.weighted_sum import WeightedSum
from torch import Tensor

from slotbench import registry
from slotbench.interfaces import Aggregation

NAMES = registry.names("aggregations")
EVERY = pytest.mark.parametrize("name", NAMES)
DIM = 4


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def made(name: str, dim: int = DIM, **arguments) -> Aggregation:
    """An aggregation whose parameters are off their initial values."""
    aggregation = registry.load("aggregations", name)(dim, **arguments).double()
    with torch.no_grad():
        for parameter in aggregation.parameters():
            parameter.add_(0.3 * noise(*parameter.shape, seed=7))
    return aggregation


def by_loops(name: str, aggregation: Aggregation, assignment: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Update of each slot of each image, one number at a time; of the initial parameters."""
    images, slots, tokens = assignment.shape
    dim = values.shape[-1]
    sums, updates = np.zeros((images, slots, dim)), np.zeros((images, slots, dim))
    for i in range(images):
        for k in range(slots):
            for n in range(tokens):
                sums[i, k] += assignment[i, k, n] * values[i, n]
    for i in range(images):
        for k in range(slots):
            mass = sum(assignment[i, k, n] for n in range(tokens))
            if name == "WeightedMean":
                updates[i, k] = sums[i, k] / (mass + 1e-5)
            elif name == "ScaledMean":
                entries = [assignment[i, k, n] + 1e-8 for n in range(tokens)]
                mean = sum(entry * values[i, n] for n, entry in enumerate(entries)) / sum(entries)
                updates[i, k] = mean * aggregation.train_slots / slots
            elif name == "WeightedSum":
                updates[i, k] = sums[i, k] / tokens
            elif name == "LayerNormAggregation":
                mean = sum(sums[i, k]) / dim
                updates[i, k] = (sums[i, k] - mean) / np.sqrt(sum((sums[i, k] - mean) ** 2) / dim + 1e-5)
            elif name == "ImageLevelNorm":
                mean = sums[i].sum() / slots / dim
                variance = ((sums[i] - mean) ** 2).sum() / slots / dim
                updates[i, k] = (sums[i, k] - mean) / np.sqrt(variance + 1e-5)
            elif name == "BatchScaled":
                mean = sums.sum() / sums.size
                variance = ((sums - mean) ** 2).sum() / (sums.size - 1)
                updates[i, k] = (sums[i, k] - mean) / np.sqrt(variance + 1e-5)
            else:
                raise AssertionError(f"write down what {name} is")
    return updates


@EVERY
def test_equals_the_equation_written_out(name):
    aggregation = registry.load("aggregations", name)(DIM).double()
    assignment, values = noise(2, 3, 5).softmax(dim=-2), noise(2, 5, DIM, seed=1)
    expected = torch.from_numpy(by_loops(name, aggregation, assignment.numpy(), values.numpy()))
    torch.testing.assert_close(aggregation(assignment, values), expected, rtol=0, atol=1e-12)


@EVERY
@settings(max_examples=10)
@given(data=st.data())
def test_slots_may_be_permuted_and_tokens_too_in_training_and_in_evaluation(name, data):
    slots, tokens = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5))
    assignment, values = noise(2, slots, tokens).softmax(dim=-2), noise(2, tokens, DIM, seed=1)
    order = data.draw(st.permutations(range(slots)))
    shuffle = data.draw(st.permutations(range(tokens)))
    aggregation = made(name).train(data.draw(st.booleans(), label="training"))
    # asked twice from the same running averages
    expected = aggregation(assignment, values)
    other = aggregation(assignment[:, order][..., shuffle], values[:, shuffle])
    if aggregation.training:
        assert expected.isfinite().all()
    torch.testing.assert_close(other, expected[:, order], rtol=0, atol=1e-10)


@EVERY
@pytest.mark.parametrize("training", [True, False])
def test_hidden_tokens_change_nothing_whatever_they_hold(name, training):
    assignment, values = noise(2, 3, 5).softmax(dim=-2), noise(2, 5, DIM, seed=1)
    aggregation = made(name).train(training)
    expected = aggregation(assignment, values)
    hidden = torch.zeros(2, 3, 4, dtype=torch.float64)
    junk = 1e9 * noise(2, 4, DIM, seed=2)
    padded = made(name).train(training)(torch.cat([assignment, hidden], -1), torch.cat([values, junk], 1))
    torch.testing.assert_close(padded, expected, rtol=0, atol=1e-12)


@EVERY
@pytest.mark.parametrize("dead", ["a slot", "all"])
def test_slots_that_win_nothing_have_finite_updates_and_gradients(name, dead):
    logits, values = noise(2, 3, 5).requires_grad_(), noise(2, 5, DIM, seed=1).requires_grad_()
    alive = torch.ones(3, 1, dtype=torch.float64)
    alive[1 if dead == "a slot" else slice(None)] = 0
    updates = made(name)(logits.softmax(dim=-2) * alive, values)
    assert updates.isfinite().all()
    updates.sin().sum().backward()
    assert logits.grad.isfinite().all()
    assert values.grad.isfinite().all()
    if name in ("WeightedMean", "WeightedSum"):
        assert not updates[:, 1].any()


def test_the_form_of_eps_decides_what_a_slot_gets_that_has_won_nothing():
    assignment, values = noise(2, 3, 5).softmax(dim=-2), noise(2, 5, DIM, seed=1)
    assignment[:, 1] = 0
    plain = WeightedMean(DIM, 1e-8, "sum")(assignment, values)
    entry = WeightedMean(DIM, 1e-8, "entry")(assignment, values)
    torch.testing.assert_close(entry[:, [0, 2]], plain[:, [0, 2]], rtol=0, atol=1e-7)
    assert not plain[:, 1].any()
    torch.testing.assert_close(entry[:, 1], values.mean(dim=1))


@EVERY
def test_values_are_shared_along_axes_of_length_one_and_their_precision_is_kept(name):
    assignment, values = noise(2, 1, 3, 4, 5).softmax(dim=-2), noise(2, 1, 1, 5, DIM, seed=1)
    expected = made(name)(assignment, values.expand(2, 1, 3, 5, DIM))
    torch.testing.assert_close(made(name)(assignment, values), expected, rtol=0, atol=1e-12)
    half = made(name).bfloat16()(assignment.float(), values.bfloat16())
    assert half.dtype == torch.bfloat16


def twice_the_tokens(name: str) -> tuple[Tensor, Tensor]:
    assignment, values = noise(2, 4, 50).softmax(dim=-2), noise(2, 50, 16, seed=1)
    doubled = torch.cat([assignment, assignment], -1), torch.cat([values, values], 1)
    return made(name, 16)(assignment, values), made(name, 16)(*doubled)


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [
        ("WeightedMean", 1e-6),
        ("ScaledMean", 1e-6),
        ("WeightedSum", 1e-12),
        ("LayerNormAggregation", 1e-4),
        ("ImageLevelNorm", 1e-4),
        ("BatchScaled", 1e-4),
    ],
)
def test_twice_the_same_tokens_change_nothing(name, tolerance):
    once, twice = twice_the_tokens(name)
    assert (once - twice).abs().max() < tolerance


def test_twice_the_slots_leave_means_alone_and_halve_sums():
    assignment, values = noise(2, 4, 50).softmax(dim=-2), noise(2, 50, 16, seed=1)
    halved = torch.cat([assignment, assignment], 1) / 2
    for kind, factor, tolerance in ((WeightedMean, 1, 1e-6), (LayerNormAggregation, 1, 1e-3), (WeightedSum, 0.5, 0)):
        aggregation = kind(16).double()
        torch.testing.assert_close(
            aggregation(halved, values)[:, :4], factor * aggregation(assignment, values), rtol=0, atol=tolerance + 1e-14
        )
    scaled = ScaledMean(16, train_slots=4)
    torch.testing.assert_close(scaled(halved, values)[:, :4], scaled(assignment, values) / 2, rtol=0, atol=1e-6)
    image = ImageLevelNorm(16).double()
    torch.testing.assert_close(image(halved, values)[:, :4], image(assignment, values), rtol=0, atol=1e-3)


@pytest.mark.parametrize("slots", [1, 3, 9])
def test_how_much_a_slot_has_won_is_linear_in_its_sum(slots):
    """Krimmel et al., Proposition 2; and where the LayerNorm has no offset there is no such functional."""
    dim, tokens = 6, 20
    gain, offset, weight = 1 + 0.3 * noise(dim, seed=1), noise(dim, seed=2), noise(dim, dim, seed=3)
    values = torch.nn.functional.layer_norm(noise(1, tokens, dim), (dim,), gain, offset) @ weight.mT
    assignment = noise(1, slots, tokens, seed=4).softmax(dim=1)
    updates = WeightedSum(dim)(assignment, values)[0]

    def nearest_to_origin(offset: Tensor) -> Tensor:
        directions = torch.linalg.svd(torch.ones(1, dim, dtype=torch.float64))[2][1:].mT  # orthogonal to 1
        spanned, point = weight @ (gain[:, None] * directions), weight @ offset
        return point - spanned @ torch.linalg.pinv(spanned) @ point

    a = nearest_to_origin(offset)
    won = updates @ a / a.square().sum()
    torch.testing.assert_close(won, assignment[0].mean(dim=-1), rtol=0, atol=1e-6)
    torch.testing.assert_close(won.sum().item(), 1.0, rtol=0, atol=1e-6)
    assert nearest_to_origin(torch.zeros(dim, dtype=torch.float64)).norm() < 1e-12
