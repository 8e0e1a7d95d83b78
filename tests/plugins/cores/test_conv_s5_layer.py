"""The recurrence on images against convs5.md 9.3 and 10: golden numbers, Prop. 3, dense systems, holds, gradients."""

from __future__ import annotations

import math

import pytest
import torch
from slotbench_plugins.cores._frame_activations import ResNetActivation
from slotbench_plugins.cores.conv_s5 import ConvS5Layer, ConvStateSpace
from torch.nn import functional

from slotbench.nn.diagonal_ssm import DiagonalDynamics, hippo_basis, hippo_eigenvalues


def state_space(dim=3, state_dim=8, b_kernel=3, c_kernel=3, **dynamics):
    torch.manual_seed(0)
    return ConvStateSpace(dim, DiagonalDynamics(state_dim, **dynamics), b_kernel, c_kernel).double()


def residual_layer(state_dim=8, **options):
    return ConvS5Layer(state_space(32, state_dim), ResNetActivation(32), **options).double()


def clip(batch=2, time=5, rows=4, cols=3, dim=3, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, time, rows, cols, dim, generator=generator, dtype=torch.float64)


def steps_and_maps(ssm):
    """(decay, discretised B, C) computed from the parameters alone."""
    eigenvalues = torch.complex(ssm.dynamics.Lambda_re, ssm.dynamics.Lambda_im)
    decay = torch.exp(eigenvalues * ssm.dynamics.log_step.exp())
    b, c = torch.view_as_complex(ssm.B), torch.view_as_complex(ssm.C)
    return decay, ((decay - 1) / eigenvalues)[:, None, None, None] * b, c


@torch.no_grad()
def test_golden_numbers():
    ssm = state_space(2, 4, clip_eigs=False)
    p, q = torch.arange(2.0).double()[:, None], torch.arange(18.0).double()
    b = torch.complex(torch.sin(0.3 * (q + 1) + p), torch.cos(0.2 * (q + 1) - p)).reshape(2, 2, 3, 3)
    n = torch.arange(36.0).double()
    c = torch.complex(torch.cos(0.1 * n), torch.sin(0.15 * n)).reshape(3, 3, 2, 2).permute(3, 2, 0, 1)
    inputs = ((torch.arange(4 * 9 * 2) % 7 - 3) / 4).double().reshape(4, 1, 3, 3, 2).transpose(0, 1)
    eigenvalues = hippo_eigenvalues(4)
    ssm.dynamics.Lambda_re.copy_(eigenvalues.real)
    ssm.dynamics.Lambda_im.copy_(eigenvalues.imag)
    ssm.dynamics.log_step.copy_(torch.tensor([math.log(0.05), math.log(0.02)], dtype=torch.float64))
    ssm.B.copy_(torch.view_as_real(b))
    ssm.C.copy_(torch.view_as_real(c.contiguous()))
    outputs, last = ssm(inputs)

    close = {"rtol": 0, "atol": 1e-8}
    decay, gain = ssm.dynamics()
    expected = torch.tensor(
        [0.949589863387 - 0.222505091745j, 0.989988511984 - 0.011019049224j], dtype=torch.complex128
    )
    torch.testing.assert_close(decay, expected, **close)
    expected = torch.tensor(
        [0.019987079723 + 0.046307312909j, 0.032827637657 + 0.041902802034j, 0.042992473559 + 0.035985108207j],
        dtype=torch.complex128,
    )
    torch.testing.assert_close(gain[0] * b[0].flatten()[:3], expected, **close)
    images = {
        (0, 0): [
            [-0.1705138779, -0.0632001752, 0.0727168296],
            [0.0812819366, 0.2197565771, 0.0992856108],
            [0.0576542162, 0.072798124, -0.0142661364],
        ],
        (3, 0): [
            [-0.1790915455, -0.0132912566, 0.0512166431],
            [0.033752319, 0.1229412283, -0.0417092454],
            [0.0443550133, 0.0423470075, -0.0731172808],
        ],
        (3, 1): [
            [-0.1943699802, -0.0267063345, 0.0621076094],
            [0.0142506596, 0.1234646397, -0.0280833471],
            [0.0413188402, 0.0440471803, -0.072606312],
        ],
    }
    for (step, channel), image in images.items():
        torch.testing.assert_close(
            outputs[0, step, :, :, channel], torch.tensor(image, dtype=torch.float64), rtol=0, atol=1e-9
        )
    assert outputs.sum().item() == pytest.approx(1.644176483132882, abs=1e-9)
    assert outputs.square().sum().item() == pytest.approx(0.8705146348911964, abs=1e-9)
    expected = torch.tensor(
        [0.018047514956 + 0.002224875865j, -0.006800876912 + 0.000915420256j], dtype=torch.complex128
    )
    torch.testing.assert_close(last[0, 1, 1], expected, **close)


