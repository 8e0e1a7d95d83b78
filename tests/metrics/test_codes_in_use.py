"""Use of codes: entropies beside scipy's, the left neighbour, codes never used."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import entropy

from slotbench.metrics.codes.code_usage import CodeUsage


def test_entropy_and_perplexity_are_scipys_and_dead_codes_are_counted():
    torch.manual_seed(0)
    codes = torch.randint(7, (5, 2, 4, 6)) ** 2 // 6
    usage = CodeUsage(9)
    usage.update(codes[:2])
    usage.update(codes[2:])
    found = usage.compute()
    counts = torch.bincount(codes.flatten(), minlength=9)
    assert float(found["entropy"]) == pytest.approx(entropy(counts.numpy()))
    assert float(found["perplexity"]) == pytest.approx(math.exp(entropy(counts.numpy())))
    assert int(found["dead_codes"]) == int((counts == 0).sum()) > 0


def test_a_code_that_its_left_neighbour_says_costs_nothing_but_the_first_of_a_row():
    first = torch.tensor([0, 1, 2, 3]).repeat(8)
    rows = (first[:, None] + torch.arange(5)) % 4
    usage = CodeUsage(4)
    usage.update(rows[None])
    found = usage.compute()
    assert float(found["entropy"]) == pytest.approx(math.log(4))
    assert float(found["entropy_given_left"]) == pytest.approx(math.log(4) / 5)


def test_one_column_has_no_neighbours_and_large_codebooks_are_not_paired():
    usage = CodeUsage(4)
    usage.update(torch.tensor([[[0], [1]]]))
    assert float(usage.compute()["entropy_given_left"]) == pytest.approx(math.log(2))
    large = CodeUsage(257)
    large.update(torch.zeros(1, 2, 2, dtype=torch.long))
    assert "entropy_given_left" not in large.compute()
