"""Soft F1 of the foreground, sums of squared error, and utilisation of cells: worked out by hand and by differences."""

from __future__ import annotations

import pytest
import torch
from sklearn.metrics import precision_recall_fscore_support
from torch import Tensor

from slotbench.metrics.frames import frame_sum_mse
from slotbench.metrics.objects.foreground import ForegroundF1, soft_counts, soft_f1
from slotbench.metrics.objects.utilisation import cell_utilisation


@pytest.mark.parametrize("channels", [1, 3])
def test_a_black_prediction_of_white_frames_errs_by_their_pixels(channels: int) -> None:
    black = torch.zeros(2, channels, 64, 64)
    assert frame_sum_mse(black, torch.ones_like(black)).tolist() == [4096.0, 4096.0]


def test_f1_of_black_and_white_is_that_of_scikit_learn() -> None:
    generator = torch.Generator().manual_seed(0)
    predicted, true = (torch.rand(2, 3, 8, 8, generator=generator) > 0.6 for _ in range(2))
    found = soft_f1(soft_counts(predicted.float(), true.float()).sum(0)).item()
    *_, expected, _ = precision_recall_fscore_support(true.flatten(), predicted.flatten(), average="binary")
    assert found == pytest.approx(expected, abs=1e-6)


def test_f1_is_soft_and_without_anything_it_is_zero() -> None:
    half = soft_counts(torch.full((1, 2, 2), 0.5), torch.ones(1, 2, 2))
    assert half.tolist() == [2.0, 0.0, 2.0]
    assert soft_f1(half).item() == pytest.approx(2 / 3)
    assert soft_f1(soft_counts(torch.zeros(1, 2, 2), torch.zeros(1, 2, 2))).item() == 0


def test_f1_is_that_of_each_step_over_all_clips_and_pieces() -> None:
    generator = torch.Generator().manual_seed(1)
    predicted, true = (torch.rand(5, 4, 1, 6, 6, generator=generator) for _ in range(2))
    metric = ForegroundF1(4)
    for clips in (slice(0, 2), slice(2, 5)):
        for first in (0, 3):
            steps = slice(first, 3 if first == 0 else 4)
            metric.update(predicted[clips, steps], true[clips, steps], first)
    expected = soft_f1(soft_counts(predicted, true).sum(0)).mean()
    assert metric.compute().item() == pytest.approx(expected.item())


def painter(slots: Tensor) -> Tensor:
    """Every cell paints two pixels; the third cell is switched off."""
    weight = torch.linspace(-1, 1, 12, dtype=torch.float64).view(3, 4)[:, :, None].expand(3, 4, 2)
    on = torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64)
    return torch.einsum("btkd, kdp -> btkp", slots.tanh(), weight).mul(on[:, None]).sum(2).sigmoid()


def test_utilisation_is_that_of_finite_differences_and_zero_for_a_cell_that_is_off() -> None:
    slots = torch.randn(2, 3, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = cell_utilisation(painter, slots, normalise=False)
    expected = torch.zeros(2, 3, 3, dtype=torch.float64)
    for dim in range(4):
        for cell in range(3):
            change = torch.zeros_like(slots)
            change[:, :, cell, dim] = 1e-6
            slope = (painter(slots + change) - painter(slots - change)).sum(-1) / 2e-6
            expected[:, :, cell] += slope.abs()
    assert torch.allclose(found, expected, atol=1e-7)
    assert (found[:, :, 2] == 0).all()
    shares = cell_utilisation(painter, slots)
    assert torch.allclose(shares.sum(-1), torch.ones(2, 3, dtype=torch.float64))
    assert torch.allclose(shares, found / found.sum(-1, keepdim=True))
    assert not slots.requires_grad


def test_utilisation_is_there_in_inference_mode_too_and_zero_for_nothing() -> None:
    slots = torch.randn(1, 1, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.inference_mode():
        assert cell_utilisation(lambda slots: slots * 0, torch.ones(1, 1, 2, 3)).tolist() == [[[0.0, 0.0]]]
        found = cell_utilisation(painter, slots * 1)
    assert torch.allclose(found, cell_utilisation(painter, slots))
