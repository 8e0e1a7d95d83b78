"""Gumbel noise, and categories that are drawn by it."""

import torch

from slotbench.nn.gumbel import draw_categories, gumbel_noise


def test_noise_is_of_float32_at_least_and_finite() -> None:
    noise = gumbel_noise(torch.zeros(10_000, dtype=torch.bfloat16))
    assert noise.dtype == torch.float32
    assert noise.isfinite().all()
    assert gumbel_noise(torch.zeros(1, dtype=torch.float64)).dtype == torch.float64


def test_categories_are_drawn_by_their_logits_over_the_temperature() -> None:
    shares = torch.tensor([0.7, 0.2, 0.1])
    torch.manual_seed(0)
    for temperature, expected in ((1.0, shares), (0.5, shares**2 / (shares**2).sum())):
        drawn = draw_categories(shares.log().expand(80, 100, 3), temperature)
        assert drawn.shape == (80, 100)
        torch.testing.assert_close(drawn.flatten().bincount(minlength=3) / 8000, expected, atol=0.02, rtol=0)
    assert (draw_categories(shares.log().expand(5, 3), 0.0) == 0).all()


def test_logits_that_are_not_finite_have_a_category_too() -> None:
    assert int(draw_categories(torch.full((4, 3), float("nan"))).max()) < 3
