"""Vector quantisation: the nearest rows, and the gradient that passes the choice."""

from __future__ import annotations

import torch

from slotbench.nn.vector_quantisation import code_rows, nearest_codes, straight_through


def test_a_cell_takes_the_row_of_the_least_distance_and_no_gradient_comes_of_it():
    torch.manual_seed(0)
    maps, codebook = torch.randn(2, 4, 3, 5, dtype=torch.float64), torch.randn(7, 4, dtype=torch.float64)
    maps.requires_grad_(True)
    codebook.requires_grad_(True)
    codes = nearest_codes(maps, codebook)
    distances = torch.cdist(maps.movedim(1, -1).reshape(-1, 4), codebook)
    assert torch.equal(codes.flatten(), distances.argmin(1))
    rows = code_rows(codes, codebook)
    assert rows.shape == maps.shape
    assert torch.equal(rows[1, :, 2, 4], codebook[codes[1, 2, 4]])


def test_codes_are_those_of_float32_under_autocast():
    torch.manual_seed(0)
    maps, codebook = torch.randn(8, 4, 16, 16), torch.randn(64, 4)
    expected = nearest_codes(maps, codebook)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(nearest_codes(maps, codebook), expected)


def test_straight_through_has_the_value_of_the_rows_and_the_gradient_of_the_maps():
    torch.manual_seed(0)
    maps, rows = (torch.randn(2, 4, 3, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    passed, weights = straight_through(maps, rows), torch.randn(2, 4, 3, 3, dtype=torch.float64)
    torch.testing.assert_close(passed, rows)
    (weights * passed.square()).sum().backward()
    torch.testing.assert_close(maps.grad, 2 * weights * rows.detach())
    assert rows.grad is None
