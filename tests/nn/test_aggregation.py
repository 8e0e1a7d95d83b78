from __future__ import annotations

import pytest
import torch
from torch import Tensor

from slotbench.interfaces import gather_values, visible_tokens


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_gathers_values_by_share_and_shares_values_along_axes_of_length_one():
    assignment, values = noise(2, 3, 4, 5).softmax(dim=-2), noise(2, 1, 5, 6)
    expected = torch.zeros(2, 3, 4, 6, dtype=torch.float64)
    for item in range(2):
        for step in range(3):
            for slot in range(4):
                for token in range(5):
                    expected[item, step, slot] += assignment[item, step, slot, token] * values[item, 0, token]
    torch.testing.assert_close(gather_values(assignment, values), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_of_many_tokens_neither_overflow_nor_lose_digits_in_half_precision(dtype):
    assignment, values = torch.ones(1, 20000), torch.full((20000, 2), 4.0, dtype=dtype)
    with torch.autocast("cpu", torch.bfloat16):
        gathered = gather_values(assignment, values)
    assert gathered.dtype == torch.float32
    assert gathered.tolist() == [[80000.0, 80000.0]]


def test_a_token_is_visible_if_any_slot_has_a_share_of_it():
    assignment = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 0.3]])
    assert visible_tokens(assignment).tolist() == [False, True, True]
