from __future__ import annotations

import pytest
import torch
from slotbench_plugins.aggregations.weighted_mean import WeightedMean


def shares(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(shape, generator=generator, dtype=torch.float64).softmax(dim=-2)


def test_each_update_is_the_mean_of_the_values_by_share():
    assignment, values = shares(2, 3, 5), torch.randn(2, 5, 4, dtype=torch.float64)
    updates = WeightedMean(4, eps=0.0)(assignment, values)
    for item in range(2):
        for slot in range(3):
            weights = assignment[item, slot] / assignment[item, slot].sum()
            expected = sum(weight * value for weight, value in zip(weights, values[item], strict=True))
            torch.testing.assert_close(updates[item, slot], expected)


def test_how_much_a_slot_has_won_does_not_matter():
    assignment, values = shares(3, 5), torch.randn(5, 4, dtype=torch.float64)
    torch.testing.assert_close(
        WeightedMean(4, eps=0.0)(0.1 * assignment, values), WeightedMean(4, eps=0.0)(assignment, values)
    )


def test_a_slot_that_has_won_nothing_gets_zero():
    assignment = shares(3, 5)
    assignment[1] = 0
    updates = WeightedMean(4)(assignment, torch.randn(5, 4, dtype=torch.float64))
    assert not updates[1].any()
    assert updates[[0, 2]].all()


def test_eps_shrinks_the_update_by_the_size_of_the_mass():
    mass = torch.tensor([[1e-5]])
    assert WeightedMean(4, eps=1e-5)(mass, torch.ones(1, 1)).item() == pytest.approx(0.5)


def test_values_are_shared_along_axes_of_length_one():
    assignment, values = shares(2, 1, 3, 4, 5), torch.randn(2, 1, 1, 5, 6, dtype=torch.float64)
    expected = WeightedMean(4)(assignment, values.expand(2, 1, 3, 5, 6))
    torch.testing.assert_close(WeightedMean(4)(assignment, values), expected)


def test_shares_in_a_higher_precision_keep_the_precision_of_the_values():
    updates = WeightedMean(4)(shares(3, 5), torch.randn(5, 4, dtype=torch.bfloat16))
    assert updates.dtype == torch.bfloat16
