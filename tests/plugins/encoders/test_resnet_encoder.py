"""Frames become the cells of a smaller grid, as the authors' encoder makes them."""

import pytest
import torch
from torch.nn import functional as F

from slotbench.interfaces import TokenSpec, VideoBatch, VideoSpec
from slotbench.registry import load

ResNetEncoder = load("encoders", "ResNetEncoder")
FRAME = VideoSpec(channels=1, height=16, width=24)


def batch_of(frames, actions=None):
    return VideoBatch(frames, torch.arange(frames.shape[1]).expand(len(frames), -1), actions=actions)


def noise(*shape, dtype=torch.float32):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0), dtype=dtype)


@pytest.mark.parametrize(
    ("arguments", "spec"),
    [
        ({}, TokenSpec(64, 24, (4, 6))),
        ({"depths": (8, 12), "action_dim": 3}, TokenSpec(15, 96, (8, 12))),
        ({"depths": (8,)}, TokenSpec(8, 384, (16, 24))),
    ],
)
def test_every_depth_after_the_first_halves_the_grid(arguments, spec):
    encoder = ResNetEncoder(FRAME, **arguments)
    assert encoder.token_spec == spec
    assert encoder(batch_of(noise(2, 3, 1, 16, 24))).shape == (2, 3, spec.num_tokens, spec.dim)


def test_the_first_level_has_one_block_whatever_blocks_says():
    assert len(ResNetEncoder(FRAME, depths=(8, 8, 8), blocks=3).blocks) == 1 + 3 + 3
    one = sum(parameter.numel() for parameter in ResNetEncoder(FRAME, depths=(8,), blocks=5).parameters())
    assert one == sum(parameter.numel() for parameter in ResNetEncoder(FRAME, depths=(8,), blocks=1).parameters())


def test_tokens_are_the_blocks_of_frames_in_minus_one_to_one():
    torch.manual_seed(0)
    encoder = ResNetEncoder(FRAME, depths=(8, 12), blocks=2).double()
    frames = noise(2, 2, 1, 16, 24, dtype=torch.float64)
    images = encoder.blocks[0](encoder.conv(2 * frames.reshape(4, 1, 16, 24) - 1))
    images = encoder.blocks[2](encoder.blocks[1](F.avg_pool2d(images, 2)))
    # cell (row, column) is token row * 12 + column
    expected = images.reshape(2, 2, 12, 8, 12).permute(0, 1, 3, 4, 2).reshape(2, 2, 96, 12)
    torch.testing.assert_close(encoder(batch_of(frames)), expected, rtol=1e-9, atol=1e-9)


def test_every_cell_is_told_the_action_of_its_step():
    encoder = ResNetEncoder(VideoSpec(1, 8, 8, num_actions=3), depths=(4, 4), action_dim=2)
    actions = torch.zeros(1, 3, 3)
    actions[0, 0, 1] = actions[0, 2, 2] = 1
    told = encoder(batch_of(noise(1, 3, 1, 8, 8), actions))[..., 4:]
    table = encoder.actions.table
    assert table.shape == (4, 2)
    assert torch.equal(told, table[[1, 3, 2]][None, :, None].expand(1, 3, 16, 2))


def test_data_without_actions_has_a_channel_that_is_the_same_everywhere():
    encoder = ResNetEncoder(FRAME, depths=(4, 4), action_dim=1)
    told = encoder(batch_of(noise(2, 3, 1, 16, 24)))[..., 4]
    assert torch.equal(told, encoder.actions.table[0].expand_as(told))


def test_tokens_are_channels_last_frames_without_a_copy():
    tokens = ResNetEncoder(FRAME)(batch_of(noise(2, 3, 1, 16, 24)))
    assert tokens.is_contiguous()
    assert tokens._is_view()
