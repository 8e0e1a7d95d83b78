"""Codes of the next frame: cross-entropy beside frequencies and the code before, against loops and all mixtures."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from slotbench.metrics.codes.next_codes import NextCodes


def mixed(true: list[int], before: list[int], stays: float, codes: int) -> float:
    """Nats per code of the mixture, code by code."""
    shares = [true.count(code) / len(true) for code in range(codes)]
    chances = [stays * (now == then) + (1 - stays) * shares[now] for now, then in zip(true, before, strict=True)]
    return -sum(math.log(chance) if chance else -math.inf for chance in chances) / len(true)


def scored(true: torch.Tensor, before: torch.Tensor, codes: int) -> dict[str, float]:
    metric = NextCodes(codes)
    logits = torch.zeros(len(true), codes, *true.shape[1:])
    metric.update(logits[:1], true[:1], before[:1])
    metric.update(logits[1:], true[1:], before[1:])
    return {name.rpartition("/")[2]: float(value) for name, value in metric.compute().items()}


@given(st.integers(0, 10**6), st.integers(2, 6), st.floats(0, 1))
def test_no_mixture_does_better_and_its_value_is_that_of_a_loop(seed, codes, share):
    generator = torch.Generator().manual_seed(seed)
    before, other = (torch.randint(codes, (4, 2, 3), generator=generator) for _ in range(2))
    true = torch.where(torch.rand(4, 2, 3, generator=generator) < share, before, other)
    found = scored(true, before, codes)
    pairs = true.flatten().tolist(), before.flatten().tolist()
    tried = [mixed(*pairs, stays / 1000, codes) for stays in range(1001)]
    assert found["previous_frame"] <= min(tried) + 1e-9
    assert found["previous_frame"] == pytest.approx(min(tried), abs=1e-3)
    assert found["single_codes"] == pytest.approx(mixed(*pairs, 0.0, codes))
    assert found["cross_entropy"] == pytest.approx(math.log(codes), rel=1e-5)


def test_cross_entropy_is_of_the_true_codes():
    torch.manual_seed(0)
    logits, true = torch.randn(3, 5, 2, 2), torch.randint(5, (3, 2, 2))
    metric = NextCodes(5)
    metric.update(logits, true, true)
    chances = [logits[f, :, r, c].softmax(0)[true[f, r, c]] for f in range(3) for r in range(2) for c in range(2)]
    expected = -sum(math.log(chance) for chance in chances) / 12
    assert float(metric.compute()["cross_entropy"]) == pytest.approx(expected, rel=1e-5)


def test_codes_that_never_stay_and_codes_that_always_do():
    before = torch.arange(8).reshape(2, 2, 2) % 4
    moved = scored((before + 1) % 4, before, 4)
    assert moved["previous_frame"] == pytest.approx(math.log(4))
    assert scored(before, before, 4)["previous_frame"] == 0
