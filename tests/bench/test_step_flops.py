"""Operations of a training step are those that one counts by hand, scans included."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from slotbench.bench.step_flops import StepFlops, _ElementwiseCounter, experiment_flops, training_flops
from slotbench.errors import UserError
from slotbench.nn.mamba import MambaBlock
from slotbench.ops import linear_scan, selective_scan

EXPERIMENT = Path(__file__).parents[2] / "experiments" / "blinking_balls_small.yaml"


class Gate(nn.Module):
    """A map of 3 numbers to 5, and a gate of each."""

    def __init__(self):
        super().__init__()
        self.map = nn.Linear(3, 5)

    def training_loss(self, batch):
        return torch.sigmoid(self.map(batch)).sum()


def test_a_step_is_what_one_counts_by_hand():
    # 2 rows: the map, and its gradient by the weights; a sigmoid, and its gradient
    found = training_flops(Gate(), torch.randn(2, 3))
    assert found == StepFlops(2 * (2 * 2 * 3 * 5), 10 + 10)
    assert found.total == 140


def test_a_scan_is_counted_as_its_equation():
    batch, time, dim, state = 2, 5, 3, 4
    u, delta = torch.randn(batch, time, dim), torch.rand(batch, time, dim)
    maps = [torch.randn(batch, time, state) for _ in range(2)]
    with _ElementwiseCounter() as counter:
        selective_scan(u, delta, -torch.rand(dim, state), *maps, kernel="reference")
    # delta A and its exponential, delta B and times u; times the state, and the sum; the rates are negated once
    assert counter.count == 6 * batch * time * dim * state + dim * state


def test_complex_numbers_count_as_real_ones_do():
    drive = torch.randn(2, 5, 3, dtype=torch.complex64)
    with _ElementwiseCounter() as counter:
        linear_scan(drive, torch.ones(3, dtype=torch.complex64), kernel="reference")
    assert counter.count == 2 * 5 * 3 * (6 + 2)  # a complex product and a complex sum


def test_what_a_compiled_kernel_does_is_counted():
    class Scan(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = MambaBlock(8, 4)

        def training_loss(self, batch):
            return self.block(batch)[0].sum()

    block = Scan()
    found = training_flops(block, torch.randn(2, 6, 8))
    inner, state = block.block.inner_dim, block.block.state_dim
    assert block.block.kernel == "reference"
    assert found.elementwise > 2 * 6 * 2 * 6 * inner * state


def test_copies_and_integers_are_no_operations():
    numbers = torch.arange(6.0)
    with _ElementwiseCounter() as counter:
        numbers.clone()
        torch.arange(6) * 2
        numbers.gt(2.0)
    assert counter.count == 0


def test_an_experiment_is_counted_and_grows_with_its_batch():
    small = ["--model.core.num_slots", "2", "--data.num_frames", "3", "--data.loader.batch_size"]
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    one, two = (experiment_flops(EXPERIMENT, [*small, str(size)]) for size in (1, 2))
    assert torch.rand(1) == expected
    assert 0 < one.products < two.products <= 2 * one.products
    assert 0 < one.elementwise < two.elementwise <= 2 * one.elementwise
    with pytest.raises(UserError):
        experiment_flops("nothing.yaml")