@pytest.mark.parametrize(("b_kernel", "c_kernel"), [(3, 3), (1, 3), (5, 1), (1, 1)])
def test_every_pixel_is_one_state_space_model_of_its_patch(b_kernel, c_kernel):
    """Prop. 3: unfold the inputs, run the recurrence per pixel with B as a matrix, map the unfolded states with C."""
    ssm, inputs = state_space(b_kernel=b_kernel, c_kernel=c_kernel), clip()
    decay, b, c = steps_and_maps(ssm)
    batch, time, rows, cols = inputs.shape[:-1]
    patches = functional.unfold(inputs.flatten(0, 1).permute(0, 3, 1, 2), b_kernel, padding=b_kernel // 2)
    patches = patches.unflatten(0, (batch, time)).to(b)
    x = torch.zeros(batch, len(decay), rows * cols, dtype=torch.complex128)
    outputs, last = ssm(inputs)
    for t in range(time):
        x = decay[:, None] * x + b.flatten(1) @ patches[:, t]
        unfolded = [
            functional.unfold(part.unflatten(2, (rows, cols)), c_kernel, padding=c_kernel // 2)
            for part in (x.real, x.imag)
        ]
        y = 2 * (c.flatten(1) @ torch.complex(*unfolded)).real
        torch.testing.assert_close(outputs[:, t].flatten(1, 2).mT, y, rtol=0, atol=1e-10)
    torch.testing.assert_close(last.flatten(1, 2).mT, x, rtol=0, atol=1e-10)


@pytest.mark.parametrize("size", [8, 16])
def test_diagonal_system_is_the_dense_real_one_in_another_basis(size):
    """A dense 1x1 state kernel with a hold by matrix exponential, real B and C with it (10.5, 10.7)."""
    ssm, inputs = state_space(state_dim=size), clip()
    generator = torch.Generator().manual_seed(2)
    b = torch.randn(size, 3, 3, 3, generator=generator, dtype=torch.float64)
    c = torch.randn(3, size, 3, 3, generator=generator, dtype=torch.float64)
    basis, values = hippo_basis(size), hippo_eigenvalues(size)
    a = 2 * (basis @ values.diag() @ basis.mH).real
    with torch.no_grad():
        ssm.dynamics.Lambda_re.copy_(values.real)
        ssm.dynamics.Lambda_im.copy_(values.imag)
        ssm.dynamics.log_step.fill_(math.log(0.02))
        ssm.B.copy_(torch.view_as_real((basis.mH @ b.flatten(1).to(basis)).unflatten(1, (3, 3, 3))))
        ssm.C.copy_(torch.view_as_real(torch.einsum("osrc,sp->oprc", c.to(basis), basis)))
    a_bar = torch.matrix_exp(0.02 * a)
    b_bar = torch.linalg.solve(a, (a_bar - torch.eye(size, dtype=torch.float64)) @ b.flatten(1)).view_as(b)
    x = torch.zeros(2, size, 4, 3, dtype=torch.float64)
    outputs = ssm(inputs)[0]
    for t, u in enumerate(inputs.permute(1, 0, 4, 2, 3)):
        x = torch.einsum("ij,bjrc->birc", a_bar, x) + functional.conv2d(u, b_bar, padding=1)
        y = functional.conv2d(x, c, padding=1).permute(0, 2, 3, 1)
        torch.testing.assert_close(outputs[:, t], y, rtol=0, atol=1e-10)


def test_step_size_is_the_exponential_of_its_parameter_times_the_scale():
    torch.manual_seed(0)
    plain = DiagonalDynamics(8).double()
    torch.manual_seed(0)
    rescaled = DiagonalDynamics(8, step_rescale=2.0).double()
    eigenvalues = torch.complex(plain.Lambda_re, plain.Lambda_im)
    torch.testing.assert_close(plain().decay, torch.exp(eigenvalues * plain.log_step.exp()), rtol=0, atol=1e-14)
    torch.testing.assert_close(rescaled().decay, plain().decay ** 2, rtol=0, atol=1e-12)
    torch.testing.assert_close(plain(torch.tensor([1.0, 2.0])).decay[1], rescaled().decay, rtol=0, atol=1e-12)


def test_single_precision_parameters_are_discretised_in_double():
    torch.manual_seed(0)
    dynamics = DiagonalDynamics(256)
    decay, gain = dynamics()
    assert decay.dtype == gain.dtype == torch.complex64
    exact = dynamics.double()()
    assert (decay - exact.decay).abs().max() < 1e-7
    assert ((gain - exact.gain) / exact.gain).abs().max() < 1e-6


def test_clipped_eigenvalues_stay_below_zero_and_get_no_gradient():
    dynamics = DiagonalDynamics(4).double()
    with torch.no_grad():
        dynamics.Lambda_re.copy_(torch.tensor([0.3, -0.7]))
    assert dynamics.eigenvalues().real.tolist() == pytest.approx([-1e-4, -0.7])
    dynamics().decay.abs().sum().backward()
    assert dynamics.Lambda_re.grad[0] == 0
    assert dynamics.Lambda_re.grad[1] != 0
    free = DiagonalDynamics(4, clip_eigs=False).double()
    with torch.no_grad():
        free.Lambda_re.fill_(0.3)
    assert (free().decay.abs() > 1).all()


def test_one_long_step_is_two_short_ones_under_the_same_input():
    """What a zero-order hold means: frames 0, 1, 1, 2 at even times are frames 0, 1, 2 with the second held twice."""
    ssm, frames = state_space(), clip(time=3)
    held = frames[:, [0, 1, 1, 2]]
    outputs, last = ssm(held)
    irregular, last_irregular = ssm(frames, None, torch.tensor([1.0, 2.0, 1.0]))
    torch.testing.assert_close(irregular, outputs[:, [0, 2, 3]], rtol=0, atol=1e-11)
    torch.testing.assert_close(last_irregular, last, rtol=0, atol=1e-11)
    scales = torch.tensor([[1.0, 2.0, 1.0], [1.0, 1.0, 1.0]])
    torch.testing.assert_close(ssm(frames, None, scales)[0][:1], irregular[:1], rtol=0, atol=1e-11)
    torch.testing.assert_close(ssm(frames, None, scales)[0][1:], ssm(frames)[0][1:], rtol=0, atol=1e-11)


def test_maps_start_with_half_the_he_variance_in_each_part():
    ssm = state_space(32, 64, 3, 5)
    for part in ssm.B.unbind(-1):
        assert part.std().item() == pytest.approx((1 / (32 * 9)) ** 0.5, rel=0.05)
    for part in ssm.C.unbind(-1):
        assert part.std().item() == pytest.approx((1 / (64 * 25)) ** 0.5, rel=0.05)
    decay = ssm.dynamics().decay.abs()
    assert decay.min() >= 0.95
    assert decay.max() <= 0.9996


@pytest.mark.parametrize("scale", [None, torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64)], ids=["even", "uneven"])
def test_gradients_of_the_recurrence_in_each_entry(scale):
    """Every entry of every gradient, not a random projection as in the larger check."""
    ssm, inputs = state_space(2, 4, 3, 1), clip(1, 3, 2, 1, 2)
    names = [name for name, _ in ssm.named_parameters()]
    scales = () if scale is None else (scale.clone().requires_grad_(),)

    def run(*arguments):
        named = dict(zip(names, arguments[: len(names)], strict=True))
        return torch.func.functional_call(ssm, named, (inputs, None, *arguments[len(names) :]))

    assert torch.autograd.gradcheck(run, (*ssm.parameters(), *scales))


def test_residual_and_norm_of_a_layer():
    x = 0.01 * clip(dim=32)
    for prenorm in (False, True):
        layer = residual_layer(prenorm=prenorm)
        normal = (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, correction=0, keepdim=True) + 1e-6)
        inputs = normal if prenorm else x
        y = layer.ssm(inputs)[0]
        images = [z.flatten(0, 1).permute(0, 3, 1, 2) for z in (y, inputs)]
        expected = x + layer.activation(*images).permute(0, 2, 3, 1).view_as(x)
        if not prenorm:
            mean, variance = expected.mean(-1, keepdim=True), expected.var(-1, correction=0, keepdim=True)
            expected = (expected - mean) / torch.sqrt(variance + 1e-6)
        torch.testing.assert_close(layer(x)[0], expected, rtol=0, atol=1e-11)


def test_dropout_is_the_same_at_all_steps_and_off_in_evaluation():
    layer, x = residual_layer(dropout=0.5, prenorm=True), clip(time=3, dim=32)
    layer.activation.forward = lambda outputs, inputs: torch.ones_like(outputs)
    change = layer(x)[0] - x
    torch.testing.assert_close(change, change[:, :1].expand_as(change), rtol=0, atol=1e-12)
    assert set(change.round(decimals=6).unique().tolist()) == {0.0, 2.0}
    assert torch.equal(layer.eval()(x)[0], x + 1)
