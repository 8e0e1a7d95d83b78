"""S5 per patch: counts, the equations of convs5.md 2.8, and patches as strided convolutions."""

from __future__ import annotations

import pytest
import torch
from slotbench_plugins.cores.conv_s5 import ConvStateSpace
from slotbench_plugins.cores.s5 import S5, S5StateSpace
from torch.nn import functional

from slotbench.interfaces import TokenSpec
from slotbench.nn.diagonal_ssm import DiagonalDynamics

SPEC = TokenSpec(dim=5, num_tokens=24, grid=(4, 6))


def clip(batch=2, time=5):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(batch, time, 24, 5, generator=generator, dtype=torch.float64)


def test_the_released_model_has_its_number_of_parameters():
    """DMLab: 254,275,952 less the encoder, the action table and the decoder."""
    with torch.device("meta"):
        core = S5(TokenSpec(272, 256, (16, 16)), 1024, 1024, 8, patch=16, output_dim=512)
    assert sum(p.numel() for p in core.parameters()) == 254_275_952 - 1_771_264 - 7 * 16 - 21_772_800


def test_what_is_given_reaches_every_layer():
    given = {"state_dim": 12, "blocks": 3, "clip_eigs": False, "initialisation": "ring", "step_rescale": 2.0}
    core = S5(SPEC, dim=8, num_layers=2, prenorm=True, dropout=0.25, kernel="reference", **given)
    for layer in core.layers:
        dynamics = layer.ssm.dynamics
        assert (layer.prenorm, layer.dropout, layer.ssm.kernel) == (True, 0.25, "reference")
        assert (dynamics.blocks, dynamics.clip_eigs) == (3, False)
        assert layer.ssm.B.shape == (6, 8, 2)
        # radii of the ring, twice the step
        assert ((dynamics().decay.abs() > 0.9**2) & (dynamics().decay.abs() < 0.999**2)).all()
        assert (dynamics.log_step.exp() > 0.001).all()
        assert (dynamics.log_step.exp() < 0.1).all()
        phase = dynamics.eigenvalues().imag * 2 * dynamics.log_step.double().exp()
        torch.testing.assert_close(dynamics().decay.angle().cos(), phase.cos().float(), rtol=0, atol=1e-5)
    assert [state.hidden.shape[-1] for state in core(clip().float()).state] == [6, 6]


def test_recurrence_is_that_of_the_parameters():
    torch.manual_seed(0)
    ssm = S5StateSpace(5, DiagonalDynamics(8)).double()
    inputs = clip()
    eigenvalues = torch.complex(ssm.dynamics.Lambda_re, ssm.dynamics.Lambda_im)
    decay = torch.exp(eigenvalues * ssm.dynamics.log_step.exp())
    b = ((decay - 1) / eigenvalues)[:, None] * torch.view_as_complex(ssm.B)
    x = torch.zeros(2, 24, 4, dtype=torch.complex128)
    outputs, last = ssm(inputs)
    for t, u in enumerate(inputs.unbind(1)):
        x = decay * x + u.to(b) @ b.T
        y = 2 * (x @ torch.view_as_complex(ssm.C).T).real + ssm.D * u
        torch.testing.assert_close(outputs[:, t], y, rtol=0, atol=1e-11)
    torch.testing.assert_close(last, x, rtol=0, atol=1e-11)


def test_recurrence_is_that_of_conv_s5_with_kernels_of_one_cell():
    torch.manual_seed(0)
    conv, ssm = ConvStateSpace(5, DiagonalDynamics(8), 1, 1).double(), S5StateSpace(5, DiagonalDynamics(8)).double()
    with torch.no_grad():
        ssm.dynamics.load_state_dict(conv.dynamics.state_dict())
        ssm.B.copy_(conv.B[:, :, 0, 0])
        ssm.C.copy_(conv.C[:, :, 0, 0])
        ssm.D.zero_()
    inputs = clip()
    outputs, last = conv(inputs.unflatten(2, (4, 6)))
    torch.testing.assert_close(ssm(inputs)[0], outputs.flatten(2, 3), rtol=0, atol=1e-12)
    torch.testing.assert_close(ssm(inputs)[1], last.flatten(1, 2), rtol=0, atol=1e-12)


def test_layer_gates_carries_the_input_around_and_normalises():
    torch.manual_seed(0)
    layer, x = S5(SPEC, dim=5, state_dim=4).layers[0].double(), 0.01 * clip()
    z = functional.gelu(layer.ssm(x)[0], approximate="tanh")
    y = x + z * torch.sigmoid(z @ layer.gate.weight.T + layer.gate.bias)
    expected = (y - y.mean(-1, keepdim=True)) / torch.sqrt(y.var(-1, correction=0, keepdim=True) + 1e-6)
    torch.testing.assert_close(layer(x)[0], expected, rtol=0, atol=1e-11)


def test_patches_are_cut_out_and_put_together_as_strided_convolutions_do():
    torch.manual_seed(0)
    core, tokens = S5(SPEC, dim=16, state_dim=4, patch=2, output_dim=3).double(), clip()
    core.layers = torch.nn.ModuleList()
    images = tokens.flatten(0, 1).unflatten(1, (4, 6)).permute(0, 3, 1, 2)
    kernel = core.into_patches.weight.reshape(16, 2, 2, 5).permute(0, 3, 1, 2)
    patches = functional.conv2d(images, kernel, stride=2)
    kernel = core.out_of_patches.weight.reshape(2, 2, 3, 16).permute(3, 2, 0, 1)
    expected = functional.conv_transpose2d(patches, kernel, stride=2).permute(0, 2, 3, 1)
    torch.testing.assert_close(core(tokens).slots, expected.reshape(2, 5, 24, 3), rtol=0, atol=1e-12)


def test_maps_start_as_in_the_authors_code():
    torch.manual_seed(0)
    ssm = S5StateSpace(128, DiagonalDynamics(64))
    for part in (*ssm.B.unbind(-1),):
        # a real map of variance 1 / 64 rotated: half of it in each part
        assert part.std().item() == pytest.approx((0.5 / 64) ** 0.5, rel=0.05)
    for part in ssm.C.unbind(-1):
        assert part.std().item() == pytest.approx((1 / 64) ** 0.5, rel=0.05)
    assert ssm.D.std().item() == pytest.approx(1, rel=0.2)
