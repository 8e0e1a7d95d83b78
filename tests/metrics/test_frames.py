"""Frame errors agree with scikit-image, and their edge cases are those of the definitions."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from slotbench.metrics.frames import MAX_PSNR, HorizonCurve, frame_mse, frame_psnr, frame_ssim


def noisy_pair(shape, seed=0, noise=0.2):
    generator = torch.Generator().manual_seed(seed)
    true = torch.rand(shape, generator=generator, dtype=torch.float64)
    return (true + noise * torch.randn(shape, generator=generator, dtype=torch.float64)).clamp(0, 1), true


@settings(deadline=None, max_examples=20)
@given(
    batch=st.integers(1, 3),
    time=st.integers(1, 3),
    channels=st.sampled_from([1, 3]),
    height=st.integers(11, 24),
    width=st.integers(11, 24),
    seed=st.integers(0, 1000),
)
def test_psnr_and_ssim_agree_with_scikit_image(batch, time, channels, height, width, seed):
    predicted, true = noisy_pair((batch, time, channels, height, width), seed)
    psnr, ssim = frame_psnr(predicted, true), frame_ssim(predicted, true)
    assert psnr.shape == ssim.shape == (batch, time)
    for index in np.ndindex(batch, time):
        x, y = predicted[index].numpy(), true[index].numpy()
        assert psnr[index].item() == pytest.approx(peak_signal_noise_ratio(y, x, data_range=1), abs=1e-9)
        expected = structural_similarity(
            y, x, gaussian_weights=True, sigma=1.5, use_sample_covariance=False, data_range=1, channel_axis=0
        )
        assert ssim[index].item() == pytest.approx(expected, abs=1e-9)


def test_a_known_error_gives_the_known_decibels():
    assert frame_psnr(torch.full((1, 4, 4), 0.1), torch.zeros(1, 4, 4)).item() == pytest.approx(20.0, abs=1e-5)


def test_a_frame_without_error_has_the_capped_psnr_and_an_ssim_of_one():
    frame = torch.rand(1, 16, 16)
    assert frame_psnr(frame, frame).item() == MAX_PSNR
    assert frame_ssim(frame, frame).item() == pytest.approx(1.0, abs=1e-6)


def test_black_against_white():
    black, white = torch.zeros(1, 16, 16), torch.ones(1, 16, 16)
    assert frame_mse(black, white).item() == 1.0
    assert frame_ssim(black, white).item() == pytest.approx(1e-4 / (1 + 1e-4), rel=1e-4)


@settings(deadline=None, max_examples=20)
@given(cuts=st.lists(st.integers(1, 9), max_size=3, unique=True), seed=st.integers(0, 100))
def test_a_horizon_curve_does_not_depend_on_how_clips_are_batched(cuts, seed):
    values = torch.rand(10, 4, generator=torch.Generator().manual_seed(seed))
    curve = HorizonCurve(4)
    for part in torch.tensor_split(values, sorted(cuts)):
        curve.update(part)
    torch.testing.assert_close(curve.compute(), values.double().mean(0))


def test_ssim_is_the_same_under_autocast():
    predicted, true = torch.rand(2, 2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    expected = frame_ssim(predicted, true)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(frame_ssim(predicted, true), expected)
