"""`docs/scripts/read_off_slots.py`: what a ridge regression says of features that hold the answer, or do not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

SCRIPTS = Path(__file__).parents[2] / "docs" / "scripts"


@pytest.fixture
def r_squared(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import read_off_slots

    yield lambda features, targets: read_off_slots.r_squared(features, targets)
    sys.modules.pop("read_off_slots")


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
