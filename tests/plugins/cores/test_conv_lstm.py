from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from slotbench_plugins.cores.conv_lstm import ConvLSTM, ConvLSTMLayer, ConvLSTMState
from slotbench_plugins.decoders.resnet_decoder import ResNetDecoder
from slotbench_plugins.encoders.resnet_encoder import ResNetEncoder
from torch import Tensor, nn
from torch.nn.functional import conv2d, layer_norm

from slotbench.interfaces import TokenSpec, VideoSpec
from slotbench.nn.grid import to_images, to_tokens

SPEC = TokenSpec(dim=5, num_tokens=12, grid=(3, 4))


def count(*modules: nn.Module) -> int:
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


def core_and_tokens(time: int = 6, **arguments) -> tuple[ConvLSTM, torch.Tensor]:
    torch.manual_seed(0)
    core = ConvLSTM(SPEC, dim=8, **arguments).double()
    return core, torch.randn(2, time, 12, 5, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize(("dim", "total"), [(256, 40_540_419), (128, 12_120_067)])
def test_the_papers_sizes_give_its_models_number_of_parameters(dim, total):
    video = VideoSpec(1, 64, 64)
    with torch.device("meta"):
        encoder = ResNetEncoder(video, depths=(64, 128, 256), action_dim=1)
        core = ConvLSTM(encoder.token_spec, dim=dim, num_layers=8)
        decoder = ResNetDecoder(core.slot_spec, video, depths=(64, 128, 256))
    layer = 9 * (dim + dim) * 4 * dim + 2 * dim
    assert count(core) == 257 * dim + dim + 8 * layer
    assert count(encoder, core, decoder) == total


def test_every_layer_has_a_residual_and_a_norm_after_it():
    core, tokens = core_and_tokens(num_layers=3)
    x = core.input_map(tokens)
    for layer, norm in zip(core.layers, core.norms, strict=True):
        hidden, _ = layer(to_images(x, (3, 4)), 2)
        x = layer_norm(x + to_tokens(hidden, 2), (8,), norm.weight, norm.bias, eps=1e-6)
    torch.testing.assert_close(core(tokens).slots, x, rtol=1e-10, atol=1e-10)


def naive(kernel: Tensor, images: Tensor, cell: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One step after the other, input and hidden state in one convolution; `images` "batch time dim rows cols"."""
    outputs = []
    for step in range(images.shape[1]):
        both = torch.cat([images[:, step], hidden], dim=1)
        i, f, o, g = conv2d(both, kernel, padding=kernel.shape[-1] // 2).chunk(4, dim=1)
        cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
        hidden = torch.sigmoid(o) * torch.tanh(cell)
        outputs.append(hidden)
    return torch.stack(outputs, dim=1), cell, hidden


def gradients(outputs: tuple[Tensor, ...], of: list[Tensor]) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(output.shape, generator=generator, dtype=torch.float64) for output in outputs]
    return torch.autograd.grad(sum((o * w).sum() for o, w in zip(outputs, weights, strict=True)), of)


@settings(max_examples=15)
@given(
    batch=st.integers(1, 3),
    time=st.integers(1, 5),
    dim=st.integers(1, 4),
    rows=st.integers(1, 5),
    cols=st.integers(1, 5),
    kernel_size=st.sampled_from([1, 3, 5]),
    begun=st.booleans(),
)
def test_value_and_gradient_are_those_of_a_loop_over_one_convolution(batch, time, dim, rows, cols, kernel_size, begun):
    torch.manual_seed(0)
    layer = ConvLSTMLayer(dim, kernel_size).double()
    images = torch.randn(batch, time, dim, rows, cols, dtype=torch.float64, requires_grad=True)
    cell, hidden = (torch.randn(batch, dim, rows, cols, dtype=torch.float64) * begun for _ in range(2))
    cell.requires_grad_(begun), hidden.requires_grad_(begun)
    output, state = layer(images.flatten(0, 1), batch, ConvLSTMState(cell, hidden) if begun else None)
    found = (output.unflatten(0, (batch, time)), *state)
    expected = naive(layer.kernel, images, cell, hidden)
    of = [images, layer.kernel, *((cell, hidden) if begun else ())]
    for a, b in zip((*found, *gradients(found, of)), (*expected, *gradients(expected, of)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_the_gates_come_in_the_order_input_forget_output_candidate_over_input_then_hidden():
    layer = ConvLSTMLayer(dim=1, kernel_size=1).double()
    of_input, of_hidden = (0.3, -0.7, 1.1, 0.5), (-0.2, 0.9, 0.4, -1.3)
    with torch.no_grad():
        layer.kernel.copy_(torch.tensor([of_input, of_hidden], dtype=torch.float64).T.reshape(4, 2, 1, 1))
    output, (last_cell, last_hidden) = layer(torch.tensor([2.0, -1.0, 0.5]).double().reshape(3, 1, 1, 1), 1)

    cell = hidden = 0.0
    for step, value in enumerate((2.0, -1.0, 0.5)):
        i, f, o, g = (a * value + b * hidden for a, b in zip(of_input, of_hidden, strict=True))
        cell = cell / (1 + math.exp(-f)) + math.tanh(g) / (1 + math.exp(-i))
        hidden = math.tanh(cell) / (1 + math.exp(-o))
        assert output[step].item() == pytest.approx(hidden, abs=1e-12)
    assert (last_cell.item(), last_hidden.item()) == pytest.approx((cell, hidden), abs=1e-12)


def test_the_kernel_is_all_there_is_and_starts_with_the_spread_of_he():
    torch.manual_seed(0)
    layer = ConvLSTMLayer(dim=24)
    assert [tuple(p.shape) for p in layer.parameters()] == [(4 * 24, 2 * 24, 3, 3)]
    std = math.sqrt(2 / (2 * 24 * 9))
    assert layer.kernel.std().item() == pytest.approx(std, rel=0.02)
    assert layer.kernel.mean().item() == pytest.approx(0.0, abs=0.02 * std)
    # cut at two standard deviations of the normal before the cut, which narrows it to 0.8796
    assert 0.98 < layer.kernel.abs().max().item() / (2 * std / 0.87962566) <= 1 + 1e-6
