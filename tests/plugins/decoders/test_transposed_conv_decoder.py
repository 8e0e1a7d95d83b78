"""The decoder of transposed convolutions: the source's sizes, other sizes, and what it refuses."""

import pytest
import torch
from slotbench_plugins.decoders.transposed_conv_decoder import TransposedConvDecoder

from slotbench.interfaces import SlotSpec, VideoSpec

SOURCE = {"channels": (1024, 128, 64, 32), "kernel_sizes": (5, 5, 6, 6)}


def test_the_sources_decoder_has_its_sizes():
    decoder = TransposedConvDecoder(SlotSpec(1, 220), VideoSpec(1, 64, 64), **SOURCE)
    assert sum(p.numel() for p in decoder.parameters()) == 3_783_009
    assert decoder.map_shape == (1024, 1, 1)
    images, sides = decoder.linear(torch.randn(1, 220))[:, :, None, None], []
    for conv in decoder.convs:
        images = conv(images)
        sides.append(images.shape[-1])
    assert sides == [5, 13, 30, 64]


@pytest.mark.parametrize("size", [(16, 16), (17, 40), (64, 3)])
@pytest.mark.parametrize("kernels", [(6, 6), (4, 5)])
def test_any_image_is_painted_from_as_few_cells_as_will_do(size, kernels):
    decoder = TransposedConvDecoder(SlotSpec(2, 5), VideoSpec(3, *size), kernel_sizes=kernels)
    assert decoder(torch.randn(2, 3, 2, 5)).reconstruction.shape == (2, 3, 3, *size)
    for cells, side in zip(decoder.map_shape[1:], size, strict=True):
        made = [cells, cells - 1]
        for kernel in kernels:
            made = [(count - 1) * 2 + kernel for count in made]
        assert made[0] >= side
        assert cells == 1 or made[1] < side


def test_the_image_is_a_tanh_of_the_linear_one():
    torch.manual_seed(0)
    linear = TransposedConvDecoder(SlotSpec(1, 8), VideoSpec(1, 16, 16), output="linear")
    bounded = TransposedConvDecoder(SlotSpec(1, 8), VideoSpec(1, 16, 16))
    bounded.load_state_dict(linear.state_dict())
    slots = 9 * torch.randn(2, 3, 1, 8)
    painted = linear(slots).reconstruction
    assert painted.abs().max() > 1
    torch.testing.assert_close(bounded(slots).reconstruction, painted.tanh())
