"""The activation blocks are the formulas of convs5.md 2.4, frame by frame."""

from __future__ import annotations

import math

import pytest
import torch
from slotbench_plugins.cores._frame_activations import (
    DiagResNetActivation,
    HalfGLUActivation,
    ResNetActivation,
    SqueezeExcite,
    StandardActivation,
    frame_activation,
)
from torch.nn import functional


def gelu(x):
    """The tanh form, written out."""
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def group_norm(x, groups, weight, bias):
    grouped = x.reshape(len(x), groups, -1)
    mean, variance = grouped.mean(-1, keepdim=True), grouped.var(-1, correction=0, keepdim=True)
    normal = ((grouped - mean) / torch.sqrt(variance + 1e-6)).reshape(x.shape)
    return normal * weight[:, None, None] + bias[:, None, None]


def built(name, dim=64, kernel_size=3, squeeze_excite=False):
    torch.manual_seed(0)
    block = frame_activation(name, dim, kernel_size, squeeze_excite).double()
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return block


def frames(dim=64):
    generator = torch.Generator().manual_seed(1)
    # small, so that eps = 1e-6 and not the default 1e-5 is what is measured
    return [0.01 * torch.randn(3, dim, 4, 5, generator=generator, dtype=torch.float64) for _ in range(2)]


def conv(x, layer):
    return functional.conv2d(x, layer.weight, layer.bias, padding=layer.weight.shape[-1] // 2)


def test_resnet_is_two_normalised_convolutions_around_a_residual():
    block, (y, u) = built("resnet"), frames()
    hidden = conv(gelu(group_norm(y, 32, block.first_norm.weight, block.first_norm.bias)), block.first_conv)
    hidden = conv(gelu(group_norm(hidden, 32, block.second_norm.weight, block.second_norm.bias)), block.second_conv)
    torch.testing.assert_close(block(y, u), gelu(y + hidden), rtol=0, atol=1e-11)


def test_diag_resnet_is_applied_and_has_one_convolution():
    block, (y, u) = built("diag_resnet"), frames()
    hidden = conv(gelu(group_norm(y, 32, block.first_norm.weight, block.first_norm.bias)), block.first_conv)
    hidden = gelu(group_norm(hidden, 32, block.second_norm.weight, block.second_norm.bias))
    torch.testing.assert_close(block(y, u), gelu(y + hidden), rtol=0, atol=1e-11)


def test_standard_adds_a_convolution_of_the_inputs():
    block, (y, u) = built("standard", kernel_size=5), frames()
    expected = gelu(group_norm(y + conv(u, block.feedthrough), 32, block.group_norm.weight, block.group_norm.bias))
    torch.testing.assert_close(block(y, u), expected, rtol=0, atol=1e-11)


def test_half_glu_gates_every_cell_by_itself():
    block, (y, u) = built("half_glu"), frames()
    cell = y[1, :, 2, 3]
    normal = (cell - cell.mean()) / torch.sqrt(cell.var(correction=0) + 1e-6)
    z = gelu(normal * block.layer_norm.weight + block.layer_norm.bias)
    expected = z / (1 + torch.exp(-(block.dense.weight @ z + block.dense.bias)))
    torch.testing.assert_close(block(y, u)[1, :, 2, 3], expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", ["resnet", "diag_resnet", "standard"])
def test_squeeze_excite_changes_the_block_and_stays_within_the_frame(name):
    block, (y, u) = built(name, squeeze_excite=True), frames()
    torch.testing.assert_close(block(y, u)[1:2], block(y[1:2], u[1:2]), rtol=0, atol=1e-12)
    assert sum(p.numel() for p in block.gate.parameters()) == 64 * 4 + 4 + 4 * 64 + 64
    gate = block.gate
    block.gate = torch.nn.Identity()
    assert (block(y, u) - functional.gelu(y)).abs().max() > 1e-6
    ungated = block(y, u)
    block.gate = gate
    assert (block(y, u) - ungated).abs().max() > 1e-6


def test_squeeze_excite_is_a_gate_of_the_channels_means():
    torch.manual_seed(0)
    gate, x = SqueezeExcite(32).double(), frames(32)[0]
    hidden = torch.relu(gate.reduce.weight @ x[0].mean((1, 2)) + gate.reduce.bias)
    expected = torch.sigmoid(gate.expand.weight @ hidden + gate.expand.bias)[:, None, None] * x[0]
    torch.testing.assert_close(gate(x)[0], expected, rtol=0, atol=1e-12)


def test_weights_start_as_in_flax():
    torch.manual_seed(0)
    assert ResNetActivation(64).first_conv.weight.std().item() == pytest.approx((64 * 9) ** -0.5, rel=0.03)
    assert StandardActivation(64, 5).feedthrough.weight.std().item() == pytest.approx((64 * 25) ** -0.5, rel=0.03)
    assert HalfGLUActivation(128).dense.weight.std().item() == pytest.approx((0.2 / 128) ** 0.5, rel=0.03)
    assert not DiagResNetActivation(64).first_conv.bias.any()
