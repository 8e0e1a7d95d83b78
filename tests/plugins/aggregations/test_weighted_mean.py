from __future__ import annotations

import pytest
import torch
from slotbench_plugins.aggregations.weighted_mean import WeightedMean


def shares(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(shape, generator=generator, dtype=torch.float64).softmax(dim=-2)


def test_a_slot_that_has_won_nothing_gets_zero():
    assignment = shares(3, 5)
    assignment[1] = 0
    updates = WeightedMean(4)(assignment, torch.randn(5, 4, dtype=torch.float64))
    assert not updates[1].any()
    assert updates[[0, 2]].all()


def test_eps_shrinks_the_update_by_the_size_of_the_mass():
    mass = torch.tensor([[1e-5]])
    assert WeightedMean(4, eps=1e-5)(mass, torch.ones(1, 1)).item() == pytest.approx(0.5)
