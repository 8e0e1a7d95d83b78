from __future__ import annotations

import math

import pytest
import torch

from slotbench.nn.positions import fourier_grid, position_table, sincos_embedding, sincos_grid


@pytest.mark.parametrize("grid", [fourier_grid, sincos_grid])
@pytest.mark.parametrize(("rows", "cols"), [(8, 8), (1, 1), (3, 5), (16, 16)])
def test_every_cell_has_its_own_vector(grid, rows, cols):
    table = grid(rows, cols, 16)
    assert table.shape == (rows, cols, 16)
    distances = torch.cdist(table.flatten(0, 1), table.flatten(0, 1)) + torch.eye(rows * cols) * 100
    assert distances.min() > 0.05


@pytest.mark.parametrize("grid", [fourier_grid, sincos_grid])
def test_half_of_the_vector_is_the_row_and_half_the_column(grid):
    table = grid(4, 6, 16)
    assert torch.equal(table[:, 0, :8], table[:, 5, :8])
    assert torch.equal(table[0, :, 8:], table[3, :, 8:])


def test_fourier_features_of_a_hand_case():
    # Two cells per axis: centres at -1/2 and 1/2; the slowest wave is a quarter period per unit, the fastest a half.
    low, high = math.pi / 4, math.pi / 2
    expected = [-math.sin(low), -math.sin(high), math.cos(low), math.cos(high)]
    torch.testing.assert_close(fourier_grid(2, 2, 8)[0, 1, :4], torch.tensor(expected))
    torch.testing.assert_close(fourier_grid(2, 2, 8)[0, 1, 4:6], torch.tensor([math.sin(low), math.sin(high)]))


def test_time_embedding_of_a_hand_case():
    embedding = sincos_embedding(torch.tensor([[0, 3]]), 4, longest=100.0)
    expected = [[[0, 0, 1, 1], [math.sin(3), math.sin(0.3), math.cos(3), math.cos(0.3)]]]
    torch.testing.assert_close(embedding, torch.tensor(expected))


def exact_embedding(index, dim):
    """By Python's own sines, which are those of float64."""
    angles = [[step * 10_000.0 ** -(i / (dim // 2)) for i in range(dim // 2)] for step in index]
    rows = [[*map(math.sin, row), *map(math.cos, row)] for row in angles]
    return torch.tensor(rows, dtype=torch.float64)


def test_time_embedding_in_float64_is_exact_to_float64_and_that_in_float32_stays_as_it_was():
    index = [0, 1, 2, 17, 2559]
    precise = sincos_embedding(torch.tensor(index), 16, dtype=torch.float64)
    torch.testing.assert_close(precise, exact_embedding(index, 16), rtol=0, atol=1e-12)
    assert sincos_embedding(torch.tensor(index), 16).dtype == torch.float32
    torch.testing.assert_close(sincos_embedding(torch.tensor(index), 16), precise.float(), rtol=0, atol=2e-4)
    assert sincos_embedding(torch.tensor(index), 16, dtype=torch.bfloat16).dtype == torch.bfloat16


def test_a_grid_that_is_built_where_float64_is_the_default_is_exact_to_float64():
    torch.set_default_dtype(torch.float64)
    try:
        table = sincos_grid(2, 3, 8)
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(table[1, 2], torch.cat([*exact_embedding([1, 2], 4)]), rtol=0, atol=1e-15)


def test_tables_differ_in_start_and_in_training():
    fourier, sincos, learned = (position_table(kind, 3, 4, 8) for kind in ("fourier", "sincos", "learned"))
    assert torch.equal(fourier, fourier_grid(3, 4, 8).flatten(0, 1))
    assert torch.equal(sincos, sincos_grid(3, 4, 8).flatten(0, 1))
    assert learned.abs().max() < 0.2
    assert (fourier.requires_grad, sincos.requires_grad, learned.requires_grad) == (True, False, True)
    assert all(table._no_weight_decay for table in (fourier, sincos, learned))
