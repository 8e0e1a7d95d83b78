"""`docs/scripts/read_off_slots.py`: what a ridge regression says of features that hold the answer, or do not."""

from __future__ import annotations

import pytest
import torch
from docs_scripts import docs_script


@pytest.fixture
def r_squared():
    with docs_script("read_off_slots") as script:
        yield script.r_squared


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def test_what_is_in_the_features_is_read_off_them_and_nothing_else(r_squared):
    features = numbers(2048, 20)
    linear = features @ numbers(20, 3)
    assert r_squared(features, linear) > 0.999
    assert abs(r_squared(features, numbers(2048, 3))) < 0.05
    assert r_squared(features, linear + linear.std() * numbers(2048, 3)) == pytest.approx(0.5, abs=0.06)


def test_more_features_than_clips_do_not_fit_what_they_have_not_seen(r_squared):
    assert abs(r_squared(numbers(2048, 1500), numbers(2048, 3))) < 0.05
