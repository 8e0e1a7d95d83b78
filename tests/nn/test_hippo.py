"""How the states start: the HiPPO matrix and its modes (convs5.md 10.4, 10.5), and the other initialisations."""

from __future__ import annotations

import math

import pytest
import torch

from slotbench.nn.diagonal_ssm import (
    DiagonalDynamics,
    hippo_basis,
    hippo_eigenvalues,
    initial_eigenvalues,
    initial_log_step,
)


def hippo_normal(size: int) -> torch.Tensor:
    """The normal part of the HiPPO-LegS matrix: -1/2 on the diagonal, -sqrt((n+1/2)(k+1/2)) below it, plus that above.

    Source: ConvS5, appendix B, where Eq. 29 lacks the change of sign above the diagonal; S5, appendix B.1.
    """
    root = torch.sqrt(torch.arange(size, dtype=torch.float64) + 0.5)
    outer = torch.outer(root, root)
    return outer.triu(1) - outer.tril(-1) - 0.5 * torch.eye(size, dtype=torch.float64)


def test_hippo_is_minus_a_half_plus_a_skew_symmetric_matrix_negative_below_the_diagonal():
    a = hippo_normal(6)
    torch.testing.assert_close(a + a.T, -torch.eye(6, dtype=torch.float64), rtol=0, atol=1e-12)
    assert a[2, 1].item() == pytest.approx(-math.sqrt(2.5 * 1.5), abs=1e-12)
    assert a[1, 2].item() == pytest.approx(math.sqrt(2.5 * 1.5), abs=1e-12)


@pytest.mark.parametrize("size", [4, 8, 32, 256])
def test_modes_and_their_conjugates_put_the_matrix_together_again(size):
    values, basis = hippo_eigenvalues(size), hippo_basis(size)
    identity = torch.eye(size // 2, dtype=torch.complex128)
    torch.testing.assert_close(basis.mH @ basis, identity, rtol=0, atol=1e-12)
    torch.testing.assert_close(basis.mH @ basis.conj(), 0 * identity, rtol=0, atol=1e-10)
    rebuilt = 2 * (basis @ values.diag() @ basis.mH).real
    torch.testing.assert_close(rebuilt, hippo_normal(size), rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("size", "first", "last"),
    [(4, -4.60329301, -0.55650112), (8, -19.8574, -0.42749), (32, -325.426, -0.30108), (256, -20860.23, -0.21245)],
)
def test_kept_modes_decay_alike_and_have_the_negative_frequencies_fastest_first(size, first, last):
    values = hippo_eigenvalues(size)
    assert values.shape == (size // 2,)
    assert torch.equal(values.real, torch.full_like(values.real, -0.5))
    assert (values.imag < 0).all()
    assert (values.imag.diff() > 0).all()
    assert values.imag[0].item() == pytest.approx(first, rel=1e-6 if size > 4 else 1e-8)
    assert values.imag[-1].item() == pytest.approx(last, rel=2e-5 if size > 4 else 1e-8)


def test_blocks_repeat_the_smaller_matrix():
    assert torch.equal(hippo_eigenvalues(12, 3), hippo_eigenvalues(4).repeat(3))
    basis = hippo_basis(12, 3)
    assert basis.shape == (12, 6)
    assert torch.equal(basis[4:8, 2:4], hippo_basis(4))
    assert not basis[:4, 2:].any()


@pytest.mark.parametrize("size", [8, 16])
def test_half_the_modes_run_as_the_full_real_system(size):
    """Zero-order hold of the dense real system by a matrix exponential, against the diagonal one (10.5)."""
    generator = torch.Generator().manual_seed(0)
    a = hippo_normal(size)
    b = torch.randn(size, 3, generator=generator, dtype=torch.float64)
    c = torch.randn(2, size, generator=generator, dtype=torch.float64)
    step, inputs = 0.03, torch.randn(40, 3, generator=generator, dtype=torch.float64)
    a_bar = torch.matrix_exp(a * step)
    b_bar = torch.linalg.solve(a, (a_bar - torch.eye(size, dtype=torch.float64)) @ b)
    values, basis = hippo_eigenvalues(size), hippo_basis(size)
    decay = torch.exp(values * step)
    b_half = ((decay - 1) / values)[:, None] * (basis.mH @ b.to(basis))
    c_half = c.to(basis) @ basis
    x, x_half = torch.zeros(size, dtype=torch.float64), torch.zeros(size // 2, dtype=torch.complex128)
    for u in inputs:
        x = a_bar @ x + b_bar @ u
        x_half = decay * x_half + b_half @ u.to(b_half)
        torch.testing.assert_close(2 * (c_half @ x_half).real, c @ x, rtol=0, atol=1e-10)


def test_time_scales_reach_from_ten_to_a_thousand_steps():
    torch.manual_seed(0)
    log_step = initial_log_step(4000)
    assert math.log(1e-3) <= log_step.min() < math.log(1.1e-3)
    assert math.log(0.9e-1) < log_step.max() <= math.log(1e-1)
    assert log_step.mean().item() == pytest.approx(math.log(1e-2), abs=0.1)
    size = torch.exp(-0.5 * log_step.exp())
    assert size.min() >= 0.95
    assert size.max() <= 0.9996


def test_random_is_standard_normal_in_both_parts():
    torch.manual_seed(0)
    values = initial_eigenvalues("random", torch.ones(20000))
    for part in (values.real, values.imag):
        assert part.mean().item() == pytest.approx(0, abs=0.03)
        assert part.std().item() == pytest.approx(1, abs=0.03)
    assert torch.corrcoef(torch.stack([values.real, values.imag]))[0, 1].abs() < 0.03


def test_lin_has_multiples_of_pi():
    values = initial_eigenvalues("lin", torch.ones(5))
    assert values.real.tolist() == [-0.5] * 5
    torch.testing.assert_close(values.imag, torch.pi * torch.arange(5, dtype=torch.float64))


def test_ring_is_uniform_on_the_ring_after_discretisation():
    torch.manual_seed(0)
    step = initial_log_step(20000).exp()
    decay = torch.exp(initial_eigenvalues("ring", step) * step)
    assert 0.9 <= decay.abs().min() < 0.901
    assert 0.998 < decay.abs().max() <= 0.999
    # uniform by area: the square of the radius is uniform
    assert decay.abs().square().mean().item() == pytest.approx((0.9**2 + 0.999**2) / 2, abs=2e-3)
    assert decay.mean().abs() < 0.02


def test_the_basis_of_dynamics_has_their_blocks():
    assert torch.equal(DiagonalDynamics(12, 3).hippo_basis(), hippo_basis(12, 3))
