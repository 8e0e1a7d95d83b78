from __future__ import annotations

import pytest
import torch
from slotbench_plugins.cores.conv_lstm import ConvLSTM
from slotbench_plugins.decoders.resnet_decoder import ResNetDecoder
from slotbench_plugins.encoders.resnet_encoder import ResNetEncoder
from torch import nn
from torch.nn.functional import layer_norm

from slotbench.interfaces import SlotSpec, TokenSpec, VideoSpec
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


def test_slots_are_the_cells_of_the_grid():
    assert ConvLSTM(SPEC, dim=8).slot_spec == SlotSpec(12, 8, (3, 4))
    assert ConvLSTM(TokenSpec(5, 12), dim=8).slot_spec == SlotSpec(12, 8, (1, 12))


@pytest.mark.parametrize("kernel_size", [1, 3])
def test_a_cell_reaches_as_far_as_its_kernel_in_every_step_and_layer(kernel_size):
    torch.manual_seed(0)
    core = ConvLSTM(TokenSpec(5, 9, (1, 9)), dim=8, num_layers=2, kernel_size=kernel_size).double()
    tokens = torch.randn(1, 3, 9, 5, dtype=torch.float64, requires_grad=True)
    slots = core(tokens).slots
    (gradient,) = torch.autograd.grad(slots[:, 2, 0].square().sum(), tokens)
    reached = gradient[0].any(dim=-1)
    for step in range(3):
        # two layers' input halves, and a recurrent half for each step that it takes
        far = (kernel_size // 2) * (2 + 2 - step)
        assert reached[step].tolist() == [cell <= far for cell in range(9)]


def test_the_state_is_a_cell_image_and_a_hidden_image_per_layer_whatever_the_length():
    core, tokens = core_and_tokens(time=7)
    for time in (1, 7):
        state = core(tokens[:, :time]).state
        assert [leaf.shape for layer in state for leaf in layer] == [(2, 8, 3, 4)] * 4


def test_streaming_gives_the_same_slots_and_states_as_the_whole_clip():
    core, tokens = core_and_tokens(time=12)
    whole, state, slots = core(tokens), None, []
    for step in range(12):
        output = core(tokens[:, step : step + 1], state)
        state = output.state
        slots.append(output.slots)
    torch.testing.assert_close(torch.cat(slots, dim=1), whole.slots, rtol=1e-9, atol=1e-9)
    for layer, expected in zip(state, whole.state, strict=True):
        for leaf, other in zip(layer, expected, strict=True):
            torch.testing.assert_close(leaf, other, rtol=1e-9, atol=1e-9)


def test_layers_below_one_are_refused():
    with pytest.raises(ValueError, match="num_layers"):
        ConvLSTM(SPEC, num_layers=0)
