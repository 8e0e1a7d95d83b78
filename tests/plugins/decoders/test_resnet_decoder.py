"""The cells of a grid become an image, as the authors' decoder makes it."""

import torch
from torch.nn import functional as F

from slotbench.interfaces import SlotSpec, VideoSpec
from slotbench.registry import load

ResNetDecoder = load("decoders", "ResNetDecoder")
CELLS = SlotSpec(num_slots=6, dim=5, grid=(2, 3))
PICTURE = VideoSpec(channels=2, height=8, width=12)


def test_the_first_convolution_goes_to_the_first_depth_and_the_blocks_run_backwards():
    decoder = ResNetDecoder(CELLS, PICTURE, depths=(8, 12, 16), blocks=2)
    assert decoder.conv.out_channels == 8
    widths = [(block.conv1.in_channels, block.conv1.out_channels) for block in decoder.blocks]
    assert widths == [(8, 16), (16, 16), (16, 12), (12, 12), (12, 8), (8, 8)]


def test_it_doubles_between_levels_and_ends_with_a_norm_per_pixel_and_a_linear_map():
    torch.manual_seed(0)
    decoder = ResNetDecoder(CELLS, VideoSpec(2, 4, 6), depths=(8, 12)).double()
    torch.nn.init.normal_(decoder.norm.weight)
    slots = torch.randn(1, 2, 6, 5, dtype=torch.float64)
    images = decoder.conv(slots.reshape(2, 2, 3, 5).permute(0, 3, 1, 2))
    images = F.interpolate(decoder.blocks[0](images), size=(4, 6), mode="nearest")
    pixels = decoder.blocks[1](images).permute(0, 2, 3, 1)
    pixels = (pixels - pixels.mean(-1, keepdim=True)) / (pixels.var(-1, correction=0, keepdim=True) + 1e-6).sqrt()
    pixels = pixels * decoder.norm.weight + decoder.norm.bias
    expected = (pixels @ decoder.head.weight.T + decoder.head.bias).permute(0, 3, 1, 2)[None]
    torch.testing.assert_close(decoder(slots).reconstruction, expected, rtol=1e-9, atol=1e-9)
